package models

import (
	"context"
	"slices"
	"time"

	"gorm.io/gorm"
)

// IsProgram says whether jobs of a kind run users' programs, which have clocks of their own and are killed when they are
// cancelled.
func IsProgram(kind string) bool { return slices.Contains(programs(), kind) }

func programs() []string { return []string{KindExec, KindCode} }

// begun is true of jobs whose program an attempt that is over may have started: it runs on, or is frozen, until another attempt
// comes back to it.
const begun = "(attempt > 0 AND kind IN ('" + KindExec + "', '" + KindCode + "'))"

// Park is Requeue for a job whose program may be frozen: nobody takes it before its sandbox goes on. Where the row does not say that
// it is paused, not yet or not any more, it is only delayed.
func (s *Store) Park(ctx context.Context, r Return, sandbox string) error {
	return s.tx(ctx, func(tx *gorm.DB) error {
		box, err := locked(tx, sandbox, lockSandbox)
		if err != nil {
			return err
		}
		if box.State != SandboxPaused {
			return giveBack(tx, r, gorm.Expr("now() + ?", milliseconds(r.Delay)))
		}
		return giveBack(tx, r, nil)
	})
}

// thaw lets go on what was frozen in a locked sandbox that was paused, and leaves that to the transaction: the time of its
// programs has stood still.
func thaw(tx *gorm.DB, box *Sandbox) error {
	if box.State != SandboxPaused || box.PausedAt == nil {
		return nil
	}
	return later(dry(tx).Exec(`UPDATE jobs SET paused_ms = paused_ms + greatest(0, extract(epoch FROM now() - greatest(started_at, @since)) * 1000)
		WHERE id IN (SELECT id FROM jobs WHERE sandbox_id = @id AND state IN ('queued', 'running') AND `+begun+` ORDER BY id FOR UPDATE)`,
		map[string]any{"id": box.ID, "since": box.PausedAt}), nil)
}

// Paused is for how long the sandbox of a job was paused since the job started, up to the attempt.
func (j Job) Paused() time.Duration { return time.Duration(j.PausedMS) * time.Millisecond }
