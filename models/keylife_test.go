package models_test

import (
	"errors"
	"testing"
	"time"

	"sandyard/dev/testdb"
	"sandyard/dev/testenv"
	"sandyard/models"
)

// TestKeysEnd: a key that has expired is refused in each way that asks for it, in both spellings, and its use is written
// down once a minute at most.
func TestKeysEnd(t *testing.T) {
	t.Parallel()
	s, err := models.Open(t.Context(), testdb.New(t), 4, models.Limits{Window: 64})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if err := s.BootstrapWith(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	made := map[string]string{}
	for name, life := range map[string]time.Duration{"short": time.Millisecond, "long": time.Hour, "endless": 0} {
		if made[name], err = s.MakeKey(t.Context(), "default", models.NewKey{Name: name, Scopes: []string{models.ScopeSandboxes}, Life: life}); err != nil {
			t.Fatal(err)
		}
	}
	testenv.Eventually(t, "the end of the short key", func() bool {
		_, err := s.Authenticate(t.Context(), made["short"])
		return errors.Is(err, models.ErrNotFound)
	})
	valid, err := s.ValidKeys(t.Context(), []string{made["short"], models.E2BSpelling(made["short"]), made["long"], made["endless"]})
	if err != nil || len(valid) != 2 {
		t.Errorf("%d keys are valid, want 2: %v", len(valid), err)
	}
	list, err := s.Keys(t.Context(), "default", 10)
	if err != nil || len(list) != 3 {
		t.Fatalf("%d keys are listed: %v", len(list), err)
	}
	for _, k := range list {
		ended, err := s.RevokedKeys(t.Context(), []string{k.ID})
		if err != nil || (len(ended) == 1) != (k.Name == "short") || (k.ExpiresAt == nil) != (k.Name == "endless") || k.LastUsedAt != nil {
			t.Errorf("%s: ended %v, expires %v, used %v, %v", k.Name, ended, k.ExpiresAt, k.LastUsedAt, err)
		}
	}
	used := func() time.Time {
		if err := s.KeysUsed(t.Context(), []string{list[0].ID}); err != nil {
			t.Fatal(err)
		}
		again, err := s.Keys(t.Context(), "default", 10)
		if err != nil || again[0].LastUsedAt == nil || again[1].LastUsedAt != nil {
			t.Fatalf("after a use: %v, %v", again, err)
		}
		return *again[0].LastUsedAt
	}
	if first := used(); !used().Equal(first) {
		t.Error("a second use in the same minute was written down")
	}
}
