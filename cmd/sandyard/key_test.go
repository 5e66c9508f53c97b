package main

import (
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"sandyard/dev/testenv"
	"sandyard/models"
)

// run does a command with that text as standard input, in a directory of its own, and returns what it prints.
func run(t *testing.T, input string, args ...string) (string, error) {
	t.Helper()
	screen, err := os.CreateTemp(t.TempDir(), "screen")
	if err != nil {
		t.Fatal(err)
	}
	typed := filepath.Join(t.TempDir(), "typed")
	if err := os.WriteFile(typed, []byte(input), 0o600); err != nil {
		t.Fatal(err)
	}
	in, err := os.Open(typed)
	if err != nil {
		t.Fatal(err)
	}
	stdout, stdin := os.Stdout, os.Stdin
	os.Stdout, os.Stdin = screen, in
	defer func() { os.Stdout, os.Stdin = stdout, stdin }()
	c := root()
	c.SetArgs(args)
	err = c.ExecuteContext(t.Context())
	said, readErr := os.ReadFile(screen.Name())
	return string(said), errors.Join(err, readErr, screen.Close(), in.Close())
}

// TestKeys makes, lists and revokes keys on a database that no API has seen, which sandyard dev has told of.
func TestKeys(t *testing.T) {
	dsn := testenv.Database(t)
	t.Chdir(t.TempDir())
	t.Setenv("DATABASE_URL", "")
	if _, err := run(t, "", "key"); err == nil || !strings.Contains(err.Error(), "DATABASE_URL is missing") {
		t.Fatalf("without a database: %v", err)
	}
	if err := errors.Join(os.Mkdir(devDir, 0o700), os.WriteFile(filepath.Join(devDir, databaseFile), []byte(dsn+"\n"), 0o600)); err != nil {
		t.Fatal(err)
	}
	if _, err := run(t, "", "key", "ci"); err == nil || !strings.Contains(err.Error(), "sandyard migrate") {
		t.Fatalf("without tables: %v", err)
	}
	if _, err := run(t, "", "migrate"); err != nil {
		t.Fatal(err)
	}
	said, err := run(t, "", "key", "ci", "sandboxes", "operator")
	made := regexp.MustCompile(`^Key (key_\w+) \(ci\), scopes: sandboxes, operator\nNew API key, shown only once: (sy_\w+)\n$`).FindStringSubmatch(said)
	if err != nil || made == nil {
		t.Fatalf("key ci: %q, %v", said, err)
	}
	if _, err := run(t, "", "key", "ci"); !errors.Is(err, models.ErrKeyNamed) {
		t.Errorf("a second key of that name: %v", err)
	}
	for _, name := range []string{"", strings.Repeat("x", models.MaxKeyName+1), "a\nb"} {
		if _, err := run(t, "", "key", name); !errors.Is(err, models.ErrKeyName) {
			t.Errorf("the name %.20q: %v", name, err)
		}
	}
	second, err := run(t, "", "key", "--e2b", "other")
	if err != nil {
		t.Fatal(err)
	}
	if said, err := run(t, "", "key", "--expires", "1s", "short"); err != nil || !strings.Contains(said, "(short)") {
		t.Errorf("a key that expires: %q, %v", said, err)
	}
	list, err := run(t, "", "key")
	if err != nil || !strings.Contains(list, made[1]+"  ci ") || !strings.Contains(list, "other") || strings.Contains(list, made[2]) {
		t.Errorf("the list: %v\n%s", err, list)
	}

	if _, err := run(t, "", "key", "--revoke", made[2]); err == nil || strings.Contains(err.Error(), made[2]) {
		t.Errorf("a key on the command line: %v", err)
	}
	secret := second[strings.LastIndex(second, " ")+1:]
	if said, err := run(t, secret+"\n"+made[1], "key", "--revoke"); err != nil || strings.Count(said, "Revoked ") != 2 || strings.Contains(said, strings.TrimSpace(secret)) {
		t.Errorf("key --revoke: %q, %v", said, err)
	}
	if _, err := run(t, "", "key", "--revoke"); err == nil {
		t.Error("nothing was revoked without an error")
	}
	short := regexp.MustCompile(`(?m)^(key_\w+)  short .* +\d\S+Z  -$`).FindStringSubmatch(list)
	if short == nil {
		t.Fatalf("no expiry in the list:\n%s", list)
	}
	if _, err := run(t, "", "key", "--revoke", short[1]); err != nil {
		t.Error(err)
	}
	if list, _ = run(t, "", "key"); strings.Contains(list, " -\n") {
		t.Errorf("some are not revoked:\n%s", list)
	}
	if _, err := run(t, "", "key", "ci"); err != nil {
		t.Errorf("the name of a revoked key: %v", err)
	}
}
