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
	"sandyard/cache"
	"sandyard/models"
	"sandyard/web/problem"
)

const (
	// userLife is how long a user is believed to be as read: who is removed or signs out gets in no longer than that.
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
	users   *cache.Cache[string, models.User] // by login
	failed  *cache.Cache[string, *int]        // failures by account and by address; mu guards the numbers
	pending chan struct{}
}

func newLogins(store *models.Store) *logins {
	return &logins{
		store:   store,
		users:   cache.New[string, models.User](maxCounted, userLife),
		failed:  cache.New[string, *int](maxCounted, failureSpan),
		pending: make(chan struct{}, maxPending),
	}
}

// Tokens are what a login is answered with.
type Tokens struct {
	User    models.User
	Access  string        // sent with requests
	Life    time.Duration // of Access
	Refresh string        // exchanged for further Tokens, once
	Ends    time.Time     // of the login: then the password is needed again
}

// Login begins a login of a user, who is found by name and password. Its first token is good for life. Errors: a
// problem 401, or 429 after too many failures of the name or from the address.
func (s *Stack) Login(ctx context.Context, name, password string, life time.Duration) (Tokens, error) {
	l := s.logins
	select {
	case l.pending <- struct{}{}:
		defer func() { <-l.pending }()
	default:
		return Tokens{}, problem.RetryLater(
			problem.New(http.StatusServiceUnavailable, "logins_busy", "too many logins are under way; try again"),
			1,
		)
	}
	client := RequestOf(ctx).Client
	counted := map[string]int{accountOf(name): accountFailures, "address " + client: addressFailures}
	if wait := l.blocked(counted); wait > 0 {
		s.security.Note(models.SecurityEvent{Kind: models.LoginBlocked, Client: client})
		return Tokens{}, problem.RetryLater(problem.New(http.StatusTooManyRequests, "too_many_logins",
			fmt.Sprintf("too many logins have failed; try again in %d s", wait)), wait)
	}
	user, right, err := l.checkPassword(ctx, name, password)
	if err != nil {
		return Tokens{}, err
	}
	var login models.Login
	var refresh string
	if right {
		login, refresh, err = l.store.LogIn(ctx, user.ID, user.PasswordHash)
	}
	switch {
	case !right, errors.Is(err, models.ErrNotFound):
		l.count(counted)
		s.security.Note(
			models.SecurityEvent{TenantID: user.TenantID, Kind: models.LoginFailed, Client: client, Actor: user.ID},
		)
		s.log.WarnContext(ctx, "login failed", "request_id", RequestOf(ctx).ID, "client", client)
		return Tokens{}, problem.New(http.StatusUnauthorized, "login_failed", "the user name or the password is wrong")
	case err != nil:
		return Tokens{}, err
	}
	l.forgive(accountOf(name))
	r := RequestOf(ctx)
	r.Tenant, r.User, r.Key = user.TenantID, user.ID, login.ID
	if err := s.AuditLogin(ctx); err != nil {
		return Tokens{}, err
	}
	return l.tokens(ctx, user, login, refresh, life)
}

// checkPassword says whether a password is the user's, whom it returns.
func (l *logins) checkPassword(ctx context.Context, name, password string) (models.User, bool, error) {
	user, err := l.store.UserNamed(ctx, name)
	if err != nil && !errors.Is(err, models.ErrNotFound) {
		return models.User{}, false, err
	}
	right, err := auth.CheckPassword(user.PasswordHash, password)
	return user, right, err
}

// Refresh continues a login by its refresh token.
func (s *Stack) Refresh(ctx context.Context, refresh string, life time.Duration) (Tokens, error) {
	login, next, err := s.store.Refresh(ctx, refresh)
	switch {
	case errors.Is(err, models.ErrRefreshUsed):
		s.log.WarnContext(
			ctx,
			"refresh token used twice; its login has ended",
			"request_id",
			RequestOf(ctx).ID,
			"login",
			login.ID,
			"client",
			RequestOf(ctx).Client,
		)
		return Tokens{}, problem.New(http.StatusUnauthorized, "token_invalid", models.ErrRefreshUsed.Error()+"; log in again")
	case errors.Is(err, models.ErrNotFound):
		return Tokens{}, problem.New(
			http.StatusUnauthorized,
			"token_invalid",
			"the refresh token is invalid, or its login has ended; log in again",
		)
	case err != nil:
		return Tokens{}, err
	}
	user, err := s.store.LoginUser(ctx, login.ID)
	if err != nil {
		return Tokens{}, err
	}
	r := RequestOf(ctx)
	r.Tenant, r.User, r.Key = user.TenantID, user.ID, login.ID
	if err := s.AuditLogin(ctx); err != nil {
		return Tokens{}, err
	}
	return s.logins.tokens(ctx, user, login, next, life)
}

func (l *logins) tokens(
	ctx context.Context,
	user models.User,
	login models.Login,
	refresh string,
	life time.Duration,
) (Tokens, error) {
	keys, err := l.signingKeys(ctx, "")
	if err != nil {
		return Tokens{}, err
	}
	now := l.store.Now(ctx)
	life = min(life, login.ExpiresAt.Sub(now))
	access, err := auth.Sign(keys[0].ID, keys[0].Secret, auth.Holder{User: user.ID, Login: login.ID}, now, life)
	return Tokens{user, access, life, refresh, login.ExpiresAt}, err
}

// ChangePassword gives the user of a request another password, who proves the old one. All logins of the user end.
func (s *Stack) ChangePassword(ctx context.Context, old, hash string) error {
	r := RequestOf(ctx)
	user, err := s.store.User(ctx, r.Tenant, r.User)
	if err != nil {
		return err
	}
	counted := map[string]int{accountOf(user.Name): accountFailures}
	if wait := s.logins.blocked(counted); wait > 0 {
		return problem.RetryLater(problem.New(http.StatusTooManyRequests, "too_many_logins",
			fmt.Sprintf("too many passwords were wrong; try again in %d s", wait)), wait)
	}
	right, err := auth.CheckPassword(user.PasswordHash, old)
	if err != nil {
		return err
	}
	if !right {
		s.logins.count(counted)
		return problem.New(http.StatusUnauthorized, "login_failed", "the old password is wrong")
	}
	_, err = s.store.ChangeUser(ctx, r.Tenant, r.User, models.UserChange{PasswordHash: hash})
	s.logins.users.Delete(r.Key)
	return err
}

// SignOut ends the login of a request.
func (s *Stack) SignOut(ctx context.Context) error {
	login := RequestOf(ctx).Key
	err := s.store.EndLogin(ctx, login)
	s.logins.users.Delete(login)
	return err
}

// AdmitUser says why a request may not pass that brings the token of a login.
func (s *Stack) AdmitUser(c *fiber.Ctx, token string) error {
	ctx := c.UserContext()
	user, login, err := s.logins.find(ctx, token)
	if errors.Is(err, auth.ErrToken) {
		detail := "the token is invalid or has expired; log in again"
		if token == "" {
			detail = "no token; log in and send it as Authorization: Bearer …"
		} else {
			s.security.Note(models.SecurityEvent{Kind: models.KeyRefused, Client: RequestOf(ctx).Client})
		}
		return problem.New(http.StatusUnauthorized, "token_invalid", detail)
	}
	if err != nil {
		return err
	}
	c.Response().Header.Del(fiber.HeaderWWWAuthenticate)
	r := RequestOf(ctx)
	r.Tenant, r.User, r.Key, r.Scopes = user.TenantID, user.ID, login, user.Scopes()
	return nil
}

// find returns the user of a token with its login, or auth.ErrToken.
func (l *logins) find(ctx context.Context, token string) (user models.User, login string, err error) {
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
		return models.User{}, "", failed
	}
	if err != nil {
		return models.User{}, "", err
	}
	user, err = l.user(ctx, h.Login)
	if errors.Is(err, models.ErrNotFound) || err == nil && user.ID != h.User {
		err = auth.ErrToken
	}
	return user, h.Login, err
}

// user returns whose login it is.
func (l *logins) user(ctx context.Context, login string) (models.User, error) {
	if known := l.users.Get(login); known != nil {
		return known.Value(), nil
	}
	user, err := l.store.LoginUser(ctx, login)
	if err != nil {
		l.users.Delete(login)
		return user, err
	}
	l.users.Set(login, user, cache.Life)
	return user, nil
}

// signingKeys returns the keys, the newest first. They are read again now and then, and for one that is not among them,
// at most once a second: tokens come from anybody.
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
	keys, err := l.store.SigningKeys(ctx, auth.NewSecret(), auth.TokenLife+time.Minute)
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
		if f := l.failed.Get(what); f != nil && *f.Value() >= most {
			return int(time.Until(f.ExpiresAt()).Seconds()) + 1 // on this machine's own clock
		}
	}
	return 0
}

func (l *logins) count(counted map[string]int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for what := range counted {
		f := l.failed.Get(what)
		if f == nil {
			f = l.failed.Set(what, new(int), cache.Life)
		}
		*f.Value()++
	}
}

// forgive forgets the failures of whoever has the password, not those from the address: one account must not hide the
// guessing of others.
func (l *logins) forgive(account string) { l.failed.Delete(account) }
