package models

import (
	"context"
	"encoding/json"
	"time"

	"gorm.io/gorm"
	"gorm.io/gorm/clause"
)

// KindBuild is the kind of job that makes an image.
const KindBuild = "build"

// makesSandbox says whether a job of the kind is what starts its sandbox.
func makesSandbox(kind string) bool { return kind == KindCreate || kind == KindBuild }

// Build makes an image for a template. Its job says how it stands.
type Build struct {
	ID         string `gorm:"primaryKey"`
	TenantID   string
	Shared     bool
	Template   string
	SandboxID  string
	JobID      string
	Recipe     json.RawMessage `gorm:"type:jsonb"`
	Files      []byte
	Image      string
	FinishedAt *time.Time
	CreatedAt  time.Time `gorm:"autoCreateTime:false;default:now()"`
}

// Owner is whose template the build is for.
func (b Build) Owner() Owner {
	if b.Shared {
		return Owner{}
	}
	return Owner{Tenant: b.TenantID}
}

// Build returns a build by its id alone and without its recipe and files, or ErrNotFound.
func (s *Store) Build(ctx context.Context, id string) (Build, error) {
	return takeOne[Build](s.db.WithContext(ctx).Omit("recipe", "files").Where("id = ?", id))
}

// BuildWithFiles is Build with the recipe and the files.
func (s *Store) BuildWithFiles(ctx context.Context, id string) (Build, error) {
	return takeOne[Build](s.db.WithContext(ctx).Where("id = ?", id))
}

// BuildOfJob returns the build that a job carries out, or ErrNotFound.
func (s *Store) BuildOfJob(ctx context.Context, jobID string) (Build, error) {
	return takeOne[Build](s.db.WithContext(ctx).Where("job_id = ?", jobID))
}

// MayUseBuild says whether the image was made by that build, and the build is the tenant's or shared.
func (s *Store) MayUseBuild(ctx context.Context, tenantID, build, image string) (bool, error) {
	return scanned[bool](s.db.WithContext(ctx).
		Raw("SELECT EXISTS (SELECT FROM builds WHERE id = ? AND image = ? AND (shared OR tenant_id = ?))",
			build, image, tenantID))
}

// Builds lists a tenant's builds of a template, newest first, without their recipes and files.
func (s *Store) Builds(ctx context.Context, tenantID, template, before string, limit int) ([]Build, error) {
	q := s.db.WithContext(ctx).Omit("recipe", "files").Where("tenant_id = ? AND template = ?", tenantID, template)
	return findAll[Build](whereSet(q, "id < ?", before).Order("id DESC").Limit(limit))
}

// askedForLast says that the template has no image that was asked for after the build that has come to its end. Ids say
// little of that: they are made by the clocks of machines.
const askedForLast = `EXISTS (SELECT 1 FROM builds comes WHERE comes.id = excluded.build_id
	AND (templates.image_asked_at, coalesce(templates.build_id, '')) < (comes.created_at, comes.id))`

// FinishBuild gives the template its new image, if the attempt still owns the build's job. A template that does not
// exist yet is made; one whose image was asked for after the build, by the database's clock, keeps it. Errors:
// ErrStale, *LimitError.
func (s *Store) FinishBuild(ctx context.Context, h AttemptRef, b Build) error {
	return s.db.Tx(ctx, func(tx *gorm.DB) error {
		if err := admitTemplate(tx, b.Owner(), b.Template); err != nil {
			return err
		}
		var owned []string
		err := tx.Raw(`SELECT id FROM jobs WHERE id = ? AND attempt = ? AND state = 'running' FOR UPDATE`, h.ID, h.Attempt).
			Scan(&owned).
			Error
		if err != nil {
			return err
		}
		if len(owned) == 0 {
			return ErrStale
		}
		if err := tx.Model(&Build{}).Where("id = ?", b.ID).Update("finished_at", gorm.Expr("now()")).Error; err != nil {
			return err
		}
		t := Template{
			ID:           NewID("tpl_"),
			TenantID:     b.Owner().column(),
			Name:         b.Template,
			Image:        b.Image,
			BuildID:      &b.ID,
			ImageAskedAt: b.CreatedAt,
			Version:      1,
		}
		return tx.Clauses(clause.OnConflict{
			Columns: []clause.Column{{Name: "coalesce(tenant_id, '')", Raw: true}, {Name: "name"}},
			Where:   clause.Where{Exprs: []clause.Expression{clause.Expr{SQL: askedForLast}}},
			DoUpdates: append(
				clause.AssignmentColumns([]string{"image", "build_id", "image_asked_at"}),
				clause.Assignments(
					map[string]any{"version": gorm.Expr("templates.version + 1"), "updated_at": gorm.Expr("now()")},
				)...),
		}).Create(&t).Error
	})
}

// UnusedImages returns those of the images that builds have made and nobody needs any more: no template has them, no
// live sandbox stands on them, and their build is over or forgotten.
func (s *Store) UnusedImages(ctx context.Context, images []string) ([]string, error) {
	return scanned[[]string](s.db.WithContext(ctx).Raw(`SELECT built.image FROM unnest(?::text[]) AS built (image)
		WHERE NOT EXISTS (SELECT 1 FROM templates t WHERE t.image = built.image)
		AND NOT EXISTS (SELECT 1 FROM sandboxes s WHERE s.image = built.image AND s.ended_at IS NULL)
		AND NOT EXISTS (SELECT 1 FROM builds b JOIN jobs j ON j.id = b.job_id
			WHERE b.image = built.image AND j.state IN ('queued', 'running'))`,
		idArray(images)))
}

// LogChunk is a piece of a build's log.
type LogChunk struct {
	Seq  int64
	Data []byte
}

// AppendBuildLog adds to a build's log, as long as the attempt owns its job.
func (s *Store) AppendBuildLog(ctx context.Context, h AttemptRef, build string, data []byte) error {
	return s.db.WithContext(ctx).Exec(`INSERT INTO build_logs (build_id, data) SELECT ?, ?
		WHERE EXISTS (SELECT 1 FROM jobs WHERE id = ? AND attempt = ? AND state = 'running')`,
		build, data, h.ID, h.Attempt).Error
}

// BuildLog returns a build's log after a piece of it.
func (s *Store) BuildLog(ctx context.Context, build string, after int64) ([]LogChunk, error) {
	return findAll[LogChunk](s.db.WithContext(ctx).
		Table("build_logs").
		Where("build_id = ? AND seq > ?", build, after).
		Order("seq"))
}
