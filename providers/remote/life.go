package remote

import (
	"context"
	"errors"
	"net/http"
	"time"

	"sandyard/providers"
)

// Phase is what a vendor's state of a sandbox means to us.
type Phase int

// The phases.
const (
	PhaseOdd     Phase = iota // no state of the vendor's
	PhaseMaking               // it will run
	PhaseRuns                 //
	PhaseStops                // it will stand still
	PhaseStopped              //
	PhaseFailed               // it will do nothing any more
	PhaseGone                 //
)

// Described is what a vendor says of a sandbox.
type Described interface {
	Backend() string // the vendor's id
	Phase() Phase
}

// Life follows sandboxes of a vendor whose states change by themselves.
type Life[D Described] struct {
	Vendor string
	// Get describes a sandbox by the vendor's id. Error: NotFound for one that is gone.
	Get    func(ctx context.Context, backend string) (D, error)
	Failed func(D) error // why one is in PhaseFailed
	Calls  *Calls        // those under way in sandboxes
}

func (l Life[D]) changing() error {
	return providers.Busy.Errorf("the sandbox's state is changing at %s", l.Vendor)
}

// Standing says why a sandbox does not run; nil = it does.
func (l Life[D]) Standing(d D) error {
	switch d.Phase() {
	case PhaseRuns:
		return nil
	case PhaseStops, PhaseStopped:
		return providers.ErrPaused
	case PhaseMaking:
		return l.changing()
	}
	return &providers.Error{Class: providers.Lost, Message: providers.ErrLost.Message, Err: l.Failed(d)}
}

// Settled waits until a sandbox is in a state that lasts.
func (l Life[D]) Settled(ctx context.Context, d D) (D, error) {
	for wait := 100 * time.Millisecond; ; wait = min(2*wait, 2*time.Second) {
		if now := d.Phase(); now != PhaseMaking && now != PhaseStops {
			return d, nil
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return d, GivenUp(ctx)
		}
		next, err := l.Get(ctx, d.Backend())
		if err != nil {
			return d, err
		}
		d = next
	}
}

// Reached waits for the state that a call was to bring about, which has ended with err and which a concurrent one may
// have done before. A sandbox that stands still ends the calls in it.
func (l Life[D]) Reached(ctx context.Context, d D, want Phase, err error) error {
	if err != nil && !IsClass(err, providers.Busy) {
		return err
	}
	if want == PhaseStopped && err == nil {
		l.Calls.Cut(d.Backend(), providers.ErrPaused)
	}
	now, getErr := l.Get(ctx, d.Backend())
	if getErr == nil {
		now, getErr = l.Settled(ctx, now)
	}
	switch {
	case getErr != nil:
		return getErr
	case now.Phase() == want:
		if want == PhaseStopped {
			l.Calls.Cut(d.Backend(), providers.ErrPaused)
		}
		return nil
	case now.Phase() == PhaseFailed:
		return l.Standing(now)
	case err != nil:
		return err
	}
	return providers.Busy.Errorf("the sandbox's state was changed at %s meanwhile", l.Vendor)
}

// Broken explains why a call in a sandbox did not reach its end. What cut it knows more than the transport; refused
// says what a refusal means by itself, or nil; of a sandbox that does not answer the API says how it stands. Gone is
// called where it is none any more.
func (l Life[D]) Broken(
	ctx context.Context, backend string, err error, refused func(*Refusal) error, gone func(),
) error {
	if ctx.Err() != nil {
		return GivenUp(ctx)
	}
	if own, ok := errors.AsType[*providers.Error](err); ok {
		return own
	}
	r, isRefusal := errors.AsType[*Refusal](err)
	if isRefusal {
		if e := refused(r); e != nil {
			return e
		}
	}
	d, getErr := l.Get(ctx, backend)
	switch {
	case ctx.Err() != nil:
		return GivenUp(ctx)
	case errors.Is(getErr, providers.ErrNotFound):
		gone()
		return &providers.Error{Class: providers.Lost, Message: providers.ErrLost.Message, Err: Quiet(err)}
	case getErr != nil:
		return Unavailable("the sandbox does not answer, nor does "+l.Vendor+" say how it stands", Quiet(err))
	}
	if why := l.Standing(d); why != nil {
		return why
	}
	e := Unavailable("the connection to the sandbox broke, or "+l.Vendor+" failed", Quiet(err))
	if isRefusal {
		switch r.Status {
		case http.StatusConflict:
			return l.changing()
		case http.StatusBadRequest, http.StatusUnprocessableEntity:
			return &providers.Error{Class: providers.Invalid, Message: "the sandbox does not accept the call", Err: r}
		}
		e.RetryAfter = r.RetryAfter
	}
	return e
}
