package vault_test

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"sandyard/vault"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func open(t *testing.T, keys ...string) *vault.Vault {
	t.Helper()
	v, err := vault.New(strings.Join(keys, "\n"))
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func TestVault(t *testing.T) {
	t.Parallel()
	first, second := vault.NewKey(), vault.NewKey()
	v := open(t, first)
	sealed, err := v.Seal("a", "bc", "s3cret")
	if err != nil || bytes.Contains(sealed, []byte("s3cret")) {
		t.Fatalf("sealed: %x, %v", sealed, err)
	}
	if again, _ := v.Seal("a", "bc", "s3cret"); bytes.Equal(sealed, again) {
		t.Error("the same value is sealed to the same bytes")
	}
	changed := bytes.Clone(sealed)
	changed[len(changed)-1] ^= 1
	for name, c := range map[string]struct {
		by          *vault.Vault
		owner, name string
		sealed      []byte
		want        error
	}{
		"itself":              {v, "a", "bc", sealed, nil},
		"after a rotation":    {open(t, second, first), "a", "bc", sealed, nil},
		"another tenant":      {v, "x", "bc", sealed, vault.ErrDamaged},
		"another name":        {v, "a", "x", sealed, vault.ErrDamaged},
		"a shifted border":    {v, "ab", "c", sealed, vault.ErrDamaged},
		"another key":         {open(t, second), "a", "bc", sealed, vault.ErrOtherKey},
		"changed":             {v, "a", "bc", changed, vault.ErrDamaged},
		"cut":                 {v, "a", "bc", sealed[:12], vault.ErrDamaged},
		"nothing":             {v, "a", "bc", nil, vault.ErrDamaged},
		"another version":     {v, "a", "bc", append([]byte{9}, sealed[1:]...), vault.ErrDamaged},
		"no key":              {open(t), "a", "bc", sealed, vault.ErrNoKey},
		"no key but a comma ": {open(t, " , \n"), "a", "bc", sealed, vault.ErrNoKey},
	} {
		value, err := c.by.Open(c.owner, c.name, c.sealed)
		if !errors.Is(err, c.want) || (err == nil) != (value == "s3cret") {
			t.Errorf("%s: %q, %v", name, value, err)
		}
	}
	if _, err := open(t).Seal("a", "b", "c"); !errors.Is(err, vault.ErrNoKey) {
		t.Errorf("sealed without a key: %v", err)
	}
	for _, bad := range []string{"x", first[:20], first + "," + "AAAA"} {
		if _, err := vault.New(bad); err == nil || strings.Contains(err.Error(), first) {
			t.Errorf("%q: %v", bad, err)
		}
	}
}
