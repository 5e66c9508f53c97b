package e2e_test

import (
	"strings"
	"testing"
	"time"
)

// TestKeyIsMadeAndRevoked does with a key what an operator can, at the command line.
func TestKeyIsMadeAndRevoked(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	said := r.operate("key", "second")
	_, key, ok := strings.Cut(strings.TrimSpace(said), "New API key, shown only now: ")
	if !ok {
		t.Fatalf("sandyard key says %q", said)
	}
	with := func() int { return r.call("GET", "/v1/sandboxes", nil, "Authorization", "Bearer "+key).status }
	if got := with(); got != 200 {
		t.Errorf("the new key is answered %d", got)
	}
	if said := r.operate("key", "--revoke", key); !strings.HasPrefix(said, "Revoked ") || strings.Contains(said, key) {
		t.Errorf("sandyard key --revoke says %q", said)
	}
	eventually(t, time.Minute, "the revoked key is refused", func() bool { return with() == 401 })
	r.call("GET", "/v1/sandboxes", nil).want(t, 200)
	r.operate("key", "--help")
}
