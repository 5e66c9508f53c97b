package models_test

import (
	"errors"
	"fmt"
	"slices"

	"sandyard/models"
)

// left says whether an attempt that is over may have started the job's program.
func (j *modelJob) left() bool { return j.Kind == "exec" && j.Begun }

// requeue gives a job back, after a failure or without one.
func (m *machine) requeue(j *modelJob, failed, begun bool) error {
	r := models.Requeue{AttemptRef: models.AttemptRef{ID: j.ID, Attempt: j.Attempt}, Reason: "why", Failed: failed, Begun: begun}
	if err := m.s.Requeue(m.t.Context(), r); err != nil || !j.returns() {
		return wantStale(err)
	}
	j.State, j.ready, j.expired, j.Begun = models.Queued, true, false, j.Begun || begun
	if !failed {
		j.Handovers++
	}
	return m.dispatch()
}

// returns says whether the job may be given back.
func (j *modelJob) returns() bool { return j.State == models.Running && (!j.asked || j.Kind == "exec") }

// park gives a job back until its sandbox goes on.
func (m *machine) park(b *modelBox, j *modelJob) error {
	if j.Kind != "exec" {
		return nil
	}
	late, err := m.s.Park(m.t.Context(), models.Requeue{AttemptRef: models.AttemptRef{ID: j.ID, Attempt: j.Attempt}, Reason: "why", Begun: true}, b.id)
	if err != nil || !j.returns() {
		return wantStale(err)
	}
	j.State, j.ready, j.expired, j.Begun = models.Queued, b.state != models.SandboxPaused, false, true
	j.Handovers++
	if want := !j.ready && b.pausedBefore(j); late != want {
		return fmt.Errorf("the job came after the pause: %v, want %v", late, want)
	}
	return m.dispatch()
}

// pausedBefore says whether the job came after the one that has paused the sandbox.
func (b *modelBox) pausedBefore(j *modelJob) bool {
	return b.pausedBy != nil && slices.Index(b.jobs, b.pausedBy) < slices.Index(b.jobs, j)
}

// letPast makes ready what goes past what is frozen.
func (b *modelBox) letPast() {
	resumes := slices.ContainsFunc(b.jobs, func(j *modelJob) bool { return j.Kind == models.KindResume && !j.State.Terminal() })
	for _, j := range b.jobs {
		j.ready = j.ready || j.Kind == models.KindResume || j.Kind == models.KindDelete && !resumes
	}
}

// freeze pauses a running sandbox, past all that waits there, and parks a job.
func (m *machine) freeze(b *modelBox, j *modelJob) error {
	if b.state != models.SandboxRunning || b.desired == models.DesiredDeleted {
		return nil
	}
	if err := m.submit(b, models.Submission{}, m.job(models.KindPause, b, true)); err != nil {
		return err
	}
	pause := b.jobs[len(b.jobs)-1]
	if err := m.claim(b, pause, step{job: 1}); err != nil {
		return err
	}
	return errors.Join(m.finish(b, pause, pause.claimed.Attempt, models.Succeeded), m.park(b, j))
}

func (m *machine) cancel(b *modelBox, j *modelJob) error {
	_, _, err := m.s.Cancel(m.t.Context(), m.tenant, j.ID, "test")
	switch {
	case j.State == models.Running, j.State == models.Queued && j.left():
		j.asked = true
	case j.State == models.Queued:
		b.end(j, models.Cancelled)
	}
	return err
}

func (m *machine) recover(b *modelBox, j *modelJob) error {
	_, err := m.s.Recover(m.t.Context(), models.Job{ID: j.ID, SandboxID: b.id, Kind: j.Kind, Attempt: j.Attempt})
	switch {
	case err != nil || j.State != models.Running || !j.expired:
	case j.asked && (j.Kind != "exec" || b.closed() || j.Tries() >= 10):
		b.end(j, models.Cancelled)
	case j.Tries() >= 10 || b.ended && j.Kind != models.KindDelete:
		b.end(j, models.Lost)
	default:
		j.State, j.ready, j.expired, j.Begun = models.Queued, true, false, true
	}
	return err
}
