package fake

import (
	"context"
	"strconv"
	"strings"
	"time"

	"sandyard/providers"
)

// Op names an operation a Fault can strike.
type Op string

// The operations.
const (
	OpCreate Op = "create"
	OpOpen   Op = "open"
	OpDelete Op = "delete"
	OpPause  Op = "pause"
	OpResume Op = "resume"
	OpList   Op = "list"
	OpRun    Op = "run"
	OpKill   Op = "kill"
	OpForget Op = "forget"
	OpFile   Op = "file"
	// OpNetwork is SetNetwork.
	OpNetwork Op = "network"
	// OpPort is DialPort.
	OpPort Op = "port"
)

// Fault is something that goes wrong in the next Times calls of one operation.
type Fault struct {
	Op      Op
	Sandbox string // empty = any
	Times   int    // 0 = 1
	// After lets the operation take effect first: the answer is what gets lost.
	After bool
	Delay time.Duration
	// Hang gives no answer until the caller gives up, or for Delay, where that is not 0.
	Hang bool
	// Err is the answer; nil = the operation goes on after the delay.
	Err error
}

// Inject sets a fault. Several for one operation strike in the order they were set.
func (s *State) Inject(f Fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if f.Times == 0 {
		f.Times = 1
	}
	s.faults = append(s.faults, &f)
}

// OnCall makes decide say of every call whether a fault strikes it, before those that Inject has set. It must not ask the
// State.
func (s *State) OnCall(decide func(op Op, sandboxID string) (Fault, bool)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.onCall = decide
}

func (s *State) takeFault(op Op, id string) (Fault, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls[op]++
	if s.onCall != nil {
		if f, ok := s.onCall(op, id); ok {
			return f, true
		}
	}
	for _, f := range s.faults {
		if f.Op == op && f.Times > 0 && (f.Sandbox == "" || f.Sandbox == id) {
			f.Times--
			return *f, true
		}
	}
	return Fault{}, false
}

func (p *Provider) suffer(ctx context.Context, f Fault) error {
	if f.Hang {
		return p.hang(ctx, f.Delay)
	}
	timer := time.NewTimer(f.Delay)
	defer timer.Stop()
	select {
	case <-timer.C:
		return f.Err
	case <-ctx.Done():
		return detached(ctx.Err())
	}
}

func (p *Provider) hang(ctx context.Context, limit time.Duration) error {
	var end <-chan time.Time
	if limit > 0 {
		timer := time.NewTimer(limit)
		defer timer.Stop()
		end = timer.C
	}
	select {
	case <-end:
		return providers.Unavailable.Errorf("no answer within %v", limit)
	case <-ctx.Done():
		return detached(ctx.Err())
	case <-p.closed:
		return p.usable(ctx)
	}
}

// scriptCreate sets the faults that a sandbox's image tells, once per sandbox:
//
//	fake:busy N         the first N creates answer sandbox_busy
//	fake:unavailable N  the first N creates answer provider_unavailable and make nothing
//	fake:lost-answer N  the first N creates make the sandbox and answer provider_unavailable
//	fake:capacity N     the first N creates answer no_capacity
//	fake:rate-limited D the first create answers rate_limited and asks to be left alone for D
//	fake:invalid        every create answers invalid_argument
//	fake:hang N         the first N creates never answer
//	fake:slow D         the first create takes D
func (s *State) scriptCreate(id, image string) error {
	script, ok := strings.CutPrefix(image, "fake:")
	if !ok {
		return nil
	}
	s.mu.Lock()
	seen := s.scripted[id]
	s.scripted[id] = true
	s.mu.Unlock()
	if seen {
		return nil
	}
	for _, statement := range strings.Split(script, ";") {
		statement = strings.ReplaceAll(statement, "_", " ") // names of images hold no blanks
		verb, arg, _ := strings.Cut(strings.TrimPrefix(strings.TrimSpace(statement), "fake:"), " ")
		f, err := createFault(verb, arg)
		if err != nil {
			return err
		}
		f.Op, f.Sandbox = OpCreate, id
		s.Inject(f)
	}
	return nil
}

func createFault(verb, arg string) (Fault, error) {
	n, err := strconv.Atoi(arg)
	if err != nil {
		n = 1
	}
	switch verb {
	case "busy":
		return Fault{Times: n, Err: providers.Busy.Errorf("scripted: busy")}, nil
	case "unavailable":
		return Fault{Times: n, Err: providers.Unavailable.Errorf("scripted: unavailable")}, nil
	case "lost-answer":
		return Fault{Times: n, After: true, Err: providers.Unavailable.Errorf("scripted: the answer was lost")}, nil
	case "capacity":
		return Fault{Times: n, Err: providers.Capacity.Errorf("scripted: no capacity")}, nil
	case "rate-limited":
		d, err := time.ParseDuration(arg)
		if err != nil {
			return Fault{}, providers.Invalid.Errorf("image script: %w", err)
		}
		return Fault{Err: &providers.Error{Class: providers.RateLimited, Message: "scripted: too many calls", RetryAfter: d}}, nil
	case "invalid":
		return Fault{Times: 1 << 30, Err: providers.Invalid.Errorf("scripted: invalid")}, nil
	case "hang":
		return Fault{Times: n, Hang: true}, nil
	case "slow":
		d, err := time.ParseDuration(arg)
		if err != nil {
			return Fault{}, providers.Invalid.Errorf("image script: %w", err)
		}
		return Fault{Delay: d}, nil
	default:
		return Fault{}, providers.ImageMissing.Errorf("no image %q: unknown script", "fake:"+verb)
	}
}
