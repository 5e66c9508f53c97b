package kind

import (
	"cmp"
	"time"

	"sandyard/models"
)

// SchedulerActor is who does what time calls for.
const SchedulerActor = "scheduler"

// Budgets of jobs that change a sandbox, apart from any time they wait in the queue.
const (
	createTimeout = 2 * time.Minute
	DeleteTimeout = time.Minute
	fileTimeout   = time.Minute
	launchTimeout = time.Minute
)

// Create makes the sandbox that its row describes.
type Create struct {
	// ReadySeconds is how long its template's programs may take to be ready.
	ReadySeconds float64 `json:"ready_seconds,omitempty"`
}

// Kind implements Args.
func (*Create) Kind() string { return models.KindCreate }

// Validate implements Args.
func (*Create) Validate() error { return nil }

func (c *Create) budget() (time.Duration, error) {
	return createTimeout + time.Duration(c.ReadySeconds*float64(time.Second)), nil
}

// Delete removes the sandbox with everything in it.
type Delete struct {
	Reason string `json:"reason,omitempty" doc:"Stored as the sandbox's end_reason"`
}

// Kind implements Args.
func (*Delete) Kind() string { return models.KindDelete }

// Validate implements Args.
func (d *Delete) Validate() error { return NoNUL("reason", d.Reason) }

// EndReason is the sandbox's end_reason.
func (d *Delete) EndReason() string { return cmp.Or(d.Reason, "deleted") }

// Pause freezes the sandbox with its memory.
type Pause struct {
	Reason string `json:"reason,omitempty" doc:"Stored in the sandbox's events"`
}

// Kind implements Args.
func (*Pause) Kind() string { return models.KindPause }

// Validate implements Args.
func (p *Pause) Validate() error { return NoNUL("reason", p.Reason) }

// Resume thaws a paused sandbox; its timeout starts anew.
type Resume struct {
	TimeoutSeconds float64 `json:"timeout_seconds,omitempty" doc:"The timeout after the resume, at most 86400; of several concurrent resumes the longest counts. Absent: the previous timeout"`
}

// Kind implements Args.
func (*Resume) Kind() string { return models.KindResume }

// Validate implements Args.
func (r *Resume) Validate() error {
	_, err := r.Duration()
	return err
}

// Duration is the new timeout; 0 = the previous one.
func (r *Resume) Duration() (time.Duration, error) {
	return Seconds("timeout_seconds", r.TimeoutSeconds, 0, time.Second)
}

// SetTimeout moves the time at which the sandbox ends, counted from the request. The new time holds from the moment the
// job is accepted; the job's end only confirms it.
type SetTimeout struct {
	TimeoutSeconds float64 `json:"timeout_seconds" doc:"From now on; at most 86400"`
	OnlyLater      bool    `json:"only_later,omitempty" doc:"Never shorten the current timeout, so that concurrent requests cannot take time from each other"`
}

// SetTimeoutResult says when the sandbox ends now.
type SetTimeoutResult struct {
	ExpiresAt time.Time `json:"expires_at"`
}

// Kind implements Args.
func (*SetTimeout) Kind() string { return "timeout" }

// Validate implements Args.
func (s *SetTimeout) Validate() error {
	if s.TimeoutSeconds == 0 {
		return Invalid("timeout_seconds", "is missing")
	}
	_, err := s.Duration()
	return err
}

// Duration is the new timeout.
func (s *SetTimeout) Duration() (time.Duration, error) {
	return Seconds("timeout_seconds", s.TimeoutSeconds, 0, time.Second)
}
