package models

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
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
	// ErrKeyName says that an API key cannot be called so.
	ErrKeyName = errors.New("the name of a key must have 1 to 100 printable characters")
	// ErrKeyNamed says that another valid API key of the tenant has that name.
	ErrKeyNamed = errors.New("a valid key with this name exists; revoke it first or choose another name")
	// ErrTooMuch says that a question takes PostgreSQL longer than it may.
	ErrTooMuch = errors.New("the query takes too long")
	// ErrRevoked says that an API key is not valid any more.
	ErrRevoked = errors.New("the key was revoked")
)

// EndedError says that a sandbox takes no work any more.
type EndedError struct {
	Sandbox string
	State   SandboxState
	Reason  string
	EndedAt *time.Time
	// ReplacedBy is the sandbox that has taken its place, if any.
	ReplacedBy string
}

func (e *EndedError) Error() string {
	text := fmt.Sprintf("sandbox %s is %s (%s)", e.Sandbox, e.State, e.Reason)
	if e.ReplacedBy != "" {
		text += "; sandbox " + e.ReplacedBy + " replaces it"
	}
	return text
}

// LimitError says which limit a tenant or a user met.
type LimitError struct {
	Limit string // its name, such as max_sandboxes
	Used  float64
	Max   float64
	Asked float64 // what the request asks for; 0 = one more
	// Of a rate: how much may come a second, after Max at once, and when the next may.
	PerSecond  float64
	RetryAfter time.Duration
}

func (e *LimitError) Error() string {
	return "limit " + e.Limit + " reached: " + e.Numbers()
}

// Stands says whether the limit is one of what stands, so that only the end of a sandbox makes room.
func (e *LimitError) Stands() bool {
	return slices.Contains([]string{"max_sandboxes", "max_cpus", "max_memory_mib"}, strings.TrimPrefix(e.Limit, userLimit))
}

// Numbers says how much is in use.
func (e *LimitError) Numbers() string {
	if e.PerSecond > 0 {
		return "at most " + decimal(e.Max) + " at once and " + decimal(e.PerSecond) + " a second"
	}
	text := decimal(e.Used) + " of " + decimal(e.Max) + " in use"
	if e.Asked > 0 {
		text += ", and the request asks for " + decimal(e.Asked)
	}
	return text
}

func decimal(v float64) string { return strconv.FormatFloat(v, 'f', -1, 64) }
