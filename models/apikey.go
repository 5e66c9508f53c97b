package models

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"
	"time"
	"unicode"

	"gorm.io/gorm"

	"sandyard/models/pg"
)

// APIKey lets its bearer act for a tenant. Only its hash is stored.
type APIKey struct {
	ID        string `gorm:"primaryKey"`
	TenantID  string
	Name      string
	Hint      string
	Hash      []byte
	Scopes    []string  `gorm:"serializer:json;type:jsonb"`
	CreatedAt time.Time `gorm:"autoCreateTime:false;default:now()"`
	RevokedAt *time.Time
	ExpiresAt *time.Time
	// ReplacedBy is the id of the key that it was rotated to.
	ReplacedBy *string
	// LastUsedAt is written once a minute at most.
	LastUsedAt *time.Time
	UserID     *string // whose limits hold for it
}

// Scopes of a key.
const (
	ScopeSandboxes = "sandboxes" // the tenant's work: also what the four after it open
	ScopeJobs      = "jobs"      // to read, cancel and retry jobs
	ScopeFiles     = "files"     // files of sandboxes
	ScopeTemplates = "templates" // templates and their builds
	ScopeWebhooks  = "webhooks"  // the webhook secret
	ScopeAdmin     = "admin"     // the tenant's keys, users and secrets
	ScopeOperator  = "operator"  // the operators' pages, tenants, and what an admin may do
)

// Scopes are all that there are.
func Scopes() []string {
	return []string{ScopeSandboxes, ScopeJobs, ScopeFiles, ScopeTemplates, ScopeWebhooks, ScopeAdmin, ScopeOperator}
}

// Opens says whether scopes open what needs one.
func Opens(scopes []string, scope string) bool {
	if slices.Contains(scopes, scope) {
		return true
	}
	switch scope {
	case ScopeJobs, ScopeFiles, ScopeTemplates, ScopeWebhooks:
		return slices.Contains(scopes, ScopeSandboxes)
	case ScopeAdmin:
		return slices.Contains(scopes, ScopeOperator)
	}
	return false
}

// MaxKeyName is how long the name of a key may be, in bytes.
const MaxKeyName = 100

// Keys returns a tenant's keys without their hashes, the newest first.
func (s *Store) Keys(ctx context.Context, tenantID string, limit int) ([]APIKey, error) {
	return findAll[APIKey](s.db.WithContext(ctx).
		Omit("hash").
		Where("tenant_id = ?", tenantID).
		Order("created_at DESC, id").
		Limit(limit))
}

// ReplacedError says that a key was rotated before.
type ReplacedError struct{ By string }

func (e *ReplacedError) Error() string {
	return "the key was rotated before; its successor is " + e.By + ": rotate or revoke that one"
}

// RotateKey makes another key in place of one, with its name and its scopes, and returns its plain text, which is not
// kept. The old one is refused after overlap. The new one has a life as long as the old one's. Errors: ErrNotFound,
// ErrRevoked, *ReplacedError.
func (s *Store) RotateKey(ctx context.Context, tenantID, id string, overlap time.Duration) (plain string, err error) {
	err = s.db.Tx(ctx, func(tx *gorm.DB) error {
		var old struct {
			APIKey

			Over bool
		}
		err := tx.Raw("SELECT *, NOT "+unexpired+" AS over FROM api_keys WHERE tenant_id = ? AND id = ? FOR "+
			"UPDATE", tenantID, id).
			Take(&old).
			Error
		switch {
		case err != nil:
			return notFound(err)
		case old.ReplacedBy != nil:
			return &ReplacedError{*old.ReplacedBy}
		case old.RevokedAt != nil || old.Over:
			return ErrRevoked
		}
		prefix, next := keyPrefix, NewID("key_")
		if strings.HasPrefix(old.Hint, e2bKeyPrefix) {
			prefix = e2bKeyPrefix
		}
		err = tx.Exec(
			"UPDATE api_keys SET replaced_by = ?, expires_at = least(expires_at, now() + ?) WHERE id = ?",
			next,
			milliseconds(overlap),
			id,
		).Error
		if err != nil {
			return err
		}
		if plain, err = insertKey(tx, next, prefix, tenantID, old.Name, old.Scopes); err != nil {
			return err
		}
		err = tx.Exec("UPDATE api_keys SET user_id = ? WHERE id = ?", old.UserID, next).Error
		if err != nil || old.ExpiresAt == nil {
			return err
		}
		return tx.Exec(
			"UPDATE api_keys SET expires_at = now() + (?::timestamptz - ?::timestamptz) WHERE id = ?",
			old.ExpiresAt,
			old.CreatedAt,
			next,
		).Error
	})
	return plain, err
}

// Key returns one of a tenant's keys, or ErrNotFound.
func (s *Store) Key(ctx context.Context, tenantID, id string) (APIKey, error) {
	return takeOne[APIKey](s.db.WithContext(ctx).Where("tenant_id = ? AND id = ?", tenantID, id))
}

// CreateKey makes another key for a tenant and returns its plain text, which is not kept. Valid keys of a tenant have
// different names. Errors: ErrKeyNamed, ErrKeyName.
func (s *Store) CreateKey(ctx context.Context, tenantID, name string, scopes []string) (string, error) {
	return s.MakeKey(ctx, tenantID, NewKey{Name: name, Scopes: scopes})
}

// NewKey says what a key is to be.
type NewKey struct {
	Name   string
	Scopes []string
	Life   time.Duration // 0 = until it is revoked
	E2B    bool          // E2B's clients take it for one of theirs
	User   string        // the id of the user whose limits hold for it; empty = nobody's
}

// MakeKey is CreateKey with all that can be said of a key. Further errors: ErrNotFound where the tenant has no such
// user, ErrBeyondRole.
func (s *Store) MakeKey(ctx context.Context, tenantID string, k NewKey) (string, error) {
	prefix := keyPrefix
	if k.E2B {
		prefix = e2bKeyPrefix
	}
	var plain string
	err := s.db.Tx(ctx, func(tx *gorm.DB) (err error) {
		if plain, err = createKey(tx, prefix, tenantID, k.Name, k.Scopes); err != nil {
			return err
		}
		if k.User != "" {
			err = giveKey(tx, tenantID, k, plain)
		}
		if err != nil || k.Life <= 0 {
			return err
		}
		return tx.Exec(
			"UPDATE api_keys SET expires_at = now() + make_interval(secs => ?) WHERE hash = ?",
			k.Life.Seconds(),
			hashKey(plain),
		).Error
	})
	return plain, err
}

// giveKey makes a new key one of its user, whose role cannot change meanwhile.
func giveKey(tx *gorm.DB, tenantID string, k NewKey, plain string) error {
	u, err := lockUser(tx, tenantID, k.User)
	if err != nil {
		return err
	}
	if slices.ContainsFunc(k.Scopes, func(scope string) bool { return !Opens(u.Scopes(), scope) }) {
		return ErrBeyondRole
	}
	return tx.Exec("UPDATE api_keys SET user_id = ? WHERE hash = ?", u.ID, hashKey(plain)).Error
}

// CreateE2BKey is CreateKey for a key that E2B's clients take for one of theirs.
func (s *Store) CreateE2BKey(ctx context.Context, tenantID, name string, scopes []string) (string, error) {
	return s.MakeKey(ctx, tenantID, NewKey{Name: name, Scopes: scopes, E2B: true})
}

// How keys begin.
const (
	keyPrefix    = "sy_"
	e2bKeyPrefix = "e2b_"
)

// keyBytes is how many random bytes a key has, which it writes in hexadecimal.
const keyBytes = 20

// E2BSpelling is how E2B's clients take a key of ours: some insist on their own form. Both spellings are the same key.
func E2BSpelling(plain string) string {
	if secret, ours := strings.CutPrefix(plain, keyPrefix); ours {
		return e2bKeyPrefix + secret
	}
	return plain
}

// spellings are the texts of which one was made as a key, where another may be sent.
func spellings(plain string) []string {
	secret, ok := strings.CutPrefix(plain, keyPrefix)
	if !ok {
		if secret, ok = strings.CutPrefix(plain, e2bKeyPrefix); !ok {
			return []string{plain}
		}
	}
	return []string{keyPrefix + secret, e2bKeyPrefix + secret}
}

// hashesOf are the hashes under which a key may be kept.
func hashesOf(plain string) [][]byte {
	var all [][]byte
	for _, text := range spellings(plain) {
		all = append(all, hashKey(text))
	}
	return all
}

// IsKey says whether text has the form of an API key.
func IsKey(text string) bool {
	secret, ours := strings.CutPrefix(text, keyPrefix)
	if !ours {
		if secret, ours = strings.CutPrefix(text, e2bKeyPrefix); !ours {
			return false
		}
	}
	_, err := hex.DecodeString(secret)
	return err == nil && len(secret) == 2*keyBytes
}

func createKey(tx *gorm.DB, prefix, tenantID, name string, scopes []string) (string, error) {
	return insertKey(tx, NewID("key_"), prefix, tenantID, name, scopes)
}

func insertKey(tx *gorm.DB, id, prefix, tenantID, name string, scopes []string) (string, error) {
	secret := make([]byte, keyBytes)
	rand.Read(secret) // never fails
	key := prefix + hex.EncodeToString(secret)
	if name == "" || len(name) > MaxKeyName ||
		strings.ContainsFunc(name, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return "", ErrKeyName
	}
	err := tx.Create(&APIKey{
		ID: id, TenantID: tenantID, Name: name, Hint: key[:len(prefix)+4], Hash: hashKey(key), Scopes: scopes,
	}).Error
	if pg.IsUniqueViolation(err) {
		return "", ErrKeyNamed
	}
	return key, err
}

// unexpired is the condition of keys whose time is not over.
const unexpired = "(expires_at IS NULL OR expires_at > now())"

// KeysUsed writes down that keys were used.
func (s *Store) KeysUsed(ctx context.Context, ids []string) error {
	return s.db.WithContext(ctx).Exec(`UPDATE api_keys SET last_used_at = now() WHERE id = ANY (?)
		AND (last_used_at IS NULL OR last_used_at < now() - interval '1 minute')`, idArray(ids)).Error
}

// Authenticate returns the key whose plain text this is. Errors: ErrNotFound, ErrRevoked.
func (s *Store) Authenticate(ctx context.Context, plain string) (APIKey, error) {
	var k APIKey
	err := s.db.WithContext(ctx).Where("hash IN ? AND "+unexpired, hashesOf(plain)).Take(&k).Error
	if err == nil && k.RevokedAt != nil {
		return APIKey{}, ErrRevoked
	}
	return k, notFound(err)
}

// ValidKeys returns the keys, of those whose plain texts these are, that are valid, by their plain texts.
func (s *Store) ValidKeys(ctx context.Context, plain []string) (map[string]APIKey, error) {
	texts := make(map[string][]string, 2*len(plain)) // by the hashes under which they may be kept
	var hashes idArray
	for _, text := range plain {
		for _, h := range hashesOf(text) {
			hash := hex.EncodeToString(h)
			if texts[hash] == nil {
				hashes = append(hashes, hash)
			}
			texts[hash] = append(texts[hash], text)
		}
	}
	var keys []APIKey
	err := s.db.WithContext(ctx).
		Where("revoked_at IS NULL AND "+unexpired+" AND hash IN (SELECT decode(h, 'hex') FROM unnest(?::text[]) h)", hashes).
		Find(&keys).
		Error
	valid := make(map[string]APIKey, len(keys))
	for _, k := range keys {
		for _, text := range texts[hex.EncodeToString(k.Hash)] {
			valid[text] = k
		}
	}
	return valid, err
}

// RevokeKey makes a key invalid from now on: one of a tenant, by its id or its plain text. Streams that it has opened
// end within seconds. A key that was revoked before stays so. Error: ErrNotFound.
func (s *Store) RevokeKey(ctx context.Context, tenantID, key string) error {
	res := s.db.WithContext(ctx).
		Model(&APIKey{}).
		Where("tenant_id = ? AND (id = ? OR hash IN ?)", tenantID, key, hashesOf(key)).
		Update("revoked_at", gorm.Expr("coalesce(revoked_at, now())"))
	return affected(res, ErrNotFound)
}

// RevokedKeys returns those of the ids that are no valid keys, nor live logins, any more.
func (s *Store) RevokedKeys(ctx context.Context, ids []string) ([]string, error) {
	var valid []string
	err := s.db.WithContext(ctx).
		Raw(`SELECT id FROM api_keys WHERE id = ANY (@ids) AND revoked_at IS NULL AND `+unexpired+`
		UNION ALL SELECT id FROM logins WHERE id = ANY (@ids) AND `+liveLogin, map[string]any{"ids": idArray(ids)}).
		Scan(&valid).
		Error
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(slices.Clone(ids), func(id string) bool { return slices.Contains(valid, id) }), nil
}

// hashKey needs no salt or stretching: a key carries 160 random bits.
func hashKey(plain string) []byte {
	h := sha256.Sum256([]byte(plain))
	return h[:]
}
