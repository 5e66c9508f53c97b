package models

import (
	"context"
	"time"

	"gorm.io/gorm"
)

// endPart is how many jobs one transaction ends at most before that of the end itself, which locks their sandbox as
// long.
const endPart = 500

// endParts ends the queued jobs of a sandbox that a submission is about to end, in parts, until few are left for the
// submission. Each part is a transaction of its own: after a crash the same submission goes on with the next. The
// newest go first, so that the order of those that are left stands. It returns the ids of those that it has ended.
func (s *Store) endParts(ctx context.Context, sub Submission) (ended []string, err error) {
	var waiting int
	err = s.db.WithContext(ctx).
		Raw("SELECT count(*) FROM (SELECT FROM jobs WHERE sandbox_id = ? AND state = 'queued' LIMIT ?) AS few",
			sub.SandboxID, endPart+1).
		Scan(&waiting).
		Error
	if err != nil || waiting <= endPart {
		return nil, err
	}
	for n := endPart; n == endPart && err == nil; {
		var part []string
		err = s.db.Tx(ctx, func(tx *gorm.DB) error {
			part = nil
			box, err := locked(tx, sub.SandboxID, lockSandbox)
			if err != nil || box.TenantID != sub.TenantID || box.EndedAt != nil {
				return err
			}
			if ok, err := stillWanted(tx, sub, box); err != nil || !ok {
				return err
			}
			part, err = endNewest(tx, box, *sub.End)
			return err
		})
		n = len(part)
		ended = append(ended, part...)
	}
	return ended, err
}

func stillWanted(tx *gorm.DB, sub Submission, box Sandbox) (bool, error) {
	if sub.Due != nil {
		var due []string
		err := sub.Due.where(tx.Model(&Sandbox{}).Where("id = ?", box.ID)).Pluck("id", &due).Error
		if err != nil || len(due) == 0 {
			return false, err
		}
	}
	if sub.Guard == nil {
		return true, nil
	}
	var now time.Time
	err := tx.Raw("SELECT now()").Scan(&now).Error
	return err == nil && sub.Guard(SandboxSnapshot{box, true, now}), err
}

// endNewest ends the newest jobs that wait for a sandbox, where more wait than the end itself may write.
func endNewest(tx *gorm.DB, box Sandbox, why End) (ended []string, err error) {
	box.State = SandboxDeleting
	if box.EndReason == nil {
		box.EndReason = &why.Reason
	}
	err = tx.Raw(`UPDATE jobs SET state = 'cancelled', error = CAST(? AS jsonb), finished_at = now(), cancelled_by = coalesce(cancelled_by, ?)
		WHERE state = 'queued' AND id = ANY (ARRAY(SELECT id FROM jobs WHERE sandbox_id = ? AND state = 'queued' AND kind <> 'delete'
			ORDER BY seq DESC LIMIT greatest(0, least(?, (SELECT count(*) FROM (SELECT FROM jobs WHERE sandbox_id = ? AND state = 'queued' LIMIT ?) AS few) - ?))))
		RETURNING id`, jsonText(sandboxGone(box)), why.Actor, box.ID, endPart, box.ID, 2*endPart, endPart).
		Scan(&ended).
		Error
	if err != nil || len(ended) == 0 {
		return nil, err
	}
	_, err = recordDeliveries(tx, ended)
	return ended, err
}
