package main

import (
	"log/slog"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sandyard/auth"
	"sandyard/dev/testenv"
	"sandyard/models"
)

// TestUsers makes, lists and removes users on a database that no API has seen.
func TestUsers(t *testing.T) {
	dsn := testenv.Database(t)
	t.Chdir(t.TempDir())
	t.Setenv("DATABASE_URL", dsn)
	store, err := models.Open(t.Context(), dsn, 2, models.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	if err := store.Migrate(t.Context(), slog.New(slog.DiscardHandler)); err != nil {
		t.Fatal(err)
	}
	ok := func(input string, args ...string) string {
		t.Helper()
		said, err := run(t, input, append([]string{"user"}, args...)...)
		if err != nil {
			t.Errorf("%v: %v", args, err)
		}
		return said
	}
	refused := func(part, input string, args ...string) {
		t.Helper()
		if said, err := run(t, input, append([]string{"user"}, args...)...); err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("%v: %v %s, want %q", args, err, said, part)
		}
	}
	password := func(want string) {
		t.Helper()
		u, err := store.UserNamed(t.Context(), "sandbox_test")
		if err != nil {
			t.Fatal(err)
		}
		if right, err := auth.CheckPassword(u.PasswordHash, want); !right || err != nil {
			t.Errorf("%q is not the password: %v", want, err)
		}
	}
	if said := ok("TestPass123!\nsecond line\n", "add", "sandbox_test", "--password-stdin"); !strings.Contains(said, "(sandbox_test), role: member, tenant: default") {
		t.Errorf("add says %q", said)
	}
	password("TestPass123!")
	ok("another one", "add", "--role", "operator", "--password-stdin", "boss")
	refused("exists", "TestPass123!", "add", "sandbox_test", "--password-stdin")
	refused("standard input", "TestPass123!", "add", "other")
	refused("8 to 1024 bytes", "short\n", "add", "other", "--password-stdin")
	refused("unknown", "TestPass123!", "add", "other", "--password-stdin", "--role", "king")
	refused("say which role", "", "role", "boss") // and takes none away
	refused("without spaces", "TestPass123!", "add", "a b", "--password-stdin")
	refused("one NAME", "TestPass123!", "add", "--password-stdin")
	refused("the tenant has no user", "TestPass123!", "password", "nobody", "--password-stdin")
	refused("the tenant has no user", "", "remove", "nobody")
	refused("unknown command", "", "rename", "a")
	refused("no such tenant", "TestPass123!", "add", "other", "--password-stdin", "--tenant", "nowhere")
	if said := ok("", "list"); strings.Count(said, "\n") != 3 || !strings.Contains(said, "sandbox_test  member") || !strings.Contains(said, "boss          operator") {
		t.Errorf("list says\n%s", said)
	}
	ok("", "set", "--max-sandboxes", "2", "sandbox_test", "--max-cpus", "1.5")
	if said := ok("", "list"); !regexp.MustCompile(`(?m) sandbox_test +member +2 +none +1.5 +none `).MatchString(said) {
		t.Errorf("the limits of a user:\n%s", said)
	}
	refused("nothing to set", "", "set", "sandbox_test")
	refused("or none", "", "set", "sandbox_test", "--max-queued", "many")
	refused("the tenant has no user", "", "set", "nobody", "--max-queued", "1")
	if said, err := run(t, "", "key", "--user", "sandbox_test", "theirs"); err != nil || !strings.Contains(said, "(theirs)") {
		t.Errorf("a user's key: %v %s", err, said)
	}
	if _, err := run(t, "", "key", "--user", "nobody", "nobodys"); err == nil || !strings.Contains(err.Error(), "no user") {
		t.Errorf("nobody's key: %v", err)
	}
	ok("TestPass456!", "password", "sandbox_test", "--password-stdin")
	password("TestPass456!")
	ok("", "remove", "sandbox_test")
	if said := ok("", "list"); strings.Contains(said, "sandbox_test") {
		t.Errorf("after the removal\n%s", said)
	}
	if said, err := run(t, "", "key"); err != nil || !regexp.MustCompile(`(?m) theirs .* -  +20\S+Z$`).MatchString(said) {
		t.Errorf("the key of a user who was removed: %v\n%s", err, said)
	}
	ok("TestPass789!", "add", "sandbox_test", "--password-stdin") // the name is free
	password("TestPass789!")
}

// TestTenants: one command makes a second tenant that works, with limits of its own.
func TestTenants(t *testing.T) {
	dsn := testenv.Database(t)
	t.Chdir(t.TempDir())
	t.Setenv("DATABASE_URL", dsn)
	if _, err := run(t, "", "migrate"); err != nil {
		t.Fatal(err)
	}
	said, err := run(t, "", "tenant", "add", "acme", "--max-sandboxes", "7")
	made := regexp.MustCompile(`^Tenant acme\nFirst API key, scopes: sandboxes, admin; shown only once: (sy_\w+)\n$`).FindStringSubmatch(said)
	if err != nil || made == nil {
		t.Fatalf("tenant add: %q, %v", said, err)
	}
	store, err := models.Open(t.Context(), dsn, 2, models.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	for _, spelling := range []string{made[1], models.E2BSpelling(made[1])} {
		if k, err := store.Authenticate(t.Context(), spelling); err != nil || k.TenantID != "acme" {
			t.Errorf("%.7s…: %v, %v", spelling, k.TenantID, err)
		}
	}
	both, err := store.ValidKeys(t.Context(), []string{made[1], models.E2BSpelling(made[1]), "sy_x"})
	if err != nil || len(both) != 2 {
		t.Errorf("%d spellings are valid: %v", len(both), err)
	}
	if _, err := run(t, "", "tenant", "set", "acme", "--max-queued", "9", "--max-cpus", "2.5", "--max-memory-mib", "4096"); err != nil {
		t.Error(err)
	}
	list, err := run(t, "", "tenant", "list")
	if err != nil || !regexp.MustCompile(`(?m)^acme +0 +7 +9 +2.5 +4096 `).MatchString(list) || !regexp.MustCompile(`(?m)^default +0 +100 +10000 +none +none `).MatchString(list) {
		t.Errorf("tenant list: %v\n%s", err, list)
	}
	for given, want := range map[string][]string{"e2b,docker": {"e2b", "docker"}, "none": nil} {
		_, err := run(t, "", "tenant", "set", "acme", "--providers", given)
		if names, failed := store.ProvidersOf(t.Context(), "acme"); err != nil || failed != nil || !slices.Equal(names, want) {
			t.Errorf("providers %s: %v, %v, %v", given, names, err, failed)
		}
		if list, err := run(t, "", "tenant", "list"); err != nil || !regexp.MustCompile(`(?m)^acme .* `+given+` +none +\S+$`).MatchString(list) {
			t.Errorf("tenant list: %v\n%s", err, list)
		}
	}
	if _, err := store.PutSecret(t.Context(), "acme", "E2B_KEY", []byte("sealed")); err != nil {
		t.Fatal(err)
	}
	for _, change := range [][2]string{{"e2b=E2B_KEY", "e2b=E2B_KEY"}, {"e2b=", "none"}} {
		_, err := run(t, "", "tenant", "set", "acme", "--provider-key", change[0])
		if list, failed := run(t, "", "tenant", "list"); err != nil || failed != nil || !regexp.MustCompile(`(?m)^acme .* `+change[1]+` +\S+$`).MatchString(list) {
			t.Errorf("provider key %s: %v, %v\n%s", change[0], err, failed, list)
		}
	}
	if said, err := run(t, "", "key", "--tenant", "acme", "ci"); err != nil || !strings.Contains(said, "(ci)") {
		t.Errorf("key --tenant: %q, %v", said, err)
	}
	if list, _ := run(t, "", "key"); strings.Contains(list, "ci") {
		t.Errorf("another tenant's key is listed:\n%s", list)
	}
	if said, err := run(t, models.E2BSpelling(made[1]), "key", "--tenant", "acme", "--revoke"); err != nil || !strings.Contains(said, "Revoked") {
		t.Errorf("revoke by the other spelling: %q, %v", said, err)
	}
	for part, args := range map[string][]string{
		"exists": {"add", "acme"}, "must have": {"add", "Acme Inc"}, "no tenant": {"set", "nobody", "--max-queued", "1"},
		"provider=NAME": {"set", "acme", "--provider-key", "docker=E2B_KEY"}, "no secret of the name": {"set", "acme", "--provider-key", "e2b=nothing"},
		"nothing to set": {"set", "acme"}, `has "nowhere"`: {"set", "acme", "--providers", "nowhere"}, "names e2b twice": {"set", "acme", "--providers", "e2b,e2b"},
		`has ""`: {"set", "acme", "--providers", ""}, "there is no tenant": {"set", "nobody", "--providers", "e2b"}, "at least 0": {"set", "acme", "--max-queued", "-1"}, "a number": {"set", "acme", "--max-cpus", "many"}, "or none": {"set", "acme", "--max-memory-mib", "1.5"},
		"one NAME": {"add"}, "unknown command": {"drop", "acme"},
	} {
		if _, err := run(t, "", append([]string{"tenant"}, args...)...); err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("tenant %v: %v, want %q", args, err, part)
		}
	}
	if _, err := run(t, "", "key", "--tenant", "nobody", "ci"); err == nil || !strings.Contains(err.Error(), "no tenant") {
		t.Errorf("a key of nobody: %v", err)
	}
}
