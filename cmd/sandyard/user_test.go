package main

import (
	"log/slog"
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
	refused("without spaces", "TestPass123!", "add", "a b", "--password-stdin")
	refused("one NAME", "TestPass123!", "add", "--password-stdin")
	refused("there is no user", "TestPass123!", "password", "nobody", "--password-stdin")
	refused("there is no user", "", "remove", "nobody")
	refused("unknown command", "", "rename", "a")
	if said := ok("", "list"); strings.Count(said, "\n") != 3 || !strings.Contains(said, "sandbox_test  member") || !strings.Contains(said, "boss          operator") {
		t.Errorf("list says\n%s", said)
	}
	ok("TestPass456!", "password", "sandbox_test", "--password-stdin")
	password("TestPass456!")
	ok("", "remove", "sandbox_test")
	if said := ok("", "list"); strings.Contains(said, "sandbox_test") {
		t.Errorf("after the removal\n%s", said)
	}
	ok("TestPass789!", "add", "sandbox_test", "--password-stdin") // the name is free
	password("TestPass789!")
}
