package e2e_test

import (
	"strings"
	"testing"
	"time"

	"sandyard/dev/testenv"
)

// TestKeyIsMadeAndRevoked does with a key what an operator can, at the command line.
func TestKeyIsMadeAndRevoked(t *testing.T) {
	testenv.Long(t, "it takes many seconds")
	t.Parallel()
	r := newRig(t)
	said := r.operate("key", "second")
	_, key, ok := strings.Cut(strings.TrimSpace(said), "New API key, shown only once: ")
	if !ok {
		t.Fatalf("sandyard key says %q", said)
	}
	with := func() int { return r.call("GET", "/v1/sandboxes", nil, "Authorization", "Bearer "+key).status }
	if got := with(); got != 200 {
		t.Errorf("the new key is answered %d", got)
	}
	id := strings.Fields(said)[1]
	if list := r.operate("key"); !strings.Contains(list, id) || strings.Contains(list, key) {
		t.Errorf("sandyard key lists %q", list)
	}
	if said := r.operate("key", "--revoke", id); !strings.HasPrefix(said, "Revoked ") || strings.Contains(said, key) {
		t.Errorf("sandyard key --revoke says %q", said)
	}
	testenv.Eventually(t, "the revoked key is refused", func() bool { return with() == 401 })
	r.call("GET", "/v1/sandboxes", nil).want(t, 200)
}

// TestHelpDoesNothing asks each command for help where nothing is configured, and gives one too much.
func TestHelpDoesNothing(t *testing.T) {
	t.Parallel()
	for _, c := range [][]string{{"dev"}, {"migrate"}, {"key"}, {"node"}, {"node", "drain"}, {"version"}} {
		p := startProcess(t, "", nil, "sandyard", append(c, "--help")...)
		p.Await(time.Minute)
		if p.Err() != nil || p.Stderr.Tail() != "" || !strings.Contains(p.Stdout.String(), "sandyard "+c[0]) {
			t.Errorf("%v --help: %v, says %q and %q", c, p.Err(), p.Stdout.String(), p.Stderr.Tail())
		}
	}
	p := startProcess(t, "", nil, "sandyard", "migrate", "now")
	p.Await(time.Minute)
	if p.Err() == nil || !strings.Contains(p.Stderr.Tail(), "takes no arguments") {
		t.Errorf("migrate now: %v, %q", p.Err(), p.Stderr.Tail())
	}
}
