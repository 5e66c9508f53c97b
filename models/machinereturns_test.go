package models_test

import (
	"errors"

	"sandyard/models"
)

// left says whether an attempt that is over may have started the job's program.
func (j *modelJob) left() bool { return j.Kind == "exec" && j.Attempt > 0 }

// requeue gives a job back, after a failure or without one.
func (m *machine) requeue(j *modelJob, failed bool) error {
	err := m.s.Requeue(m.t.Context(), models.Return{Held: models.Held{ID: j.ID, Attempt: j.Attempt}, Reason: "why", Failed: failed})
	if j.State != models.Running || j.asked && !j.left() {
		return wantStale(err)
	}
	j.State, j.ready, j.expired = models.Queued, true, false
	if !failed {
		j.Handovers++
	}
	return errors.Join(err, m.dispatch())
}

// park gives a job back until its sandbox goes on.
func (m *machine) park(b *modelBox, j *modelJob) error {
	err := m.s.Park(m.t.Context(), models.Return{Held: models.Held{ID: j.ID, Attempt: j.Attempt}, Reason: "why"}, b.id)
	if j.State != models.Running || j.asked && !j.left() {
		return wantStale(err)
	}
	j.State, j.ready, j.expired = models.Queued, b.state != models.SandboxPaused, false
	j.Handovers++
	return errors.Join(err, m.dispatch())
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
	case j.asked && (!j.left() || b.closed() || j.Tries() >= 10):
		b.end(j, models.Cancelled)
	case j.Tries() >= 10 || b.ended && j.Kind != models.KindDelete:
		b.end(j, models.Lost)
	default:
		j.State, j.ready, j.expired = models.Queued, true, false
	}
	return err
}
