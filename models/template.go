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
	// ImageAskedAt is when the image was asked for, by name or by the submission of a build.
	ImageAskedAt time.Time `gorm:"autoCreateTime:false;default:now()"`
	Version      int       `gorm:"default:1"` // counts changes
	CreatedAt    time.Time `gorm:"autoCreateTime:false;default:now()"`
	UpdatedAt    time.Time `gorm:"autoUpdateTime:false;default:now()"`
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
func (s *Store) Template(ctx context.Context, tenantID, name string) (Template, error) {
	return takeOne[Template](
		s.db.WithContext(ctx).Where("coalesce(tenant_id, '') IN ('', ?) AND name = ?", tenantID, name).
			Order("tenant_id NULLS LAST"),
	)
}

// TemplateOf returns the owner's template of that name, or ErrNotFound.
func (s *Store) TemplateOf(ctx context.Context, o Owner, name string) (Template, error) {
	return takeOne[Template](o.in(s.db.WithContext(ctx)).Where("name = ?", name))
}

// Templates lists what a tenant may make sandboxes from, by the bytes of their names: those behind a name, so many at
// most.
func (s *Store) Templates(ctx context.Context, tenantID, after string, limit int) ([]Template, error) {
	return scanned[[]Template](s.db.WithContext(ctx).Raw(`SELECT DISTINCT ON (name COLLATE "C") * FROM templates
		WHERE coalesce(tenant_id, '') IN ('', ?) AND name COLLATE "C" > ?
		ORDER BY name COLLATE "C", tenant_id NULLS LAST LIMIT ?`, tenantID, after, limit))
}

// TemplateNames lists the first names of what a tenant may make sandboxes from, so many at most.
func (s *Store) TemplateNames(ctx context.Context, tenantID string, limit int) ([]string, error) {
	return scanned[[]string](s.db.WithContext(ctx).Raw(`SELECT DISTINCT name COLLATE "C" AS name FROM templates
		WHERE coalesce(tenant_id, '') IN ('', ?) ORDER BY 1 LIMIT ?`, tenantID, limit))
}

// SharedImages lists the images of the shared templates.
func (s *Store) SharedImages(ctx context.Context) ([]string, error) {
	return scanned[[]string](s.db.WithContext(ctx).
		Raw("SELECT DISTINCT image FROM templates WHERE tenant_id IS NULL ORDER BY image"))
}

// PooledTemplates lists the templates of everybody that may want a pool: the shared ones, and those that say how large
// theirs is. Of what they define they hold what tells one pool from another. They come in the order of
// templates_pooled: PostgreSQL, which expects most rows to match, would read the table otherwise.
func (s *Store) PooledTemplates(ctx context.Context) ([]Template, error) {
	return scanned[[]Template](
		s.db.WithContext(ctx).Raw(`SELECT id, tenant_id, name, image, jsonb_build_object('pool', definition -> 'pool',
			'work_dir', definition -> 'work_dir', 'runtime', definition -> 'runtime', 'resources', definition -> 'resources') AS definition
		FROM templates WHERE tenant_id IS NULL OR definition -> 'pool' IS NOT NULL ORDER BY id`),
	)
}

// templateRoom counts a tenant's templates beside its quota.
const templateRoom = `SELECT t.max_templates AS most, count(own.id) AS used, coalesce(bool_or(own.name = ?), false) AS stands
	FROM tenants t LEFT JOIN templates own ON coalesce(own.tenant_id, '') = t.id WHERE t.id = ? GROUP BY t.id`

// TemplateRoom says whether the owner may have a template of that name, as it now stands: an error is a *LimitError or
// of the database. One that it has already it may always have, and shared ones have no quota.
func (s *Store) TemplateRoom(ctx context.Context, o Owner, name string) error {
	if o.Tenant == "" {
		return nil
	}
	return roomForTemplate(s.db.WithContext(ctx), o, name)
}

func roomForTemplate(tx *gorm.DB, o Owner, name string) error {
	var now struct {
		Most, Used int
		Stands     bool
	}
	err := tx.Raw(templateRoom, name, o.Tenant).Scan(&now).Error
	if err == nil && !now.Stands && now.Used >= now.Most {
		return &LimitError{Limit: "max_templates", Used: float64(now.Used), Max: float64(now.Most)}
	}
	return err
}

// admitTemplate is TemplateRoom under the tenant's lock, so that the quota cannot be taken twice.
func admitTemplate(tx *gorm.DB, o Owner, name string) error {
	if o.Tenant == "" {
		return nil
	}
	if err := tx.Exec("SELECT FROM tenants WHERE id = ? FOR NO KEY UPDATE", o.Tenant).Error; err != nil {
		return err
	}
	return roomForTemplate(tx, o, name)
}

// CreateTemplate adds a template. Errors: ErrExists where its owner has one of that name, *LimitError.
func (s *Store) CreateTemplate(ctx context.Context, o Owner, t Template) (Template, error) {
	t.ID, t.TenantID, t.Version = NewID("tpl_"), o.column(), 1
	err := s.db.Tx(ctx, func(tx *gorm.DB) error {
		if err := admitTemplate(tx, o, t.Name); err != nil {
			return err
		}
		res := tx.Clauses(clause.OnConflict{DoNothing: true}, clause.Returning{}).Create(&t)
		return affected(res, ErrExists)
	})
	return t, err
}

// PutTemplate makes the owner's template of that name what t says, whether it stood before or not. Sandboxes that were
// made from it stay as they are. Error: *LimitError, where it did not stand.
func (s *Store) PutTemplate(ctx context.Context, o Owner, t Template) (Template, error) {
	t.ID, t.TenantID, t.Version = NewID("tpl_"), o.column(), 1
	err := s.db.Tx(ctx, func(tx *gorm.DB) error {
		if err := admitTemplate(tx, o, t.Name); err != nil {
			return err
		}
		return tx.Clauses(clause.Returning{}, clause.OnConflict{
			Columns: []clause.Column{{Name: "coalesce(tenant_id, '')", Raw: true}, {Name: "name"}},
			DoUpdates: append(
				clause.AssignmentColumns([]string{"image", "definition"}),
				clause.Assignments(map[string]any{
					"version": gorm.Expr("templates.version + 1"), "updated_at": gorm.Expr("now()"),
					"build_id": gorm.Expr("CASE WHEN templates.image = excluded.image THEN templates.build_id END"),
					"image_asked_at": gorm.Expr(
						"CASE WHEN templates.image = excluded.image THEN templates.image_asked_at ELSE now() END",
					),
				})...),
		}).Create(&t).Error
	})
	return t, err
}

// DeleteTemplate removes the owner's template of that name and says how many live sandboxes were made from it, which go
// on. Errors: ErrNotFound, ErrDeclared.
func (s *Store) DeleteTemplate(ctx context.Context, o Owner, name string) (inUse int, err error) {
	return inTx(ctx, s.db, func(tx *gorm.DB) (inUse int, err error) {
		t, err := takeOne[Template](o.in(tx.Clauses(clause.Locking{Strength: "NO KEY UPDATE"})).Where("name = ?", name))
		if err == nil && t.Declared != nil {
			err = ErrDeclared
		}
		if err != nil {
			return 0, err
		}
		q := tx.Model(&Sandbox{}).Where("template = ? AND ended_at IS NULL", name)
		if inUse, err = countOf(whereSet(q, "tenant_id = ?", o.Tenant)); err == nil {
			err = tx.Delete(&t).Error
		}
		return inUse, err
	})
}

// Declare makes the shared templates that the server's configuration names. One that stands already is touched only
// where the configuration has changed since: what an operator made of it meanwhile holds.
func (s *Store) Declare(ctx context.Context, declared []Template) error {
	return s.db.Tx(ctx, func(tx *gorm.DB) error {
		names := []string{}
		for _, t := range declared {
			names = append(names, t.Name)
			if err := declare(tx, t); err != nil {
				return err
			}
		}
		return tx.Model(&Template{}).
			Where("declared IS NOT NULL AND name NOT IN ?", append(names, "")).
			Update("declared", nil).
			Error
	})
}

func declare(tx *gorm.DB, t Template) error {
	t.ID, t.TenantID, t.Version, t.Declared = NewID("tpl_"), nil, 1, &t.Image
	return tx.Clauses(clause.OnConflict{
		Columns: []clause.Column{{Name: "coalesce(tenant_id, '')", Raw: true}, {Name: "name"}},
		Where: clause.Where{
			Exprs: []clause.Expression{clause.Expr{SQL: "templates.declared IS DISTINCT FROM excluded.declared"}},
		},
		DoUpdates: append(clause.AssignmentColumns([]string{"image", "declared", "build_id"}),
			clause.Assignments(map[string]any{
				"version": gorm.Expr("templates.version + 1"), "updated_at": gorm.Expr("now()"),
				"image_asked_at": gorm.Expr("now()"),
			})...),
	}).Create(&t).Error
}

// Definition is what a template gives to sandboxes beside its image.
type Definition struct {
	Description  string            `json:"description,omitempty" maxLength:"1000"`
	StartCommand string            `json:"start_command,omitempty" maxLength:"65536" doc:"A command line for bash -c that every new sandbox runs in the background, with the sandbox's environment"`
	Ready        *Probe            `json:"ready,omitempty" doc:"Readiness probe of a new sandbox; without it, the sandbox is ready as soon as the start command runs"`
	Ports        []int             `json:"ports,omitempty" maxItems:"64" doc:"Ports that its programs listen on, for information only"`
	MCPPort      int               `json:"mcp_port,omitempty" minimum:"0" maximum:"65535" doc:"Port of an MCP server; sandboxes then have an mcp_url"`
	VSCodePort   int               `json:"vscode_port,omitempty" minimum:"0" maximum:"65535" doc:"Port of an editor such as code-server; sandboxes then have a vscode_url"`
	Env          map[string]string `json:"env,omitempty" doc:"Environment variables for every command; a sandbox's own variables take precedence"`
	WorkDir      string            `json:"work_dir,omitempty" maxLength:"512" doc:"Absolute path of the work directory; default /workspace. It starts empty and hides the image's files at this path"`
	Providers    []string          `json:"providers,omitempty" maxItems:"8" doc:"Providers of its sandboxes whose request names none, in the order in which they are asked; default: the tenant's, else the server's"`
	Names        map[string]string `json:"names,omitempty" doc:"What the template is called at providers that make no sandboxes from images: provider and name. A tenant's own template may use those that the operator lists in PROVIDER_TEMPLATES"`
	Runtime      string            `json:"runtime,omitempty" maxLength:"64" doc:"OCI runtime of the engine, such as runsc; default: the worker's"`
	Resources    Bounds            `json:"resources,omitempty" doc:"Default resources of its sandboxes"`
	Maximum      Bounds            `json:"maximum,omitempty" doc:"Largest resources that a sandbox may request"`
	Egress       *EgressRules      `json:"egress,omitempty" doc:"Default egress policy of its sandboxes; without it, no connections are allowed"`
	Pool         *PoolSize         `json:"pool,omitempty" doc:"Started containers kept ready, across all workers of an engine, if their nodes have room. Requires a key with the scope operator. Default for shared templates: POOL_SIZE and POOL_MAX of the workers; for a tenant's own: none"`
}

// EgressRules are where sandboxes may connect to, in the words of package egress.
type EgressRules struct {
	Allow []string `json:"allow,omitempty" doc:"The same as in the egress of a new sandbox"`
	Deny  []string `json:"deny,omitempty"`
}

// Bounds limit what a sandbox uses; 0 leaves a limit open.
type Bounds struct {
	CPUs     float64 `json:"cpus,omitempty" minimum:"0" maximum:"64" doc:"Cores"`
	MemoryMB int64   `json:"memory_mb,omitempty" minimum:"0" maximum:"262144" doc:"Memory and swap"`
	DiskMB   int64   `json:"disk_mb,omitempty" minimum:"0" maximum:"262144" doc:"Size of the work directory, which counts towards memory"`
	Pids     int64   `json:"pids,omitempty" minimum:"0" maximum:"32768" doc:"Processes and threads"`
}

// Probe says when the programs of a new sandbox are ready. Exactly one of HTTP, TCP and Command is set.
type Probe struct {
	HTTP           *HTTPProbe `json:"http,omitempty" doc:"A GET request that must return a status from 200 to 399"`
	TCP            *TCPProbe  `json:"tcp,omitempty" doc:"A port that must accept a connection"`
	Command        string     `json:"command,omitempty" maxLength:"65536" doc:"A command line for bash -c that must exit 0"`
	TimeoutSeconds float64    `json:"timeout_seconds,omitempty" minimum:"0" maximum:"600" doc:"The create fails if it is not ready by then; default 60"`
}

// HTTPProbe is a GET on a port of the sandbox.
type HTTPProbe struct {
	Port int    `json:"port" minimum:"1" maximum:"65535"`
	Path string `json:"path,omitempty" maxLength:"2048" doc:"Default /"`
}

// TCPProbe is a connection to a port of the sandbox.
type TCPProbe struct {
	Port int `json:"port" minimum:"1" maximum:"65535"`
}

// PoolSize is how many started containers of a template wait.
type PoolSize struct {
	Min int `json:"min,omitempty" minimum:"0" maximum:"1000" doc:"Smallest size of the pool"`
	Max int `json:"max,omitempty" minimum:"0" maximum:"1000" doc:"Largest size of the pool, which follows the number of sandboxes created in the last minute; at least min"`
}
