package models

import (
	"context"
	"errors"
	"regexp"

	"gorm.io/gorm"

	"sandyard/models/pg"
)

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
