package auth

import (
	"strings"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestPasswords(t *testing.T) {
	t.Parallel()
	one, err := HashPassword("TestPass123!")
	if err != nil {
		t.Fatal(err)
	}
	if two, _ := HashPassword("TestPass123!"); one == two || !strings.HasPrefix(one, "$argon2id$v=19$m=19456,t=2,p=1$") {
		t.Errorf("two hashes of one password: %s and %s", one, two)
	}
	for password, want := range map[string]bool{"TestPass123!": true, "TestPass123": false, "": false, strings.Repeat("x", MaxPassword+1): false} {
		if right, err := CheckPassword(one, password); right != want || err != nil {
			t.Errorf("%.20q: %v, %v", password, right, err)
		}
	}
	if right, err := CheckPassword("", "TestPass123!"); right || err != nil {
		t.Errorf("nobody's password: %v, %v", right, err)
	}
	for _, bad := range []string{"plain", "$argon2id$v=19$m=x,t=2,p=1$AA$AA", "$argon2id$v=16$m=19456,t=2,p=1$AA$AA", "$argon2i$v=19$m=19456,t=2,p=1$AA$AA"} {
		if right, err := CheckPassword(bad, "TestPass123!"); right || err == nil {
			t.Errorf("%s: %v, %v", bad, right, err)
		}
	}
	for _, password := range []string{"short", strings.Repeat("x", MaxPassword+1)} {
		if _, err := HashPassword(password); err == nil {
			t.Errorf("a password of %d bytes is taken", len(password))
		}
	}
}
