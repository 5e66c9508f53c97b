package models

import (
	"context"
	"errors"
	"time"

	"gorm.io/gorm"
	"gorm.io/gorm/clause"
)

// ErrExists says that the name is taken.
var ErrExists = errors.New("the name is taken")

// ErrDeclared says that a template is declared by the server's configuration and cannot be deleted beside it.
var ErrDeclared = errors.New("the template is declared by SANDBOX_TEMPLATES")

// Template is a named environment that sandboxes are made from. A tenant's own hides a shared one of the same name.
type Template struct {
	ID         string  `gorm:"primaryKey"`
	TenantID   *string // nil = shared by all tenants
	Name       string
	Image      string
	Definition Definition `gorm:"serializer:json;type:jsonb"`
	Declared   *string    // the image that the server's configuration named last
	BuildID    *string    // the build that the image came from
	Version    int        `gorm:"default:1"` // counts changes
	CreatedAt  time.Time  `gorm:"autoCreateTime:false;default:now()"`
	UpdatedAt  time.Time  `gorm:"autoUpdateTime:false;default:now()"`
}

// Owner is whose templates are meant: a tenant's, or with no tenant the shared ones.
type Owner struct{ Tenant string }

func (o Owner) column() *string {
	if o.Tenant == "" {
		return nil
	}
	return &o.Tenant
}

func (o Owner) in(q *gorm.DB) *gorm.DB { return q.Where("coalesce(tenant_id, '') = ?", o.Tenant) }

// Template returns the template that a tenant means by name: its own, else the shared one, else ErrNotFound.
func (s *Store) Template(ctx context.Context, tenant, name string) (Template, error) {
	var t Template
	err := s.db.WithContext(ctx).Where("coalesce(tenant_id, '') IN ('', ?) AND name = ?", tenant, name).
		Order("tenant_id NULLS LAST").Take(&t).Error
	return t, notFound(err)
}

// TemplateOf returns the owner's template of that name, or ErrNotFound.
func (s *Store) TemplateOf(ctx context.Context, o Owner, name string) (Template, error) {
	var t Template
	err := o.in(s.db.WithContext(ctx)).Where("name = ?", name).Take(&t).Error
	return t, notFound(err)
}

// Templates lists what a tenant may make sandboxes from, by name.
func (s *Store) Templates(ctx context.Context, tenant string) ([]Template, error) {
	var list []Template
	err := s.db.WithContext(ctx).Raw(`SELECT DISTINCT ON (name) * FROM templates
		WHERE coalesce(tenant_id, '') IN ('', ?) ORDER BY name, tenant_id NULLS LAST`, tenant).Scan(&list).Error
	return list, err
}

// AllTemplates lists the templates of everybody.
func (s *Store) AllTemplates(ctx context.Context) ([]Template, error) {
	var list []Template
	err := s.db.WithContext(ctx).Order("id").Find(&list).Error
	return list, err
}

// CreateTemplate adds a template. ErrExists: its owner has one of that name.
func (s *Store) CreateTemplate(ctx context.Context, o Owner, t Template) (Template, error) {
	t.ID, t.TenantID, t.Version = NewID("tpl_"), o.column(), 1
	res := s.db.WithContext(ctx).Clauses(clause.OnConflict{DoNothing: true}, clause.Returning{}).Create(&t)
	if res.Error == nil && res.RowsAffected == 0 {
		return t, ErrExists
	}
	return t, uncertain(res.Error)
}

// PutTemplate makes the owner's template of that name what t says, whether it stood before or not. Sandboxes that were
// made from it stay as they are.
func (s *Store) PutTemplate(ctx context.Context, o Owner, t Template) (Template, error) {
	t.ID, t.TenantID, t.Version = NewID("tpl_"), o.column(), 1
	err := s.db.WithContext(ctx).Clauses(clause.Returning{}, clause.OnConflict{
		Columns: []clause.Column{{Name: "coalesce(tenant_id, '')", Raw: true}, {Name: "name"}},
		DoUpdates: append(clause.AssignmentColumns([]string{"image", "definition"}), clause.Assignments(map[string]any{
			"version": gorm.Expr("templates.version + 1"), "updated_at": gorm.Expr("now()"),
			"build_id": gorm.Expr("CASE WHEN templates.image = excluded.image THEN templates.build_id END"),
		})...),
	}).Create(&t).Error
	return t, uncertain(err)
}

// DeleteTemplate removes the owner's template of that name and says how many live sandboxes were made from it, which go
// on. Errors: ErrNotFound, ErrDeclared.
func (s *Store) DeleteTemplate(ctx context.Context, o Owner, name string) (inUse int, err error) {
	err = s.tx(ctx, func(tx *gorm.DB) error {
		var t Template
		if err := o.in(tx.Clauses(clause.Locking{Strength: "UPDATE"})).Where("name = ?", name).Take(&t).Error; err != nil {
			return notFound(err)
		}
		if t.Declared != nil {
			return ErrDeclared
		}
		var n int64
		q := tx.Model(&Sandbox{}).Where("template = ? AND ended_at IS NULL", name)
		if err := whereSet(q, "tenant_id = ?", o.Tenant).Count(&n).Error; err != nil {
			return err
		}
		inUse = int(n)
		return tx.Delete(&t).Error
	})
	return inUse, err
}

// Declare makes the shared templates that the server's configuration names. One that stands already is touched only
// where the configuration has changed since: what an operator made of it meanwhile holds.
func (s *Store) Declare(ctx context.Context, declared []Template) error {
	return s.tx(ctx, func(tx *gorm.DB) error {
		names := []string{}
		for _, t := range declared {
			names = append(names, t.Name)
			if err := declare(tx, t); err != nil {
				return err
			}
		}
		return tx.Model(&Template{}).Where("declared IS NOT NULL AND name NOT IN ?", append(names, "")).Update("declared", nil).Error
	})
}

func declare(tx *gorm.DB, t Template) error {
	t.ID, t.TenantID, t.Version, t.Declared = NewID("tpl_"), nil, 1, &t.Image
	return tx.Clauses(clause.OnConflict{
		Columns: []clause.Column{{Name: "coalesce(tenant_id, '')", Raw: true}, {Name: "name"}},
		Where:   clause.Where{Exprs: []clause.Expression{clause.Expr{SQL: "templates.declared IS DISTINCT FROM excluded.declared"}}},
		DoUpdates: append(clause.AssignmentColumns([]string{"image", "declared", "build_id"}),
			clause.Assignments(map[string]any{"version": gorm.Expr("templates.version + 1"), "updated_at": gorm.Expr("now()")})...),
	}).Create(&t).Error
}
