package models_test

import (
	"fmt"
	"slices"
	"time"

	"sandyard/models"
)

// stopClocks takes the sandboxes of earlier machines out of the way.
func (m *machine) stopClocks() {
	_, err := m.look.Exec(m.t.Context(), `UPDATE sandboxes SET expires_at = now() + interval '1 year', idle_timeout_ms = 0, paused_timeout_ms = 0
		WHERE ended_at IS NULL`)
	if err != nil {
		m.t.Fatal(err)
	}
}

// compareClocks lets all clocks of the sandboxes run out, but the rest after a pause that has failed, and says where those
// that the store calls due differ from the model.
func (m *machine) compareClocks() error {
	_, err := m.look.Exec(m.t.Context(), `UPDATE sandboxes SET expires_at = 'epoch', last_active_at = 'epoch',
		paused_at = CASE WHEN paused_at IS NOT NULL THEN timestamptz 'epoch' END, pause_failed_at = CASE WHEN pause_failed_at IS NOT NULL THEN now() END
		WHERE tenant_id = $1 AND ended_at IS NULL`, m.tenant)
	if err != nil {
		return err
	}
	for name, c := range map[string]struct {
		due  *models.DueRule
		want func(*modelBox) bool
	}{
		"timeout": {models.DueTimeout(), (*modelBox).overdue}, "idle": {models.DueIdle(time.Now()), (*modelBox).idle},
		"paused": {models.DuePaused(), (*modelBox).asleep},
	} {
		list, err := m.s.Due(m.t.Context(), c.due, 10_000)
		if err != nil {
			return err
		}
		for _, b := range m.boxes {
			due := slices.ContainsFunc(list, func(x models.Sandbox) bool { return x.ID == b.id })
			if want := c.want(b); due != want {
				return fmt.Errorf("%s of a sandbox that is %s, desired %s, is due: %v, want %v", name, b.state, b.desired, due, want)
			}
		}
	}
	return nil
}

// overdue says whether a sandbox whose timeout is over is to end, or to be paused.
func (b *modelBox) overdue() bool {
	if b.closed() || !b.pauses || b.state == models.SandboxCreating {
		return !b.closed() && b.state != models.SandboxPaused
	}
	return b.state == models.SandboxRunning && b.desired == models.DesiredRunning && !b.failed
}

func (b *modelBox) busy() bool {
	return slices.ContainsFunc(b.jobs, func(j *modelJob) bool { return !j.State.Terminal() })
}

func (b *modelBox) idle() bool {
	return !b.busy() && b.state == models.SandboxRunning && b.desired == models.DesiredRunning
}

func (b *modelBox) asleep() bool {
	return b.state == models.SandboxPaused && b.desired == models.DesiredPaused
}
