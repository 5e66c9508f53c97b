package models

import (
	"errors"
	"fmt"
	"time"
)

// What a query answers when the row does not allow it.
var (
	ErrNotFound = errors.New("not found")
	// ErrStale says that somebody else owns the job by now: its attempt moved on, or it ended.
	ErrStale = errors.New("the job moved on")
	// ErrNotTerminal says that a job has not ended yet.
	ErrNotTerminal = errors.New("the job has not ended")
	// ErrNotDue says that the condition of a guarded submission does not hold (any more).
	ErrNotDue = errors.New("not due")
	// ErrKeyReused says that an idempotency key came with another request before.
	ErrKeyReused = errors.New("this Idempotency-Key was used with a different request")
	// ErrRevoked says that an API key is not valid any more.
	ErrRevoked = errors.New("the key was revoked")
)

// EndedError says that a sandbox takes no work any more.
type EndedError struct {
	Sandbox string
	State   SandboxState
	Reason  string
	EndedAt *time.Time
}

func (e *EndedError) Error() string {
	return fmt.Sprintf("sandbox %s is %s (%s)", e.Sandbox, e.State, e.Reason)
}

// LimitError says which limit a tenant met.
type LimitError struct {
	Limit string // its name, such as max_sandboxes
	Used  int
	Max   int
}

func (e *LimitError) Error() string {
	return fmt.Sprintf("limit %s reached: %d of %d in use", e.Limit, e.Used, e.Max)
}
