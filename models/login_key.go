package models

import (
	"context"
	"time"

	"gorm.io/gorm"
)

// SigningKey is what tokens are signed with. The newest signs; older ones are still believed.
type SigningKey struct {
	ID        string `gorm:"primaryKey"`
	Secret    []byte
	CreatedAt time.Time `gorm:"autoCreateTime:false;default:now()"`
}

// signingKeyLife is how long a key signs before another one takes over.
const signingKeyLife = 30 * 24 * time.Hour

// SigningKeys returns what tokens may be signed with, the newest first. Where the newest is too old, or there is none
// yet, fresh becomes the newest; those that were replaced over tokenLife ago are deleted, as no token of them counts.
func (s *Store) SigningKeys(ctx context.Context, fresh []byte, tokenLife time.Duration) ([]SigningKey, error) {
	var all []SigningKey
	if err := s.db.WithContext(ctx).Order("created_at DESC, id DESC").Find(&all).Error; err != nil {
		return nil, err
	}
	if len(all) > 0 && s.Now(ctx).Sub(all[0].CreatedAt) < signingKeyLife {
		return all, nil
	}
	return s.addSigningKey(ctx, fresh, signingKeyLife, tokenLife)
}

// RotateSigningKey makes fresh the newest key. end deletes all others and ends all logins; without it their tokens
// count until they expire.
func (s *Store) RotateSigningKey(
	ctx context.Context,
	fresh []byte,
	tokenLife time.Duration,
	end bool,
) ([]SigningKey, error) {
	if !end {
		return s.addSigningKey(ctx, fresh, 0, tokenLife)
	}
	keys, err := s.addSigningKey(ctx, fresh, 0, 0)
	if err != nil {
		return nil, err
	}
	return keys, s.db.WithContext(ctx).Exec("UPDATE logins SET ended_at = now() WHERE ended_at IS NULL").Error
}

// addSigningKey makes fresh the newest key unless the newest is younger than age: many processes may want one at once.
func (s *Store) addSigningKey(ctx context.Context, fresh []byte, age, tokenLife time.Duration) ([]SigningKey, error) {
	return inTx(ctx, s.db, func(tx *gorm.DB) ([]SigningKey, error) {
		if err := tx.Exec("LOCK TABLE signing_keys IN SHARE ROW EXCLUSIVE MODE").Error; err != nil {
			return nil, err
		}
		err := tx.Exec(`INSERT INTO signing_keys (id, secret) SELECT ?, ? WHERE NOT EXISTS (
			SELECT 1 FROM signing_keys WHERE created_at > now() - ?)`, NewID("sig_"), fresh, milliseconds(age)).Error
		if err != nil {
			return nil, err
		}
		// A key signs until the next one is made, and a process may take seconds to learn of that.
		err = tx.Exec(`DELETE FROM signing_keys k WHERE EXISTS (
			SELECT 1 FROM signing_keys n WHERE n.created_at > k.created_at AND n.created_at <= now() - ?)`, milliseconds(tokenLife)).Error
		if err != nil {
			return nil, err
		}
		return findAll[SigningKey](tx.Order("created_at DESC, id DESC"))
	})
}
