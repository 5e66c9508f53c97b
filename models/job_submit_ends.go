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
	err = pg.Enqueue(pg.Build(tx).Exec(`UPDATE jobs SET cancel_requested_at = coalesce(cancel_requested_at, now()),
			cancelled_by = coalesce(cancelled_by, @actor)
		WHERE id IN (SELECT id FROM jobs WHERE sandbox_id = @id AND state = 'running' AND kind <> 'delete' ORDER BY id FOR UPDATE)`,
		map[string]any{"id": box.ID, "actor": why.Actor}), nil)
	if err != nil {
		return nil, err
	}
	if err = endQueued(tx, box.ID, Cancelled, sandboxGone(*box), &why.Actor, &ended); err == nil {
		err = pg.Flush(tx)
	}
	return ended, err
}
