package guest

import (
	"net/http"
	"sync"
	"time"

	"sandyard/guest/protocol"
)

// claim is the state of a guest that was started before anybody wanted its sandbox. Nobody may ever come, and the
// worker that would have ended it may be dead: unclaimed, the guest lives only as long as it is spoken to.
type claim struct {
	patience  time.Duration
	abandoned chan struct{} // closed when the patience is at its end

	mu    sync.Mutex
	timer *time.Timer // nil once claimed
}

// newClaim makes the claim of a guest; with no patience it counts as claimed from its birth.
func newClaim(patience time.Duration) *claim {
	c := &claim{patience: patience, abandoned: make(chan struct{})}
	if patience > 0 {
		c.timer = time.AfterFunc(patience, func() { close(c.abandoned) })
	}
	return c
}

// take claims the sandbox and calls first unless that has happened before. It answers false when it comes too late.
func (c *claim) take(first func() error) (bool, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.timer == nil {
		return true, nil
	}
	if !c.timer.Stop() {
		return false, nil
	}
	if err := first(); err != nil {
		c.timer.Reset(c.patience)
		return true, err
	}
	c.timer = nil
	return true, nil
}

// extend gives an unclaimed guest its whole patience again.
func (c *claim) extend() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.timer != nil && c.timer.Stop() {
		c.timer.Reset(c.patience)
	}
}

// watch makes every request extend the patience.
func (c *claim) watch(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c.extend()
		next.ServeHTTP(w, r)
	})
}

// claimSandbox gives the sandbox its owner's environment, once: a repeated call changes nothing and succeeds.
func (g *Guest) claimSandbox(w http.ResponseWriter, r *http.Request) (any, error) {
	in, err := body[protocol.Claim](w, r)
	if err != nil {
		return nil, err
	}
	inTime, err := g.claim.take(func() error { return g.execs.AddEnv(in.Env) })
	if err == nil && !inTime {
		err = protocol.Errorf(protocol.ReasonBusy, "the sandbox has waited too long and is ending")
	}
	return nil, err
}
