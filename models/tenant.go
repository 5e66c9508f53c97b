package models

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"math"
	"regexp"
	"slices"
	"time"

	"gorm.io/gorm"
	"gorm.io/gorm/clause"

	"sandyard/models/pg"
)

// Tenant owns sandboxes, jobs and keys.
type Tenant struct {
	ID           string `gorm:"primaryKey"`
	Name         string
	MaxSandboxes int
	MaxQueued    int
	// MaxQueuedBytes bounds the args and inputs of waiting jobs, together.
	MaxQueuedBytes int64     `gorm:"default:1073741824"`
	WebhookSecret  string    // whsec_ and base64, as Standard Webhooks writes it
	CreatedAt      time.Time `gorm:"autoCreateTime:false;default:now()"`
}

// Bootstrap is BootstrapWith where the caller keeps the key; it is empty when the database was set up before.
func (s *Store) Bootstrap(ctx context.Context) (key string, err error) {
	err = s.BootstrapWith(ctx, func(first string) error {
		key = first
		return nil
	})
	return key, err
}

// BootstrapWith makes the first tenant and its first key, with every scope, if there is no tenant yet. keep is given
// the key's plain text, which is not stored; where it fails there is neither key nor tenant. A nil keep makes a tenant
// without a key.
func (s *Store) BootstrapWith(ctx context.Context, keep func(key string) error) error {
	return s.db.Tx(ctx, func(tx *gorm.DB) error {
		t := Tenant{
			ID:            "default",
			Name:          "default",
			MaxSandboxes:  defaultMaxSandboxes,
			MaxQueued:     defaultMaxQueued,
			WebhookSecret: newWebhookSecret(),
		}
		res := tx.Clauses(clause.OnConflict{DoNothing: true}).Create(&t)
		if res.Error != nil || res.RowsAffected == 0 || keep == nil {
			return res.Error
		}
		key, err := createKey(tx, keyPrefix, t.ID, "first key", []string{ScopeSandboxes, ScopeOperator})
		if err != nil {
			return err
		}
		return keep(key)
	})
}

// Tenant returns a tenant.
func (s *Store) Tenant(ctx context.Context, id string) (Tenant, error) {
	return takeOne[Tenant](s.db.WithContext(ctx).Where("id = ?", id))
}

func newWebhookSecret() string {
	secret := make([]byte, 32)
	rand.Read(secret) // never fails
	return "whsec_" + base64.StdEncoding.EncodeToString(secret)
}

// What is wrong with a new tenant.
var (
	// ErrTenantName says that no tenant can be called so.
	ErrTenantName = errors.New(
		"the name of a tenant must have up to 63 of a-z, 0-9 and -, and begin with a letter or a digit",
	)
	// ErrTenantNamed says that there is such a tenant already.
	ErrTenantNamed = errors.New("a tenant with this name exists")
)

var tenantName = regexp.MustCompile(`^[a-z0-9][a-z0-9-]{0,62}$`)

// Limits of a new tenant.
const (
	defaultMaxSandboxes = 100
	defaultMaxQueued    = 10000
)

// CreateTenant adds a tenant, whose name is its id, with its first key, of which it returns the plain text. Errors:
// ErrTenantName, ErrTenantNamed, ErrCeiling.
func (s *Store) CreateTenant(ctx context.Context, name string, limits Ceilings) (key string, err error) {
	if !tenantName.MatchString(name) {
		return "", ErrTenantName
	}
	set, err := limits.tenantColumns()
	if err != nil {
		return "", err
	}
	err = s.db.Tx(ctx, func(tx *gorm.DB) error {
		t := Tenant{
			ID:            name,
			Name:          name,
			MaxSandboxes:  defaultMaxSandboxes,
			MaxQueued:     defaultMaxQueued,
			WebhookSecret: newWebhookSecret(),
		}
		if err := tx.Create(&t).Error; pg.IsUniqueViolation(err) {
			return ErrTenantNamed
		} else if err != nil {
			return err
		}
		if len(set) > 0 {
			if err := tx.Model(&Tenant{}).Where("id = ?", name).Updates(set).Error; err != nil {
				return err
			}
		}
		key, err = createKey(tx, keyPrefix, name, "first key", []string{ScopeSandboxes, ScopeAdmin})
		return err
	})
	return key, err
}

// ProvidersOf returns the providers that a tenant's sandboxes are made by, in the order in which they are asked; none =
// the server's default.
func (s *Store) ProvidersOf(ctx context.Context, tenantID string) (names []string, err error) {
	return scanned[[]string](s.db.WithContext(ctx).
		Raw("SELECT jsonb_array_elements_text(providers) FROM tenants WHERE id = ?", tenantID))
}

// SetProviders sets ProvidersOf. Error: ErrNotFound.
func (s *Store) SetProviders(ctx context.Context, tenantID string, names []string) error {
	if names == nil {
		names = []string{}
	}
	res := s.db.WithContext(ctx).Model(&Tenant{}).Where("id = ?", tenantID).Update("providers", jsonOf(names))
	return affected(res, ErrNotFound)
}

// ChangeTenant changes limits of a tenant, all of them or none. What stands beyond a new one stays. Errors:
// ErrNotFound, ErrCeiling.
func (s *Store) ChangeTenant(ctx context.Context, name string, limits Ceilings) error {
	set, err := limits.tenantColumns()
	if err != nil {
		return err
	}
	res := s.db.WithContext(ctx).Model(&Tenant{}).Where("id = ?", name).Updates(set)
	return affected(res, ErrNotFound)
}

// ListedTenant is a tenant with how many live sandboxes it has.
type ListedTenant struct {
	Tenant
	Quota Quota `gorm:"embedded"`
	Rate  Rate  `gorm:"embedded"`
	Live  int
	// Providers are those of ProvidersOf.
	Providers []string `gorm:"serializer:json"`
	// ProviderKeys are those of SetProviderKeys.
	ProviderKeys ProviderKeys `gorm:"serializer:json"`
}

const listTenants = `
	SELECT t.id, t.name, t.max_sandboxes, t.max_queued, t.max_cpus, t.max_memory_mib, t.job_rate, t.job_burst,
	t.created_at, t.providers, t.provider_keys,
		(SELECT count(*) FROM sandboxes s WHERE s.tenant_id = t.id AND s.ended_at IS NULL) AS live
	FROM tenants t `

// Tenants lists the tenants by name, without their secrets.
func (s *Store) Tenants(ctx context.Context, limit int) ([]ListedTenant, error) {
	return scanned[[]ListedTenant](s.db.WithContext(ctx).Raw(listTenants+"ORDER BY t.id LIMIT ?", limit))
}

// ListedTenant returns a tenant without its secrets, or ErrNotFound.
func (s *Store) ListedTenant(ctx context.Context, name string) (ListedTenant, error) {
	return takeOne[ListedTenant](s.db.WithContext(ctx).Raw(listTenants+"WHERE t.id = ?", name))
}

// Quota is what live sandboxes may take together; nil = no limit. Paused ones count: they keep their memory.
type Quota struct {
	MaxSandboxes *int
	MaxCPUs      *float64 `gorm:"column:max_cpus"`
	MaxMemoryMiB *int64   `gorm:"column:max_memory_mib"`
}

// Standing is what live sandboxes take.
type Standing struct {
	Live      int
	CPUs      float64 `gorm:"column:cpus"`
	MemoryMiB int64   `gorm:"column:memory_mib"`
}

// standing reads a Standing of the live sandboxes for which a condition holds.
const standing = `SELECT count(*) AS live, coalesce(sum(cpus), 0) AS cpus, coalesce(sum(memory_mb), 0)::bigint AS memory_mib
	FROM sandboxes WHERE ended_at IS NULL AND `

func (s *Standing) add(box *Sandbox) {
	s.Live++
	s.CPUs += box.CPUs
	s.MemoryMiB += box.MemoryMB
}

// refusal is a *LimitError where there is no room for one more sandbox. The names of limits begin with prefix.
func (q Quota) refusal(prefix string, now Standing, box *Sandbox) error {
	switch {
	case q.MaxSandboxes != nil && now.Live >= *q.MaxSandboxes:
		return &LimitError{Limit: prefix + "max_sandboxes", Used: float64(now.Live), Max: float64(*q.MaxSandboxes)}
	case q.MaxCPUs != nil && thousandths(now.CPUs+box.CPUs) > thousandths(*q.MaxCPUs):
		return &LimitError{Limit: prefix + "max_cpus", Used: thousandths(now.CPUs) / 1000, Max: *q.MaxCPUs, Asked: box.CPUs}
	case q.MaxMemoryMiB != nil && now.MemoryMiB+box.MemoryMB > *q.MaxMemoryMiB:
		return &LimitError{
			Limit: prefix + "max_memory_mib", Used: float64(now.MemoryMiB), Max: float64(*q.MaxMemoryMiB),
			Asked: float64(box.MemoryMB),
		}
	}
	return nil
}

// thousandths are of cores. Sums of fractions such as 0.1 are not exact.
func thousandths(cores float64) float64 { return math.Round(cores * 1000) }

// Ceilings are new values of limits by their names, which are their columns, too; nil = as a new tenant or user has it.
type Ceilings map[string]*float64

// CeilingNames are the names of the limits that Ceilings may change, of a tenant or of a user.
func CeilingNames() []string {
	return []string{"max_sandboxes", "max_queued", "max_cpus", "max_memory_mib", "job_rate", "job_burst"}
}

// ofNewTenant are the limits that a tenant always has, as a new one has them.
func ofNewTenant() map[string]int {
	return map[string]int{"max_sandboxes": defaultMaxSandboxes, "max_queued": defaultMaxQueued}
}

// columns are what to set of a user. Error: ErrCeiling.
func (c Ceilings) columns() (map[string]any, error) {
	set := map[string]any{}
	for name, v := range c {
		if !slices.Contains(CeilingNames(), name) || v != nil && !fits(name, *v) {
			return nil, ErrCeiling
		}
		set[name] = v
	}
	return set, nil
}

// tenantColumns are what to set of a tenant. A limit that it always has is not removed but becomes that of a new
// tenant.
func (c Ceilings) tenantColumns() (map[string]any, error) {
	set, err := c.columns()
	for name, n := range ofNewTenant() {
		if v, given := c[name]; given && v == nil {
			set[name] = n
		}
	}
	return set, err
}

// fits says whether a limit can have a value. Only cores and a rate have fractions, and a rate of 0 would be no limit
// but an end.
func fits(name string, v float64) bool {
	switch {
	case !(v >= 0) || v > maxCeiling:
		return false
	case name == "job_rate":
		return v >= leastRate
	case name == "job_burst":
		return v >= 1 && v == math.Trunc(v)
	}
	return name == "max_cpus" || v == math.Trunc(v)
}

// leastRate is the smallest job rate: one in about three hours.
const leastRate = 0.0001

// maxCeiling is the largest value of a limit, which fits every column.
const maxCeiling = 1_000_000_000

// ErrCeiling says that a limit cannot have such a value.
var ErrCeiling = errors.New(
	"a limit must be between 0 and 1000000000, or none; of sandboxes, jobs and MiB it is a whole number, and a job rate " +
		"is at least 0.0001",
)
