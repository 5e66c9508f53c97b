package models

import (
	"context"
	"crypto/rand"
	"errors"
	"strings"
	"time"

	"gorm.io/gorm"
)

// Login is one time that a user logged in, until it ends. Only hashes of its refresh tokens are kept.
type Login struct {
	ID          string `gorm:"primaryKey"`
	UserID      string
	RefreshHash []byte
	BeforeHash  []byte
	CreatedAt   time.Time `gorm:"autoCreateTime:false;default:now()"`
	RefreshedAt time.Time `gorm:"autoCreateTime:false;default:now()"`
	ExpiresAt   time.Time
	EndedAt     *time.Time
}

// IsLogin says whether an id is a login's.
func IsLogin(id string) bool { return strings.HasPrefix(id, loginPrefix) }

// LoginLife is how long a login lasts. Then the user gives the password again.
const LoginLife = 30 * 24 * time.Hour

const (
	loginPrefix   = "lgn_"
	refreshPrefix = "ref_"
	// maxLogins bounds the logins of one user: a further one ends the oldest.
	maxLogins = 1000
	// refreshGrace is how long a refresh token still works that was used already: the answer may have been lost.
	refreshGrace = time.Minute
)

// ErrRefreshUsed says that a refresh token came a second time. Whoever has it may have stolen it, so its login has
// ended.
var ErrRefreshUsed = errors.New("the refresh token was used before, so its login has ended")

// liveLogin is the condition of logins that count.
const liveLogin = "ended_at IS NULL AND expires_at > now()"

// LogIn begins a login of a user, and returns it with its refresh token, which is not kept. The user's password must
// still be the one whose hash is given. Errors: ErrNotFound.
func (s *Store) LogIn(ctx context.Context, user, hash string) (Login, string, error) {
	l, refresh := Login{ID: NewID(loginPrefix), UserID: user}, newRefresh()
	l.RefreshHash = hashKey(refresh)
	err := s.db.Tx(ctx, func(tx *gorm.DB) error {
		var found []string
		err := tx.Raw("SELECT id FROM users WHERE id = ? AND password_hash = ? AND removed_at IS NULL FOR "+
			"UPDATE", user, hash).
			Scan(&found).
			Error
		if err != nil {
			return err
		}
		if len(found) == 0 { // removed, or another password, since it was checked
			return ErrNotFound
		}
		err = tx.Exec(`DELETE FROM logins WHERE user_id = @user AND (ended_at IS NOT NULL OR expires_at <= now() OR id IN (
			SELECT id FROM logins WHERE user_id = @user ORDER BY created_at DESC OFFSET @keep))`,
			map[string]any{"user": user, "keep": maxLogins - 1}).Error
		if err != nil {
			return err
		}
		if err := tx.Raw("SELECT now() + ?", milliseconds(LoginLife)).Scan(&l.ExpiresAt).Error; err != nil {
			return err
		}
		return tx.Create(&l).Error
	})
	return l, refresh, err
}

// Refresh exchanges the refresh token of a login for another one. Errors: ErrNotFound where it is none of a live login,
// ErrRefreshUsed.
func (s *Store) Refresh(ctx context.Context, refresh string) (l Login, next string, err error) {
	next, old := newRefresh(), hashKey(refresh)
	if !strings.HasPrefix(refresh, refreshPrefix) {
		return Login{}, "", ErrNotFound
	}
	var stolen bool
	err = s.db.Tx(ctx, func(tx *gorm.DB) error {
		stolen = false
		var row struct {
			Login

			Late bool
		}
		err := tx.Raw(`SELECT l.*, refreshed_at + ? < now() AS late FROM logins l JOIN users u ON u.id = user_id AND removed_at IS NULL
			WHERE (refresh_hash = ? OR before_hash = ?) AND `+liveLogin+" FOR UPDATE OF l", milliseconds(refreshGrace), old, old).
			Take(&row).
			Error
		if err != nil {
			return notFound(err)
		}
		l = row.Login
		if string(l.RefreshHash) == string(old) {
			return tx.Exec(
				"UPDATE logins SET before_hash = refresh_hash, refresh_hash = ?, refreshed_at = now() WHERE id = ?",
				hashKey(next),
				l.ID,
			).Error
		}
		if stolen = row.Late; stolen {
			return endLogin(tx, l.ID)
		}
		return tx.Exec("UPDATE logins SET refresh_hash = ? WHERE id = ?", hashKey(next), l.ID).Error
	})
	if err == nil && stolen {
		err = ErrRefreshUsed
	}
	return l, next, err
}

// EndLogin signs a user out: the tokens of the login do not count any more.
func (s *Store) EndLogin(ctx context.Context, id string) error {
	return endLogin(s.db.WithContext(ctx), id)
}

func endLogin(tx *gorm.DB, id string) error {
	return tx.Exec("UPDATE logins SET ended_at = now() WHERE id = ? AND ended_at IS NULL", id).Error
}

// LoginUser returns whose login it is, or ErrNotFound when it has ended.
func (s *Store) LoginUser(ctx context.Context, login string) (User, error) {
	return takeOne[User](s.db.WithContext(ctx).Raw(`SELECT u.* FROM logins l JOIN users u ON u.id = l.user_id
		WHERE l.id = ? AND u.removed_at IS NULL AND `+liveLogin, login))
}

func newRefresh() string { return refreshPrefix + strings.ToLower(rand.Text()+rand.Text()) }

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
