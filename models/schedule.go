package models

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"gorm.io/gorm"
	"gorm.io/gorm/clause"

	"sandyard/models/pg"
)

// ErrScheduleExists says that the tenant has another schedule of that name.
var ErrScheduleExists = errors.New("the tenant has another schedule with this name")

// The states of a schedule.
const (
	ScheduleActive   = "active"
	SchedulePaused   = "paused"
	ScheduleDisabled = "disabled" // what it works on is gone
)

// What happens at a due time while an earlier run has not ended.
const (
	OverlapSkip   = "skip"
	OverlapQueue  = "queue"
	OverlapCancel = "cancel_running"
)

// What happens with due times at which no scheduler was there.
const (
	MissedSkip    = "skip"
	MissedRunOnce = "run_once"
	MissedRunAll  = "run_all"
)

// Schedule is what a tenant wants done again and again.
type Schedule struct {
	ID                  string `gorm:"primaryKey"`
	TenantID            string
	Name                *string
	State               string
	Reason              *string // why it was disabled
	Cron                *string
	TimeZone            string
	IntervalMS          *int64    `gorm:"column:interval_ms"` // where there is no cron
	Anchor              time.Time // from where intervals count
	Overlap             string
	Missed              string
	MaxCatchUp          int
	Kind                string          // run, create or the kind of the job
	SandboxID           *string         // where the job goes
	Action              json.RawMessage `gorm:"type:json"`
	Options             json.RawMessage `gorm:"type:jsonb"`
	NextDue             *time.Time      // nil = it is not active
	LastDue             *time.Time
	ConsecutiveFailures int
	CreatedBy           string
	UserID              *string // whose login or key created it
	ChangedBy           string
	CreatedAt           time.Time `gorm:"autoCreateTime:false;default:now()"`
	UpdatedAt           time.Time `gorm:"autoUpdateTime:false;default:now()"`
}

// CreateSchedule adds a schedule within the tenant's quota. Due says when it is due for the first time, counted from
// the database's now. Errors: *LimitError, ErrScheduleExists.
func (s *Store) CreateSchedule(
	ctx context.Context,
	c Schedule,
	due func(Schedule) (*time.Time, error),
) (Schedule, error) {
	c.ID = NewID("sch_")
	err := s.db.Tx(ctx, func(tx *gorm.DB) error {
		if err := admitSchedule(tx, c.TenantID); err != nil {
			return err
		}
		if err := startClock(tx, &c, due); err != nil {
			return err
		}
		res := tx.Clauses(clause.OnConflict{DoNothing: true}, clause.Returning{}).Create(&c)
		return affected(res, ErrScheduleExists)
	})
	return c, err
}

// admitSchedule counts under the tenant's lock, so that the quota cannot be taken twice.
func admitSchedule(tx *gorm.DB, tenantID string) error {
	var most int
	if err := tx.Raw("SELECT max_schedules FROM tenants WHERE id = ? FOR NO KEY "+
		"UPDATE", tenantID).Scan(&most).Error; err != nil {
		return err
	}
	var n int64
	err := tx.Model(&Schedule{}).Where("tenant_id = ?", tenantID).Count(&n).Error
	if err == nil && int(n) >= most {
		return &LimitError{Limit: "max_schedules", Used: float64(n), Max: float64(most)}
	}
	return err
}

// startClock lets the schedule's times count from now.
func startClock(tx *gorm.DB, c *Schedule, due func(Schedule) (*time.Time, error)) (err error) {
	if err := tx.Raw("SELECT now()").Scan(&c.Anchor).Error; err != nil {
		return err
	}
	c.NextDue = nil
	if c.State == ScheduleActive {
		c.NextDue, err = due(*c)
	}
	return err
}

// SaveSchedule writes a schedule down that was read and then changed, on behalf of actor. With another timetable or
// another state its times count from now, and runs that wait are skipped when it is not active any more. Errors:
// ErrNotFound, ErrScheduleExists, and ErrStale where somebody else has changed it since it was read.
func (s *Store) SaveSchedule(
	ctx context.Context,
	c Schedule,
	actor string,
	due func(Schedule) (*time.Time, error),
) (Schedule, error) {
	c.ChangedBy = actor
	err := s.db.Tx(ctx, func(tx *gorm.DB) error {
		var now Schedule
		err := tx.Clauses(clause.Locking{Strength: "NO KEY UPDATE"}).
			Where("tenant_id = ? AND id = ?", c.TenantID, c.ID).
			Take(&now).
			Error
		if err != nil {
			return notFound(err)
		}
		if !now.UpdatedAt.Equal(c.UpdatedAt) {
			return ErrStale
		}
		next := c
		next.Anchor, next.NextDue, next.LastDue = now.Anchor, now.NextDue, now.LastDue
		next.ConsecutiveFailures = now.ConsecutiveFailures
		if next.State != now.State || !sameTimetable(next, now) {
			if err := startClock(tx, &next, due); err != nil {
				return err
			}
		}
		if next.State != ScheduleActive && now.State == ScheduleActive {
			if err := skipWaiting(tx, c.ID, "the schedule was "+next.State); err != nil {
				return err
			}
		}
		if err := saveSchedule(tx, &next); err != nil {
			return err
		}
		c = next
		return nil
	})
	return c, err
}

func sameTimetable(x, y Schedule) bool {
	return equal(x.Cron, y.Cron) && equal(x.IntervalMS, y.IntervalMS) && x.TimeZone == y.TimeZone
}

func equal[T comparable](x, y *T) bool { return x == y || x != nil && y != nil && *x == *y }

func saveSchedule(tx *gorm.DB, c *Schedule) error {
	if err := tx.Raw("SELECT now()").Scan(&c.UpdatedAt).Error; err != nil {
		return err
	}
	err := tx.Model(c).Select("*").Omit("id", "tenant_id", "created_by", "created_at").Updates(c).Error
	if pg.IsUniqueViolation(err) {
		return ErrScheduleExists
	}
	return err
}

// DeleteSchedule removes a tenant's schedule with its history, on behalf of actor. Jobs that it has submitted go on.
func (s *Store) DeleteSchedule(ctx context.Context, tenantID, id, actor string) (Schedule, error) {
	return inTx(ctx, s.db, func(tx *gorm.DB) (Schedule, error) {
		c, err := takeOne[Schedule](tx.Clauses(clause.Locking{Strength: "NO KEY UPDATE"}).
			Where("tenant_id = ? AND id = ?", tenantID, id))
		if err == nil {
			err = tx.Model(&c).Update("changed_by", actor).Error
		}
		if err == nil {
			err = tx.Delete(&c).Error
		}
		return c, err
	})
}

// Schedule returns a tenant's schedule, or ErrNotFound.
func (s *Store) Schedule(ctx context.Context, tenantID, id string) (Schedule, error) {
	return takeOne[Schedule](s.db.WithContext(ctx).Where("tenant_id = ? AND id = ?", tenantID, id))
}

// ScheduleFilter selects schedules; empty fields match everything.
type ScheduleFilter struct {
	State     string
	Sandbox   string
	Name      string
	CreatedBy string
	Before    string // the last id of the page before
	Limit     int
}

// Schedules lists a tenant's schedules, newest first, without their actions.
func (s *Store) Schedules(ctx context.Context, tenantID string, f ScheduleFilter) ([]Schedule, error) {
	q := s.db.WithContext(ctx).Omit("action").Where("tenant_id = ?", tenantID)
	q = whereSet(q, "state = ?", f.State)
	q = whereSet(q, "sandbox_id = ?", f.Sandbox)
	q = whereSet(q, "name = ?", f.Name)
	q = whereSet(q, "created_by = ?", f.CreatedBy)
	q = whereSet(q, "id < ?", f.Before)
	return findAll[Schedule](q.Order("id DESC").Limit(f.Limit))
}

// ScheduleIDs returns schedules of all tenants, those after the one given.
func (s *Store) ScheduleIDs(ctx context.Context, after string, limit int) ([]string, error) {
	var ids []string
	err := s.db.WithContext(ctx).Model(&Schedule{}).Where("id > ?", after).Order("id").Limit(limit).Pluck("id", &ids).Error
	return ids, err
}

// DisableSchedule ends an active schedule for the reason given: what it works on is gone.
func (s *Store) DisableSchedule(ctx context.Context, id, reason string) error {
	return s.db.Tx(ctx, func(tx *gorm.DB) error { return disableSchedule(tx, id, reason) })
}

func disableSchedule(tx *gorm.DB, id, reason string) error {
	res := tx.Exec(
		`UPDATE schedules SET state = 'disabled', reason = ?, changed_by = 'scheduler', next_due = NULL, updated_at = now()
		WHERE id = ? AND state = 'active'`,
		reason,
		id,
	)
	if res.Error != nil || res.RowsAffected == 0 {
		return res.Error
	}
	return skipWaiting(tx, id, "the schedule was disabled: "+reason)
}

func skipWaiting(tx *gorm.DB, schedule, reason string) error {
	return tx.Exec(`UPDATE schedule_runs SET state = 'skipped', reason = ?, ended_at = now()
		WHERE schedule_id = ? AND state = 'pending'`, reason, schedule).Error
}
