package models

import (
	"gorm.io/gorm"

	"sandyard/models/pg"
)

// applyEnds carries out the End of each submission: no new work, queued jobs cancelled, running ones told to stop.
func (b *batch) applyEnds() error {
	for _, p := range b.open() {
		box := b.boxes[p.SandboxID]
		if p.End == nil || box.EndedAt != nil {
			continue
		}
		ended, err := endNow(b.tx, box, *p.End)
		if err != nil {
			return err
		}
		p.out.Ended = ended
	}
	return nil
}

func (b *batch) settleEnds() error {
	for _, p := range b.open() {
		if err := settle(b.tx, p.SandboxID, p.out.Ended); err != nil {
			return err
		}
	}
	return nil
}

// endNow turns a locked, live sandbox to deleting and returns the queued jobs it cancelled.
func endNow(tx *gorm.DB, box *Sandbox, why End) (ended []string, err error) {
	box.State, box.Desired = SandboxDeleting, DesiredDeleted
	if box.EndReason == nil {
		box.EndReason, box.EndActor = &why.Reason, &why.Actor
	}
	box.ChangedBy = why.Actor
	err = pg.Enqueue(
		pg.Build(tx).Model(box).Select("state", "desired", "end_reason", "end_actor", "changed_by").Updates(box),
		nil,
	)
	if err != nil {
		return nil, err
	}
	if err = stopJobs(tx, box, why.Actor, &ended); err == nil {
		err = pg.Flush(tx)
	}
	return ended, err
}

// stopJobs cancels the queued jobs of a locked sandbox, with the next flush, which adds their ids to ended, and asks for
// the end of those that run. Deletes go on. One statement does both: a worker claims a job without the sandbox's lock,
// and between two statements it would escape either.
func stopJobs(tx *gorm.DB, box *Sandbox, actor string, ended *[]string) error {
	return pg.Enqueue(pg.Build(tx).Raw(`UPDATE jobs SET
			cancel_requested_at = CASE state WHEN 'running' THEN coalesce(cancel_requested_at, now()) ELSE cancel_requested_at END,
			finished_at = CASE state WHEN 'queued' THEN now() ELSE finished_at END,
			error = CASE state WHEN 'queued' THEN CAST(@gone AS jsonb) ELSE error END,
			state = CASE state WHEN 'queued' THEN 'cancelled' ELSE state END,
			cancelled_by = coalesce(cancelled_by, @actor)
		WHERE id IN (SELECT id FROM jobs WHERE sandbox_id = @id AND state IN ('queued', 'running') AND kind <> 'delete'
			ORDER BY id FOR UPDATE)
		RETURNING id, state`,
		map[string]any{"id": box.ID, "actor": actor, "gone": jsonText(sandboxGone(*box))}),
		pg.Each(func(j Job) {
			if j.State == Cancelled {
				*ended = append(*ended, j.ID)
			}
		}))
}
