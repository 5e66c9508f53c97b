package models

import (
	"context"
	"errors"
	"strings"
	"time"
	"unicode"
)

// Roles of users.
const (
	RoleMember   = "member"   // works with the tenant's sandboxes
	RoleAdmin    = "admin"    // and manages its users and keys
	RoleOperator = "operator" // and the installation
)

// User is somebody who logs in with a password, and works for a tenant.
type User struct {
	ID           string `gorm:"primaryKey"`
	TenantID     string
	Name         string
	PasswordHash string
	Role         string
	CreatedAt    time.Time `gorm:"autoCreateTime:false;default:now()"`
	TokensSince  time.Time `gorm:"autoCreateTime:false;default:now()"`
	RemovedAt    *time.Time
}

// Scopes is what the user may do.
func (u User) Scopes() []string {
	switch u.Role {
	case RoleOperator:
		return []string{ScopeSandboxes, ScopeAdmin, ScopeOperator}
	case RoleAdmin:
		return []string{ScopeSandboxes, ScopeAdmin}
	}
	return []string{ScopeSandboxes}
}

// SigningKey is what tokens are signed with.
type SigningKey struct {
	ID        string `gorm:"primaryKey"`
	Secret    []byte
	CreatedAt time.Time `gorm:"autoCreateTime:false;default:now()"`
}

// MaxUserName is how long a user's name may be, in bytes.
const MaxUserName = 100

// What is wrong with a new user.
var (
	// ErrUserName says that nobody can be called so.
	ErrUserName = errors.New("the name of a user must have 1 to 100 printable characters without spaces")
	// ErrUserNamed says that there is such a user already.
	ErrUserNamed = errors.New("a user with this name exists; choose another name, or set a new password")
	// ErrNoTenant says that there is no such tenant.
	ErrNoTenant = errors.New("there is no such tenant")
)

// CreateUser adds a user to a tenant. Errors: ErrUserName, ErrUserNamed, ErrNoTenant.
func (s *Store) CreateUser(ctx context.Context, tenant, name, hash, role string) (User, error) {
	bad := func(r rune) bool { return !unicode.IsPrint(r) || unicode.IsSpace(r) }
	if name == "" || len(name) > MaxUserName || strings.ContainsFunc(name, bad) {
		return User{}, ErrUserName
	}
	if _, err := s.Tenant(ctx, tenant); errors.Is(err, ErrNotFound) {
		return User{}, ErrNoTenant
	} else if err != nil {
		return User{}, err
	}
	u := User{ID: NewID("usr_"), TenantID: tenant, Name: name, PasswordHash: hash, Role: role}
	err := s.db.WithContext(ctx).Create(&u).Error
	if isUniqueViolation(err) {
		err = ErrUserNamed
	}
	return u, err
}

// Users lists a tenant's users by name, without their passwords.
func (s *Store) Users(ctx context.Context, tenant string, limit int) ([]User, error) {
	var all []User
	err := s.db.WithContext(ctx).Omit("password_hash").Where("tenant_id = ? AND removed_at IS NULL", tenant).Order("name").Limit(limit).Find(&all).Error
	return all, err
}

// UserNamed returns the user of a name, or ErrNotFound.
func (s *Store) UserNamed(ctx context.Context, name string) (User, error) {
	var u User
	err := s.db.WithContext(ctx).Where("name = ? AND removed_at IS NULL", name).Take(&u).Error
	return u, notFound(err)
}

// User returns a user, or ErrNotFound.
func (s *Store) User(ctx context.Context, id string) (User, error) {
	var u User
	err := s.db.WithContext(ctx).Where("id = ? AND removed_at IS NULL", id).Take(&u).Error
	return u, notFound(err)
}

// SetPassword gives a user of a tenant another password. Tokens of the old one do not count any more.
func (s *Store) SetPassword(ctx context.Context, tenant, name, hash string) error {
	return s.changeUser(ctx, tenant, name, `password_hash = ?, tokens_since = now()`, hash)
}

// RemoveUser lets a user of a tenant in no more. The name becomes free.
func (s *Store) RemoveUser(ctx context.Context, tenant, name string) error {
	return s.changeUser(ctx, tenant, name, `removed_at = now(), name = name || ' ' || id, password_hash = ''`)
}

func (s *Store) changeUser(ctx context.Context, tenant, name, set string, values ...any) error {
	res := s.db.WithContext(ctx).Exec("UPDATE users SET "+set+" WHERE tenant_id = ? AND name = ? AND removed_at IS NULL", append(values, tenant, name)...)
	if res.Error == nil && res.RowsAffected == 0 {
		return ErrNotFound
	}
	return res.Error
}

// SigningKeys returns what tokens may be signed with, the newest first. Where there is none yet, fresh becomes the first.
func (s *Store) SigningKeys(ctx context.Context, fresh []byte) ([]SigningKey, error) {
	db := s.db.WithContext(ctx)
	err := db.Exec("INSERT INTO signing_keys (id, secret) SELECT ?, ? WHERE NOT EXISTS (SELECT 1 FROM signing_keys)", NewID("sig_"), fresh).Error
	if err != nil {
		return nil, err
	}
	var all []SigningKey
	return all, db.Order("created_at DESC, id DESC").Find(&all).Error
}
