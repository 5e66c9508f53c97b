package models

import (
	"context"
	"errors"
	"time"

	"gorm.io/gorm"

	"sandyard/models/pg"
)

// ErrEarlier means that an earlier job is under way which is to end first.
var ErrEarlier = errors.New("an earlier pause or resume of the sandbox is still running")

// earlier is true where an open job of a kind that may run was submitted before the job. What waits for its turn in the
// sandbox's order is not under way: it may wait for something that only a resume thaws.
const earlier = `EXISTS (SELECT 1 FROM jobs e WHERE e.sandbox_id = @box AND e.kind = @other AND e.seq < @seq
	AND (e.state = 'running' OR e.state = 'queued' AND e.ready_at IS NOT NULL))`

// overtaken is true where a resume that was submitted after the pause p is running or done.
const overtaken = `EXISTS (SELECT 1 FROM jobs r WHERE r.sandbox_id = p.sandbox_id AND r.kind = 'resume' AND r.seq > p.seq
	AND r.state IN ('running', 'succeeded'))`

// renewed is true where another pause that was submitted after the job runs, may run or is done.
const renewed = `EXISTS (SELECT 1 FROM jobs l WHERE l.sandbox_id = @box AND l.kind = 'pause' AND l.seq > @seq
	AND (l.state IN ('running', 'succeeded') OR l.state = 'queued' AND l.ready_at IS NOT NULL))`

// BeginPause says whether a pause that has been claimed is still wanted: no resume was asked for after it and came
// before it. Due says that time wants it, which then has to be up still. Of one that is not, undo says that nobody else
// wants the sandbox paused either. ErrEarlier: it has to wait.
func (s *Store) BeginPause(ctx context.Context, j Job, due bool) (wanted, undo bool, err error) {
	var now struct{ Waits, Renewed, Wanted bool }
	err = s.db.WithContext(ctx).Raw(`SELECT `+earlier+` AS waits, `+renewed+` AS renewed,
			NOT `+overtaken+` AND (NOT @due OR s.desired = 'paused' AND s.expires_at <= now()) AS wanted
		FROM sandboxes s, (SELECT CAST(@box AS text) AS sandbox_id, CAST(@seq AS bigint) AS seq) p WHERE s.id = @box`,
		map[string]any{"box": j.SandboxID, "seq": j.Seq, "other": KindResume, "due": due}).Scan(&now).Error
	if err == nil && now.Waits {
		err = ErrEarlier
	}
	return now.Wanted, !now.Wanted && !now.Renewed, err
}

// BeginResume answers ErrEarlier while a pause is under way that was submitted before the resume.
func (s *Store) BeginResume(ctx context.Context, j Job) error {
	var waits bool
	err := s.db.WithContext(ctx).Raw("SELECT "+earlier,
		map[string]any{"box": j.SandboxID, "seq": j.Seq, "other": KindPause}).Scan(&waits).Error
	if err == nil && waits {
		err = ErrEarlier
	}
	return err
}

// overtakes says whether a job goes past those ahead of it in the sandbox's order: a resume of what is paused, or about
// to be by a pause outside that order, may be all that lets them end, and so may a delete, unless a resume is on its
// way. Those behind it wait for it all the same.
func (b *batch) overtakes(j Job, box *Sandbox) (yes bool, err error) {
	switch {
	case j.Kind != KindResume && j.Kind != KindDelete:
		return false, nil
	case box.State == SandboxPaused:
		return j.Kind == KindResume || box.Desired == DesiredPaused, nil
	case box.State != SandboxRunning || box.Desired != DesiredPaused:
		return false, nil
	}
	return scanned[bool](b.tx.Session(&gorm.Session{}).
		Raw(`SELECT EXISTS (SELECT 1 FROM jobs WHERE sandbox_id = ? AND kind = 'pause' AND parallel
		AND state IN ('queued', 'running'))`, box.ID))
}

// Resuming says whether a resume of the sandbox waits or runs.
func (s *Store) Resuming(ctx context.Context, sandboxID string) (resuming bool, err error) {
	return scanned[bool](s.db.WithContext(ctx).
		Raw(`SELECT EXISTS (SELECT 1 FROM jobs WHERE sandbox_id = ? AND kind = ? AND state IN ('queued', 'running'))`,
			sandboxID, KindResume))
}

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
