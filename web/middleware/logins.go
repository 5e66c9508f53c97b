package middleware

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/gofiber/fiber/v2"

	"sandyard/auth"
	"sandyard/models"
	"sandyard/web/problem"
)

const (
	// userLife is how long a user is believed to be as read: one who is removed gets in no longer than that.
	userLife = 10 * time.Second
	// accountFailures and addressFailures are how many logins of one account, and from one address, may fail in
	// failureSpan. A proxy in front is one address for all.
	accountFailures = 10
	addressFailures = 100
	failureSpan     = 10 * time.Minute
	// maxPending is how many passwords are checked or wait for that: each takes memory and time.
	maxPending = 32
	// maxCounted bounds the memory for that, and for users.
	maxCounted = 10000
)

// logins knows the users of this process's requests.
type logins struct {
	store *models.Store

	mu      sync.Mutex
	keys    []models.SigningKey
	keysAt  time.Time
	users   map[string]cachedUser
	failed  map[string]failures // by account and by address
	pending chan struct{}
}

type cachedUser struct {
	user models.User
	at   time.Time
}

type failures struct {
	n     int
	begin time.Time
}

func newLogins(store *models.Store) *logins {
	return &logins{store: store, users: map[string]cachedUser{}, failed: map[string]failures{}, pending: make(chan struct{}, maxPending)}
}

// Login returns a token for a user, who is found by name and password. Errors: a problem 401, or 429 after too many
// failures of the name or from the address.
func (s *Stack) Login(c *fiber.Ctx, name, password string) (string, error) {
	ctx, l := c.UserContext(), s.logins
	select {
	case l.pending <- struct{}{}:
		defer func() { <-l.pending }()
	default:
		return "", problem.RetryLater(problem.New(http.StatusServiceUnavailable, "logins_busy", "too many logins are under way; try again"), 1)
	}
	counted := map[string]int{accountOf(name): accountFailures, "address " + c.IP(): addressFailures}
	if wait := l.blocked(counted); wait > 0 {
		return "", problem.RetryLater(problem.New(http.StatusTooManyRequests, "too_many_logins",
			fmt.Sprintf("too many logins have failed; try again in %d s", wait)), wait)
	}
	user, err := l.store.UserNamed(ctx, name)
	if err != nil && !errors.Is(err, models.ErrNotFound) {
		return "", err
	}
	right, err := auth.CheckPassword(user.PasswordHash, password)
	if err != nil {
		return "", err
	}
	if !right {
		l.count(counted)
		s.log.WarnContext(ctx, "login failed", "request_id", RequestOf(ctx).ID, "client", c.IP())
		return "", problem.New(http.StatusUnauthorized, "login_failed", "the user name or the password is wrong")
	}
	l.forgive(accountOf(name))
	keys, err := l.signingKeys(ctx, "")
	if err != nil {
		return "", err
	}
	return auth.Sign(keys[0].ID, keys[0].Secret, auth.Holder{User: user.ID, Since: user.TokensSince}, l.store.Now(ctx))
}

// AdmitUser says why a request may not pass that brings the token of a login.
func (s *Stack) AdmitUser(c *fiber.Ctx, token string) error {
	ctx := c.UserContext()
	user, err := s.logins.find(ctx, token)
	if errors.Is(err, auth.ErrToken) {
		detail := "the token is invalid or has expired; log in again"
		if token == "" {
			detail = "no token; log in and send it as Authorization: Bearer …"
		}
		return problem.New(http.StatusUnauthorized, "token_invalid", detail)
	}
	if err != nil {
		return err
	}
	r := RequestOf(ctx)
	r.Tenant, r.Key, r.Scopes = user.TenantID, user.ID, user.Scopes()
	return nil
}

// find returns the user of a token, or auth.ErrToken.
func (l *logins) find(ctx context.Context, token string) (models.User, error) {
	var failed error
	h, err := auth.Verify(token, l.store.Now(ctx), func(id string) []byte {
		keys, err := l.signingKeys(ctx, id)
		failed = err
		for _, k := range keys {
			if k.ID == id {
				return k.Secret
			}
		}
		return nil
	})
	if failed != nil { // the database, not the token
		return models.User{}, failed
	}
	if err != nil {
		return models.User{}, err
	}
	user, err := l.user(ctx, h.User)
	if errors.Is(err, models.ErrNotFound) || err == nil && !user.TokensSince.Equal(h.Since) {
		err = auth.ErrToken
	}
	return user, err
}

func (l *logins) user(ctx context.Context, id string) (models.User, error) {
	l.mu.Lock()
	known, ok := l.users[id]
	l.mu.Unlock()
	if ok && time.Since(known.at) < userLife {
		return known.user, nil
	}
	user, err := l.store.User(ctx, id)
	if err != nil {
		return user, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.users) >= maxCounted {
		clear(l.users)
	}
	l.users[id] = cachedUser{user, time.Now()}
	return user, nil
}

// signingKeys returns the keys, the newest first. They are read again now and then, and for one that is not among them, at
// most once a second: tokens come from anybody.
func (l *logins) signingKeys(ctx context.Context, wanted string) ([]models.SigningKey, error) {
	l.mu.Lock()
	keys, age := l.keys, time.Since(l.keysAt)
	l.mu.Unlock()
	known := wanted == ""
	for _, k := range keys {
		known = known || k.ID == wanted
	}
	if len(keys) > 0 && (known && age < userLife || age < time.Second) {
		return keys, nil
	}
	keys, err := l.store.SigningKeys(ctx, auth.NewSecret())
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.keys, l.keysAt = keys, time.Now()
	return keys, nil
}

func accountOf(name string) string { return "account " + name }

// blocked returns how many seconds to wait where too many have failed.
func (l *logins) blocked(counted map[string]int) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	for what, most := range counted {
		f := l.failed[what]
		if left := failureSpan - time.Since(f.begin); f.n >= most && left > 0 {
			return int(left.Seconds()) + 1
		}
	}
	return 0
}

func (l *logins) count(counted map[string]int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.failed) >= maxCounted {
		clear(l.failed)
	}
	for what := range counted {
		f := l.failed[what]
		if time.Since(f.begin) > failureSpan {
			f = failures{begin: time.Now()}
		}
		f.n++
		l.failed[what] = f
	}
}

// forgive forgets the failures of whoever has the password, not those from the address: one account must not hide the
// guessing of others.
func (l *logins) forgive(account string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.failed, account)
}
