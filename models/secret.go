package models

import (
	"context"
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
	var out Secret
	err := s.db.Tx(ctx, func(tx *gorm.DB) error {
		// Two that are new must not count at once.
		if err := tx.Exec("SELECT 1 FROM tenants WHERE id = ? FOR NO KEY UPDATE", tenantID).Error; err != nil {
			return err
		}
		var others int
		err := tx.Raw("SELECT count(*) FROM secrets WHERE tenant_id = ? AND name <> ?", tenantID, name).Scan(&others).Error
		if err != nil {
			return err
		}
		if others >= MaxSecrets {
			return &LimitError{Limit: "secrets", Used: float64(others), Max: MaxSecrets}
		}
		return tx.Raw(`INSERT INTO secrets (tenant_id, name, sealed) VALUES (?, ?, ?)
			ON CONFLICT (tenant_id, name) DO UPDATE SET sealed = excluded.sealed, updated_at = now()
			RETURNING tenant_id, name, created_at, updated_at`, tenantID, name, sealed).Scan(&out).Error
	})
	return out, err
}

// Secrets lists a tenant's secrets by name, without their values.
func (s *Store) Secrets(ctx context.Context, tenantID string) ([]Secret, error) {
	var all []Secret
	err := s.db.WithContext(ctx).
		Omit("sealed").
		Where("tenant_id = ?", tenantID).
		Order("name").
		Limit(MaxSecrets).
		Find(&all).
		Error
	return all, err
}

// SealedSecrets returns those of a tenant's secrets that have one of the names.
func (s *Store) SealedSecrets(ctx context.Context, tenantID string, names []string) ([]Secret, error) {
	var all []Secret
	err := s.db.WithContext(ctx).Where("tenant_id = ? AND name = ANY (?::text[])", tenantID, idArray(names)).Find(&all).Error
	return all, err
}

// DeleteSecret removes a secret of a tenant. Error: ErrNotFound.
func (s *Store) DeleteSecret(ctx context.Context, tenantID, name string) error {
	res := s.db.WithContext(ctx).Where("tenant_id = ? AND name = ?", tenantID, name).Delete(&Secret{})
	if res.Error == nil && res.RowsAffected == 0 {
		return ErrNotFound
	}
	return res.Error
}
