package models

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"gorm.io/gorm"
)

// Secret is a value of a tenant that jobs use by its name. Sealed is its ciphertext.
type Secret struct {
	TenantID  string `gorm:"primaryKey"`
	Name      string `gorm:"primaryKey"`
	Sealed    []byte
	CreatedAt time.Time `gorm:"autoCreateTime:false;default:now()"`
	UpdatedAt time.Time `gorm:"autoUpdateTime:false;default:now()"`
}

// MaxSecrets bounds the secrets of a tenant.
const MaxSecrets = 1000

// PutSecret makes a secret, or replaces its value. Error: *LimitError.
func (s *Store) PutSecret(ctx context.Context, tenantID, name string, sealed []byte) (Secret, error) {
	return inTx(ctx, s.db, func(tx *gorm.DB) (none Secret, _ error) {
		// Two that are new must not count at once.
		if err := tx.Exec("SELECT 1 FROM tenants WHERE id = ? FOR NO KEY UPDATE", tenantID).Error; err != nil {
			return none, err
		}
		others, err := scanned[int](
			tx.Raw("SELECT count(*) FROM secrets WHERE tenant_id = ? AND name <> ?", tenantID, name),
		)
		if err != nil {
			return none, err
		}
		if others >= MaxSecrets {
			return none, &LimitError{Limit: "secrets", Used: float64(others), Max: MaxSecrets}
		}
		return scanned[Secret](tx.Raw(`INSERT INTO secrets (tenant_id, name, sealed) VALUES (?, ?, ?)
			ON CONFLICT (tenant_id, name) DO UPDATE SET sealed = excluded.sealed, updated_at = now()
			RETURNING tenant_id, name, created_at, updated_at`, tenantID, name, sealed))
	})
}

// Secrets lists a tenant's secrets by name, without their values.
func (s *Store) Secrets(ctx context.Context, tenantID string) ([]Secret, error) {
	return findAll[Secret](s.db.WithContext(ctx).
		Omit("sealed").
		Where("tenant_id = ?", tenantID).
		Order("name").
		Limit(MaxSecrets))
}

// SealedSecrets returns those of a tenant's secrets that have one of the names.
func (s *Store) SealedSecrets(ctx context.Context, tenantID string, names []string) ([]Secret, error) {
	return findAll[Secret](
		s.db.WithContext(ctx).Where("tenant_id = ? AND name = ANY (?::text[])", tenantID, idArray(names)),
	)
}

// DeleteSecret removes a secret of a tenant. Errors: ErrNotFound, *SecretUsedError.
func (s *Store) DeleteSecret(ctx context.Context, tenantID, name string) error {
	return s.db.Tx(ctx, func(tx *gorm.DB) error {
		var there []int
		// Who needs it from now on waits here, or we for them.
		err := tx.Raw("SELECT 1 FROM secrets WHERE tenant_id = ? AND name = ? FOR UPDATE", tenantID, name).
			Scan(&there).
			Error
		switch {
		case err != nil:
			return err
		case len(there) == 0:
			return ErrNotFound
		}
		if err := unusedSecret(tx, tenantID, name); err != nil {
			return err
		}
		return tx.Where("tenant_id = ? AND name = ?", tenantID, name).Delete(&Secret{}).Error
	})
}

// ProviderKeys are the secrets of a tenant that hold its keys of providers, by the names of these.
type ProviderKeys map[string]string

// NoSecretError says that a tenant has no secret of the name that stands for its key of a provider. The name is not
// told: it may be the key itself, by mistake.
type NoSecretError struct{ Provider string }

func (e *NoSecretError) Error() string {
	return fmt.Sprintf(
		"the tenant has no secret of the name that is given for provider %s; have one of its admins write the key "+
			"with PUT /v1/secrets/NAME first, and give that name",
		e.Provider,
	)
}

// SecretUsedError says why a secret cannot be deleted: sandboxes are made with it.
type SecretUsedError struct {
	Name      string
	Provider  string // for which it is the tenant's key; empty = for none any more
	Sandboxes int    // live ones that were made with it
	Recent    bool   // sandboxes were begun or ended with it so recently that something may be left of them
}

func (e *SecretUsedError) Error() string {
	if e.Provider != "" {
		return fmt.Sprintf("the secret %q is the tenant's key of the provider %s; ask your operator to remove it from "+
			"provider_keys of the tenant first", e.Name, e.Provider)
	}
	if e.Sandboxes == 0 {
		return fmt.Sprintf(
			"sandboxes were made with the key in the secret %q within the last day, and what may be left of them is "+
				"removed with it; delete it a day after the last one, or give it another value",
			e.Name,
		)
	}
	return fmt.Sprintf(
		"%d live sandboxes were made with the key in the secret %q and could not be deleted without it; delete "+
			"them first, or give the secret another value",
		e.Sandboxes,
		e.Name,
	)
}

// SetProviderKeys changes with which secrets new sandboxes of a tenant are made at the providers that are named; an
// empty name removes one. What was made or begun with another secret stays with that. Errors: ErrNotFound,
// *NoSecretError.
func (s *Store) SetProviderKeys(ctx context.Context, tenantID string, change ProviderKeys) error {
	set := map[string]*string{}
	for provider, name := range change {
		if set[provider] = nil; name != "" {
			set[provider] = &name
		}
	}
	return s.db.Tx(ctx, func(tx *gorm.DB) error {
		res := tx.Model(&Tenant{}).Where("id = ?", tenantID).
			Update("provider_keys", gorm.Expr("jsonb_strip_nulls(provider_keys || ?)", jsonOf(set)))
		if err := affected(res, ErrNotFound); err != nil {
			return err
		}
		for _, provider := range slices.Sorted(maps.Keys(change)) {
			if name := change[provider]; name != "" {
				if err := holdSecret(tx, provider, tenantID, name); err != nil {
					return err
				}
			}
		}
		return nil
	})
}

// holdSecret keeps a secret from being deleted until the transaction ends. Error: *NoSecretError.
func holdSecret(tx *gorm.DB, provider, tenantID, name string) error {
	var there []int
	err := tx.Raw("SELECT 1 FROM secrets WHERE tenant_id = ? AND name = ? FOR KEY SHARE", tenantID, name).
		Scan(&there).
		Error
	if err == nil && len(there) == 0 {
		return &NoSecretError{provider}
	}
	return err
}

// Account is whose key a sandbox is made with at its provider. The zero value is the operator's.
type Account struct {
	TenantID string
	Secret   string // the name of the tenant's secret that is the key
}

// account of a row with its provider_key.
func accountOf(tenantID, secret string) Account {
	if secret == "" {
		return Account{}
	}
	return Account{tenantID, secret}
}

// DecideAccount says with whose key a provider is to make a sandbox, and writes that down before it is made: what has
// been decided stays, whatever becomes of the tenant's setting. Errors: ErrNotFound where the sandbox is not the
// provider's to make any more, *NoSecretError.
func (s *Store) DecideAccount(ctx context.Context, provider, sandboxID string) (a Account, err error) {
	a, err = s.decideAccount(ctx, provider, sandboxID)
	if IsNoSecret(err) { // the setting may have been changed, and its secret deleted, between the two reads
		a, err = s.decideAccount(ctx, provider, sandboxID)
	}
	return a, err
}

func (s *Store) decideAccount(ctx context.Context, provider, sandboxID string) (a Account, err error) {
	err = s.db.Tx(ctx, func(tx *gorm.DB) error {
		var rows []struct{ TenantID, ProviderKey string }
		err := tx.Raw(`UPDATE sandboxes s SET provider_key = coalesce(s.provider_key, t.provider_keys->>@provider, '')
			FROM tenants t WHERE t.id = s.tenant_id AND s.id = @id AND s.provider = @provider AND s.ended_at IS NULL
			RETURNING s.tenant_id, s.provider_key`, map[string]any{"id": sandboxID, "provider": provider}).Scan(&rows).Error
		if err == nil && len(rows) == 0 {
			return ErrNotFound
		}
		if err != nil {
			return err
		}
		a = accountOf(rows[0].TenantID, rows[0].ProviderKey)
		if a == (Account{}) {
			return nil
		}
		if err := holdSecret(tx, provider, a.TenantID, a.Secret); err != nil {
			return err
		}
		return tx.Exec(`INSERT INTO provider_accounts (provider, tenant_id, secret) VALUES (?, ?, ?)
			ON CONFLICT (provider, tenant_id, secret) DO UPDATE SET used_at = now()`, provider, a.TenantID, a.Secret).Error
	})
	return a, err
}

// AccountRow is what the tables say of a sandbox that somebody has found at a provider.
type AccountRow struct {
	ID       string
	TenantID string
	Live     bool    // and to be at this provider
	Decided  bool    // with whose key it is made there
	Account  Account `gorm:"-"`

	ProviderKey *string
}

const accountRow = `SELECT id, tenant_id, provider_key, provider_key IS NOT NULL AND provider = @provider AS decided,
	ended_at IS NULL AND provider = @provider AS live FROM sandboxes WHERE `

// AccountRows returns what is known of sandboxes by their ids.
func (s *Store) AccountRows(ctx context.Context, provider string, ids []string) (map[string]AccountRow, error) {
	return s.accountRows(
		ctx,
		"id = ANY (CAST(@ids AS text[]))",
		map[string]any{"provider": provider, "ids": idArray(ids)},
	)
}

// LiveAccountRows returns AccountRows of the live sandboxes that a provider has made with keys of accounts. What nobody
// has decided counts as the operator's.
func (s *Store) LiveAccountRows(ctx context.Context, provider string, of []Account) (map[string]AccountRow, error) {
	all, err := s.accountRows(ctx, "ended_at IS NULL AND provider = @provider",
		map[string]any{"provider": provider})
	maps.DeleteFunc(all, func(_ string, r AccountRow) bool { return !slices.Contains(of, r.Account) })
	return all, err
}

func (s *Store) accountRows(ctx context.Context, which string, args map[string]any) (map[string]AccountRow, error) {
	var rows []AccountRow
	err := s.db.WithContext(ctx).Raw(accountRow+which, args).Scan(&rows).Error
	all := make(map[string]AccountRow, len(rows))
	for _, r := range rows {
		if r.Decided {
			r.Account = accountOf(r.TenantID, *r.ProviderKey)
		}
		all[r.ID] = r
	}
	return all, err
}

// accountsKept is how long an account counts as used after a sandbox was begun or has ended there: of what a lost
// create or delete has left nothing else may tell.
const accountsKept = "1 day"

// usedAccount is true for a row a of provider_accounts in which there may be sandboxes.
const usedAccount = `(a.used_at > now() - interval '` + accountsKept + `'
	OR EXISTS (SELECT 1 FROM sandboxes s WHERE s.tenant_id = a.tenant_id AND s.provider_key = a.secret
		AND s.provider_key <> '' AND s.provider = a.provider AND s.ended_at IS NULL)
	OR EXISTS (SELECT 1 FROM sandboxes s WHERE s.tenant_id = a.tenant_id AND s.provider_key = a.secret
		AND s.provider_key <> '' AND s.provider = a.provider AND s.ended_at > now() - interval '` + accountsKept + `'))`

// Accounts returns the tenants' accounts in which a provider may have sandboxes, as far as their secrets exist.
func (s *Store) Accounts(ctx context.Context, provider string) ([]Account, error) {
	return scanned[[]Account](s.db.WithContext(ctx).Raw(`SELECT a.tenant_id, a.secret FROM provider_accounts a
		JOIN secrets x ON x.tenant_id = a.tenant_id AND x.name = a.secret
		WHERE a.provider = ? AND `+usedAccount+`
		ORDER BY a.tenant_id, a.secret`, provider))
}

// unusedSecret refuses to delete a secret that sandboxes need. The caller has locked it. Error: *SecretUsedError.
func unusedSecret(tx *gorm.DB, tenantID, name string) error {
	var used struct {
		Provider  string
		Sandboxes int
		Recent    bool
	}
	err := tx.Raw(`SELECT coalesce((SELECT min(k.key) FROM tenants t, jsonb_each_text(t.provider_keys) k
			WHERE t.id = @tenant AND k.value = @name), '') AS provider,
		(SELECT count(*) FROM sandboxes WHERE tenant_id = @tenant AND provider_key = @name
			AND provider_key <> '' AND ended_at IS NULL) AS sandboxes,
		EXISTS (SELECT 1 FROM provider_accounts a WHERE a.tenant_id = @tenant AND a.secret = @name AND `+usedAccount+`) AS recent`,
		map[string]any{"tenant": tenantID, "name": name}).Scan(&used).Error
	if err == nil && (used.Provider != "" || used.Sandboxes > 0 || used.Recent) {
		return &SecretUsedError{Name: name, Provider: used.Provider, Sandboxes: used.Sandboxes, Recent: used.Recent}
	}
	return err
}

// IsNoSecret says whether an error is a *NoSecretError.
func IsNoSecret(err error) bool { return errors.As(err, new(*NoSecretError)) }
