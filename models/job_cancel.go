package models

import (
	"context"

	"gorm.io/gorm"
)

// Cancel ends a queued job at once and asks a running one to stop, on behalf of actor; on a job that has ended it does
// nothing. A program that a worker has left behind is running, in nobody's hands: whoever takes the job next kills it.
// It returns the job as it then stands.
func (s *Store) Cancel(ctx context.Context, tenantID, id, actor string) (Job, FinishEffects, error) {
	var j Job
	var f FinishEffects
	err := s.db.Tx(ctx, func(tx *gorm.DB) error {
		f = FinishEffects{}
		if err := tx.Where("tenant_id = ? AND id = ?", tenantID, id).Take(&j).Error; err != nil {
			return notFound(err)
		}
		box, err := locked(tx, j.SandboxID, lockActive)
		if err != nil {
			return err
		}
		if err := s.cancelLocked(tx, &box, j, actor, &f); err != nil {
			return err
		}
		return tx.Where("id = ?", id).Take(&j).Error
	})
	return j, f, err
}

func (s *Store) cancelLocked(tx *gorm.DB, box *Sandbox, j Job, actor string, f *FinishEffects) error {
	why := JobError{Code: "cancelled", Message: "the job was cancelled before it started"}
	res := tx.Model(&Job{}).Where("id = ? AND state = 'queued' AND NOT "+left, j.ID).
		Updates(map[string]any{
			"state": Cancelled, "error": jsonOf(why), "finished_at": gorm.Expr("now()"), "cancelled_by": actor,
		})
	if res.Error != nil {
		return res.Error
	}
	if res.RowsAffected == 0 {
		return tx.Model(&Job{}).Where("id = ? AND state IN ('queued', 'running') AND cancel_requested_at IS NULL", j.ID).
			Updates(map[string]any{"cancel_requested_at": gorm.Expr("now()"), "cancelled_by": actor}).Error
	}
	return s.conclude(tx, box, []string{j.ID}, changeAfter(j.Kind, Cancelled, Transition{}), true, f)
}
