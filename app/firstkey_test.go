package app

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sandyard/dev/testenv"
	"sandyard/models"
)

// TestTheFirstKeyIsInNoLog: it is in a file that its owner alone may read, or nowhere, and where the file cannot be made
// there is no key that nobody knows.
func TestTheFirstKeyIsInNoLog(t *testing.T) {
	t.Parallel()
	screen, err := os.Create(filepath.Join(t.TempDir(), "stdout"))
	if err != nil {
		t.Fatal(err)
	}
	defer screen.Close()
	var text bytes.Buffer
	log := slog.New(slog.NewTextHandler(&text, nil))
	store := emptyStore(t)
	file := filepath.Join(t.TempDir(), "key")
	if err := firstKey(t.Context(), API{FirstKey: filepath.Join(file, "no", "directory")}, store, screen, log); err == nil {
		t.Fatal("a file that cannot be made is no error")
	}
	if err := os.WriteFile(file, []byte("old"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := firstKey(t.Context(), API{FirstKey: file}, store, screen, log); err != nil {
		t.Fatal(err)
	}
	key, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := store.Authenticate(t.Context(), strings.TrimSpace(string(key))); err != nil {
		t.Errorf("the key in the file: %v", err)
	}
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the file: %v, %v", info.Mode(), err)
	}
	said, _ := os.ReadFile(screen.Name())
	if strings.Contains(string(said)+text.String(), "sy_") {
		t.Errorf("it is printed: %s%s", said, &text)
	}

	store = emptyStore(t)
	if err := firstKey(t.Context(), API{}, store, screen, log); err != nil {
		t.Fatal(err)
	}
	if keys, err := store.Keys(t.Context(), "default", 1); len(keys) != 0 || err != nil || !strings.Contains(text.String(), "sandyard key NAME") {
		t.Errorf("without a file there are keys %v, %v; the log: %s", keys, err, &text)
	}
	if null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0); err != nil || isTerminal(null) || isTerminal(screen) {
		t.Errorf("the null device or a file is taken for a terminal, %v", err)
	}
}

func emptyStore(t *testing.T) *models.Store {
	t.Helper()
	store, err := models.Open(t.Context(), testenv.Database(t), 4, models.Limits{Window: 64})
	if err == nil {
		err = store.Migrate(t.Context(), slog.New(slog.DiscardHandler))
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	return store
}
