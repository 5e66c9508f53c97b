package models

import (
	"gorm.io/gorm"

	"sandyard/models/pg"
)

// wishFor is what a job of the kind makes of a sandbox; empty = nothing that is wished for.
func wishFor(kind string) string {
	switch kind {
	case KindDelete:
		return DesiredDeleted
	case KindPause:
		return DesiredPaused
	case KindResume:
		return DesiredRunning
	}
	return ""
}

// wish writes down what the submission wants the sandbox to become.
func (b *batch) wish(p *submission, box *Sandbox) error {
	wish := wishFor(p.Jobs[len(p.Jobs)-1].Kind)
	if wish == "" || box.Desired == DesiredDeleted {
		return nil
	}
	box.Desired = wish
	return pg.Enqueue(pg.Build(b.tx).Model(box).Update("desired", wish), nil)
}

// settleWish follows up on the end of a job that had come with a wish, however it ended: what is wished for then is
// what the newest open job is to do, apart from pauses that a later resume came before, and where there is none, what
// is. Who wants the sandbox deleted still does so when the delete has failed, and takes it back only by cancelling
// that.
func settleWish(tx *gorm.DB, box *Sandbox, c Transition) error {
	back := c.kind == KindDelete && c.state == Cancelled
	if c.kind != KindPause && c.kind != KindResume && !back || box.EndedAt != nil {
		return nil
	}
	return pg.Enqueue(pg.Build(tx).Exec(`UPDATE sandboxes SET
			desired = coalesce(
				(SELECT CASE kind WHEN 'delete' THEN 'deleted' WHEN 'pause' THEN 'paused' ELSE 'running' END FROM jobs p
					WHERE sandbox_id = sandboxes.id AND state IN ('queued', 'running') AND kind IN ('delete', 'pause', 'resume')
					  AND NOT (kind = 'pause' AND `+overtaken+`)
					ORDER BY seq DESC LIMIT 1),
				CASE state WHEN 'paused' THEN 'paused' ELSE 'running' END),
			pause_failed_at = CASE WHEN @failed THEN now() ELSE pause_failed_at END
		WHERE id = @id AND ended_at IS NULL AND state <> 'deleting' AND (desired <> 'deleted' OR @back)`,
		map[string]any{
			"id":     box.ID,
			"back":   back,
			"failed": c.kind == KindPause && c.state != Succeeded && !c.Overtaken,
		}),
		nil)
}
