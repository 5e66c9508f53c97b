package models

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"slices"
	"strings"
	"time"
	"unicode"

	"gorm.io/gorm"
	"gorm.io/gorm/clause"

	"sandyard/models/pg"
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
	RemovedAt    *time.Time
	Quota        Quota `gorm:"embedded"` // below the tenant's, for what the user's logins, keys and schedules make
	Rate         Rate  `gorm:"embedded"`
	MaxQueued    *int
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
	// ErrBeyondRole says that a key would open more than its user's role.
	ErrBeyondRole = errors.New("a user's key cannot open more than the user's role does")
)

// CreateUser adds a user to a tenant. Errors: ErrUserName, ErrUserNamed, ErrNoTenant.
func (s *Store) CreateUser(ctx context.Context, tenantID, name, hash, role string) (User, error) {
	bad := func(r rune) bool { return !unicode.IsPrint(r) || unicode.IsSpace(r) }
	if name == "" || len(name) > MaxUserName || strings.ContainsFunc(name, bad) {
		return User{}, ErrUserName
	}
	if _, err := s.Tenant(ctx, tenantID); errors.Is(err, ErrNotFound) {
		return User{}, ErrNoTenant
	} else if err != nil {
		return User{}, err
	}
	u := User{ID: NewID("usr_"), TenantID: tenantID, Name: name, PasswordHash: hash, Role: role}
	err := s.db.WithContext(ctx).Create(&u).Error
	if pg.IsUniqueViolation(err) {
		err = ErrUserNamed
	}
	return u, err
}

// Users lists a tenant's users by name, without their passwords.
func (s *Store) Users(ctx context.Context, tenantID string, limit int) ([]User, error) {
	return findAll[User](s.db.WithContext(ctx).
		Omit("password_hash").
		Where("tenant_id = ? AND removed_at IS NULL", tenantID).
		Order("name").
		Limit(limit))
}

// UserNamed returns the user of a name, or ErrNotFound.
func (s *Store) UserNamed(ctx context.Context, name string) (User, error) {
	return takeOne[User](s.db.WithContext(ctx).Where("name = ? AND removed_at IS NULL", name))
}

// UserChange is what changes of a user; empty = it stays.
type UserChange struct {
	PasswordHash string
	Role         string
	Limits       Ceilings
}

// ChangeUser changes a user of a tenant. Another password ends the user's logins, a lesser role the keys that open
// more. Errors: ErrNotFound, ErrCeiling.
func (s *Store) ChangeUser(ctx context.Context, tenantID, id string, to UserChange) (User, error) {
	set, err := to.Limits.columns()
	if err != nil {
		return User{}, err
	}
	if to.PasswordHash != "" {
		set["password_hash"] = to.PasswordHash
	}
	if to.Role != "" {
		set["role"] = to.Role
	}
	return inTx(ctx, s.db, func(tx *gorm.DB) (User, error) {
		u, err := lockUser(tx, tenantID, id)
		if err == nil {
			err = tx.Model(&User{}).Where("id = ?", id).Updates(set).Error
		}
		if err == nil {
			u, err = userOf(tx, tenantID, id)
		}
		if err == nil {
			err = revokeBeyond(tx, u)
		}
		if err == nil && to.PasswordHash != "" {
			err = endLogins(tx, id)
		}
		return u, err
	})
}

// revokeBeyond ends keys of a user that open more than the role does, after it became a lesser one.
func revokeBeyond(tx *gorm.DB, u User) error {
	return tx.Exec(
		"UPDATE api_keys SET revoked_at = now() WHERE user_id = ? AND revoked_at IS NULL AND NOT scopes <@ ?::jsonb",
		u.ID,
		string(must(json.Marshal(u.opens()))),
	).Error
}

// opens are all scopes that the user's role opens.
func (u User) opens() []string {
	return slices.DeleteFunc(Scopes(), func(scope string) bool { return !Opens(u.Scopes(), scope) })
}

// RemoveUser lets a user of a tenant in no more: logins and keys of the user end. The name becomes free.
func (s *Store) RemoveUser(ctx context.Context, tenantID, id string) (User, error) {
	return inTx(ctx, s.db, func(tx *gorm.DB) (User, error) {
		u, err := lockUser(tx, tenantID, id)
		if err != nil {
			return u, err
		}
		err = tx.Exec(
			"UPDATE users SET removed_at = now(), name = name || ' ' || id, password_hash = '' WHERE id = ?",
			u.ID,
		).Error
		if err == nil {
			err = tx.Exec("UPDATE api_keys SET revoked_at = now() WHERE user_id = ? AND revoked_at IS NULL", u.ID).Error
		}
		if err == nil {
			err = endLogins(tx, u.ID)
		}
		return u, err
	})
}

// User returns a user of a tenant, or ErrNotFound.
func (s *Store) User(ctx context.Context, tenantID, id string) (User, error) {
	return userOf(s.db.WithContext(ctx), tenantID, id)
}

func lockUser(tx *gorm.DB, tenantID, id string) (User, error) {
	return userOf(tx.Clauses(clause.Locking{Strength: "UPDATE"}), tenantID, id)
}

func userOf(tx *gorm.DB, tenantID, id string) (User, error) {
	return takeOne[User](tx.Where("tenant_id = ? AND id = ? AND removed_at IS NULL", tenantID, id))
}

func endLogins(tx *gorm.DB, user string) error {
	return tx.Exec("UPDATE logins SET ended_at = now() WHERE user_id = ? AND ended_at IS NULL", user).Error
}

// userState is what decides, beside the tenant's state, whether a user's new sandboxes are let in.
type userState struct {
	Quota
	Standing

	ID string
}

// userLimit begins the names of limits that one user has.
const userLimit = "user_"

// readUsers reads, behind the locks of their tenants, what the admission of the sandboxes of these users depends on.
func (b *batch) readUsers(users []string) error {
	b.users = map[string]*userState{}
	if len(users) == 0 {
		return nil
	}
	return pg.Enqueue(pg.Build(b.tx).Raw(`SELECT u.id, u.max_sandboxes, u.max_cpus, u.max_memory_mib, s.*
		FROM users u, LATERAL (`+standing+`tenant_id = u.tenant_id AND user_id = u.id) s
		WHERE u.id = ANY (?::text[])`, idArray(users)), pg.Each(func(u userState) { b.users[u.ID] = &u }))
}

// refuseSandbox says which limit of its tenant or its user a new sandbox meets, and counts one that meets none.
func (b *batch) refuseSandbox(t *tenantState, box *Sandbox) error {
	var user *userState
	if box.UserID != nil {
		user = b.users[*box.UserID]
	}
	if err := t.refusal("", t.Standing, box); err != nil {
		return err
	}
	if user == nil {
		return nil
	}
	return user.refusal(userLimit, user.Standing, box)
}

// stand counts a sandbox that was let in.
func (b *batch) stand(t *tenantState, box *Sandbox) {
	t.add(box)
	if box.UserID != nil && b.users[*box.UserID] != nil {
		b.users[*box.UserID].add(box)
	}
}

// actsFor are the actors who act for a user, whom the parameter names: logins, keys and schedules.
const actsFor = `ARRAY(SELECT @user UNION ALL SELECT id FROM api_keys WHERE user_id = @user
	UNION ALL SELECT 'schedule:' || id FROM schedules WHERE user_id = @user)`

// WaitingOf counts a user's queued jobs as Waiting counts a tenant's. A user without a limit is not counted.
func (s *Store) WaitingOf(ctx context.Context, user string) (Waiting, error) {
	w := Waiting{MaxQueued: math.MaxInt, MaxQueuedBytes: math.MaxInt}
	var most struct {
		Rate Rate `gorm:"embedded"`

		MaxQueued *int
	}
	err := s.db.WithContext(ctx).
		Raw("SELECT max_queued, job_rate, job_burst FROM users WHERE id = ?", user).
		Scan(&most).
		Error
	if w.Rate = most.Rate; err != nil || most.MaxQueued == nil {
		return w, err
	}
	w.MaxQueued = *most.MaxQueued
	w.Jobs, err = s.queuedOf(ctx, user)
	return w, err
}

// queuedOf counts a user's queued jobs.
func (s *Store) queuedOf(ctx context.Context, user string) (n int, err error) {
	return scanned[int](s.db.WithContext(ctx).Raw(`SELECT count(*) FROM jobs
		WHERE tenant_id = (SELECT tenant_id FROM users WHERE id = @user) AND state = 'queued'
		AND NOT (ready_at IS NULL AND `+left+`) AND actor = ANY (`+actsFor+`)`, map[string]any{"user": user}))
}
