package egress

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"sandyard/guest/tunnel"
	"sandyard/netguard"
)

const (
	// logRate and logBurst bound what one sandbox makes the log say.
	logRate  = rate.Limit(0.1)
	logBurst = 10
	// maxDenials is how many different denials of a sandbox are kept between two reports; the others are only counted.
	maxDenials = 64
)

// box is a sandbox with its policy, its connections and its counts.
type box struct {
	sandbox string
	links   int // guarded by the server
	flow    *rate.Limiter
	loud    *rate.Limiter

	open, connections, denied, sent, received atomic.Int64

	mu    sync.Mutex
	rules *Rules // nil until it is asked for
	conns map[*connection]struct{}

	notes   sync.Mutex
	denials map[denialKey]*Denial
}

type denialKey struct{ target, reason string }

func newBox(sandbox string, c Config) *box {
	b := &box{
		sandbox: sandbox, loud: rate.NewLimiter(logRate, logBurst),
		conns: map[*connection]struct{}{}, denials: map[denialKey]*Denial{},
	}
	if c.BytesPerSecond > 0 {
		b.flow = rate.NewLimiter(rate.Limit(c.BytesPerSecond), max(c.BytesPerSecond, tunnel.Piece))
	}
	return b
}

// rulesNow returns the rules in force. While they are read for the first time nobody can change them.
func (b *box) rulesNow(ctx context.Context, read func(context.Context, string) (Policy, error)) (*Rules, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.rules != nil {
		return b.rules, nil
	}
	ctx, stop := context.WithTimeout(ctx, policyPatience)
	defer stop()
	p, err := read(ctx, b.sandbox)
	if err != nil {
		return nil, err
	}
	b.rules, err = p.Compile()
	return b.rules, err
}

func (b *box) apply(p Policy, g netguard.Rules) {
	rules, err := p.Compile()
	if err != nil {
		rules = &Rules{}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.rules = rules
	for c := range b.conns {
		if rules.allows(c, g) != nil {
			c.cut()
		}
	}
}

// allows decides over a connection that stands.
func (r *Rules) allows(c *connection, g netguard.Rules) error {
	named := false
	if c.target.name != "" {
		var err error
		if named, err = r.name(c.target); err != nil {
			return err
		}
	}
	return r.address(c.target, named, c.ip, g)
}

// admit takes a connection in, if the policy has not changed meanwhile.
func (b *box) admit(c *connection, g netguard.Rules) (*connection, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := b.rules.allows(c, g); err != nil {
		c.cut()
		return nil, err
	}
	c.active.Store(time.Now().UnixNano())
	b.conns[c] = struct{}{}
	return c, nil
}

// cutSilent cuts the connection over which nothing was said for longest.
func (b *box) cutSilent() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	var silent *connection
	for c := range b.conns {
		if silent == nil || c.active.Load() < silent.active.Load() {
			silent = c
		}
	}
	if silent == nil {
		return false
	}
	delete(b.conns, silent) // it is not there to be cut twice
	silent.cut()
	return true
}

func (b *box) remove(c *connection) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.conns, c)
}

// deny notes a refusal as a security event. Target is empty where it could not be read.
func (b *box) deny(log *slog.Logger, target string, why *refusal) {
	b.denied.Add(1)
	if b.loud.Allow() {
		log.Warn("connection of a sandbox denied", "sandbox_id", b.sandbox, "target", target, "reason", why.reason)
	}
	b.notes.Lock()
	defer b.notes.Unlock()
	b.note(Denial{Target: target, Reason: why.reason, Count: 1, First: time.Now(), Last: time.Now()})
}

// note adds to the denials. The caller holds the lock.
func (b *box) note(d Denial) {
	key := denialKey{d.Target, d.Reason}
	if known := b.denials[key]; known != nil {
		known.Count += d.Count
		known.First, known.Last = earlier(known.First, d.First), later(known.Last, d.Last)
	} else if len(b.denials) < maxDenials {
		b.denials[key] = &d
	}
}

func earlier(x, y time.Time) time.Time {
	if x.Before(y) {
		return x
	}
	return y
}

func later(x, y time.Time) time.Time {
	if x.After(y) {
		return x
	}
	return y
}
