package models

import (
	"context"
	"time"

	"gorm.io/gorm"

	"sandyard/models/pg"
)

// IsProgram says whether jobs of a kind run users' programs, which have clocks of their own and are killed when they
// are cancelled.
func IsProgram(kind string) bool { return kind == KindExec || kind == KindCode }

// program says the same in SQL.
const program = "kind IN ('" + KindExec + "', '" + KindCode + "')"

// left is true of queued jobs whose program an attempt that is over may have started: it runs on, or is frozen, until
// another attempt comes back to it.
const left = "(begun AND " + program + ")"

// Park is Requeue for a job whose program may be frozen: nobody takes it before its sandbox goes on. Where the row does
// not say that it is paused, not yet or not any more, it is only delayed. Late says that the job was submitted after
// the job that has paused it.
func (s *Store) Park(ctx context.Context, r Requeue, sandboxID string) (late bool, err error) {
	return inSandbox(ctx, s.db, sandboxID, lockSandbox, func(tx *gorm.DB, box *Sandbox) (bool, error) {
		if box.State != SandboxPaused {
			return false, giveBack(tx, r, gorm.Expr("now() + ?", milliseconds(r.Delay)))
		}
		if err := giveBack(tx, r, nil); err != nil {
			return false, err
		}
		return scanned[bool](tx.Raw(`SELECT EXISTS (SELECT 1 FROM sandboxes s JOIN jobs p ON p.id = s.changed_job, jobs j
			WHERE s.id = ? AND j.id = ? AND p.kind = 'pause' AND p.seq < j.seq)`, box.ID, r.ID))
	})
}

// letPast makes ready what goes past the jobs that are frozen in a locked sandbox which is paused: resumes, and where
// none is to come deletes. It is left to the transaction.
func letPast(tx *gorm.DB, sandboxID string) error {
	return release(tx, sandboxID, `sandbox_id = @id AND (kind = 'resume' OR kind = 'delete' AND NOT EXISTS
		(SELECT 1 FROM jobs r WHERE r.sandbox_id = @id AND r.kind = 'resume' AND r.state IN ('queued', 'running')))`)
}

// thaw lets go on what was frozen in a locked sandbox that was paused, and leaves that to the transaction: the time of
// its programs has stood still. Jobs that workers hold are merely looking at it, and heartbeats lock them in another
// order.
func thaw(tx *gorm.DB, box *Sandbox) error {
	if box.State != SandboxPaused || box.PausedAt == nil {
		return nil
	}
	return pg.Enqueue(
		pg.Build(tx).
			Exec(`UPDATE jobs SET paused_ms = paused_ms + greatest(0, extract(epoch FROM now() - greatest(started_at, @since)) * 1000)
		WHERE id IN (SELECT id FROM jobs WHERE sandbox_id = @id AND (state = 'running' AND `+program+` OR state = 'queued' AND `+left+`)
			ORDER BY id FOR UPDATE SKIP LOCKED)`,
				map[string]any{"id": box.ID, "since": box.PausedAt}),
		nil,
	)
}

// Paused is for how long the sandbox of a job was paused since the job started, up to the attempt.
func (j Job) Paused() time.Duration { return time.Duration(j.PausedMS) * time.Millisecond }
