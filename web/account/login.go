package account

import (
	"context"
	"errors"
	"net/http"
	"time"

	"sandyard/auth"
	"sandyard/models"
	"sandyard/web/middleware"
	"sandyard/web/problem"
	"sandyard/web/rest"
)

// tokenLife is how long a token of /v1 is good for. Its client refreshes it.
const tokenLife = time.Hour

// LoginBody is the body of a login.
type LoginBody struct {
	Name     string `json:"name" minLength:"1" maxLength:"100"`
	Password string `json:"password" minLength:"1" maxLength:"1024"`
}

// RefreshBody is the body of a request for another token.
type RefreshBody struct {
	RefreshToken string `json:"refresh_token" minLength:"1" maxLength:"100" doc:"Of the last login or refresh; it works once"`
}

// LoginTokens is what a login is answered with.
type LoginTokens struct {
	AccessToken  string    `json:"access_token" doc:"Send it as Authorization: Bearer"`
	TokenType    string    `json:"token_type" example:"bearer"`
	ExpiresIn    int       `json:"expires_in" doc:"Seconds that access_token is good for"`
	RefreshToken string    `json:"refresh_token" doc:"Exchange it once for new tokens, with POST /v1/login/refresh"`
	LoginEndsAt  time.Time `json:"login_ends_at" doc:"From then on the password is needed again"`
	User         User      `json:"user"`
}

// Me says who sends a request.
type Me struct {
	Tenant string   `json:"tenant"`
	Scopes []string `json:"scopes"`
	User   *User    `json:"user,omitempty" doc:"Who logged in"`
	Key    *Key     `json:"key,omitempty" doc:"The API key, where nobody logged in"`
}

// PasswordBody is the body of a change of one's own password.
type PasswordBody struct {
	Old string `json:"old" minLength:"1" maxLength:"1024"`
	New string `json:"new" minLength:"8" maxLength:"1024"`
}

type loginInput struct{ Body LoginBody }

type refreshInput struct{ Body RefreshBody }

type passwordInput struct{ Body PasswordBody }

// Paths of logins, which anybody may call.
const (
	loginPath   = "/v1/login"
	refreshPath = "/v1/login/refresh"
)

// IsLogin says whether a request is a login, which needs no key.
func IsLogin(method, path string) bool {
	return method == http.MethodPost && (path == loginPath || path == refreshPath)
}

func (s *Server) addLogin() {
	login := rest.Operation("login", "POST "+loginPath, Tag, "Log in as a user, with name and password")
	refresh := rest.Operation("refresh-login", "POST "+refreshPath, Tag, "Exchange a refresh token for new tokens")
	login.Security, refresh.Security = nil, nil
	rest.Register(s.api, login, s.login)
	rest.Register(s.api, refresh, s.refreshLogin)
	logout := rest.Operation("logout", "POST /v1/logout", Tag,
		"End the login of this token: its tokens are refused within ten seconds, and its streams end")
	logout.DefaultStatus = http.StatusNoContent
	rest.Register(s.api, logout, s.logout)
	rest.Route(s.api, "get-me", "GET /v1/me", Tag, "Say whose API key or token this is, and what it opens", s.me)
	password := rest.Operation("change-password", "POST /v1/me/password", Tag,
		"Change your own password; all your logins end")
	password.DefaultStatus = http.StatusNoContent
	rest.Register(s.api, password, s.changePassword)
}

func (s *Server) login(ctx context.Context, in *loginInput) (*rest.Output[LoginTokens], error) {
	return loginTokens(s.mw.Login(ctx, in.Body.Name, in.Body.Password, tokenLife))
}

func (s *Server) refreshLogin(ctx context.Context, in *refreshInput) (*rest.Output[LoginTokens], error) {
	return loginTokens(s.mw.Refresh(ctx, in.Body.RefreshToken, tokenLife))
}

func loginTokens(t middleware.Tokens, err error) (*rest.Output[LoginTokens], error) {
	if err != nil {
		return nil, err
	}
	return rest.OK(LoginTokens{
		t.Access, "bearer", int(t.Life.Seconds()), t.Refresh, t.Ends, userDoc(t.User),
	}), nil
}

func (s *Server) logout(ctx context.Context, _ *struct{}) (*struct{}, error) {
	if !middleware.RequestOf(ctx).LoggedIn() {
		return nil, noUser()
	}
	return nil, s.mw.SignOut(ctx)
}

func (s *Server) me(ctx context.Context, _ *struct{}) (*rest.Output[Me], error) {
	r := middleware.RequestOf(ctx)
	me := Me{Tenant: r.Tenant, Scopes: r.Scopes}
	if !r.LoggedIn() {
		k, err := s.store.Key(ctx, r.Tenant, r.Key)
		me.Key = new(keyDoc(k))
		return rest.OK(me), err
	}
	u, err := s.store.User(ctx, r.Tenant, r.User)
	me.User = new(userDoc(u))
	return rest.OK(me), err
}

func (s *Server) changePassword(ctx context.Context, in *passwordInput) (*struct{}, error) {
	if !middleware.RequestOf(ctx).LoggedIn() {
		return nil, noUser()
	}
	hash, err := newPassword("body.new", in.Body.New)
	if err != nil {
		return nil, err
	}
	return nil, s.mw.ChangePassword(ctx, in.Body.Old, hash)
}

func newPassword(field, password string) (string, error) {
	hash, err := auth.HashPassword(password)
	if errors.Is(err, auth.ErrPassword) {
		return "", problem.Invalid(field, auth.ErrPassword.Error())
	}
	return hash, err
}

// User is the document of a user.
type User struct {
	ID        string    `json:"id"`
	Name      string    `json:"name"`
	Role      string    `json:"role" enum:"member,admin,operator"`
	CreatedAt time.Time `json:"created_at"`
	Limits    Limits    `json:"limits" doc:"Of this user, below the tenant's"`
}

// Limits is what a user may have at once.
type Limits struct {
	MaxSandboxes *int     `json:"max_sandboxes" doc:"null = no limit"`
	MaxQueued    *int     `json:"max_queued"`
	MaxCPUs      *float64 `json:"max_cpus"`
	MaxMemoryMiB *int64   `json:"max_memory_mib"`
	JobRate      *float64 `json:"job_rate"`
	JobBurst     *int     `json:"job_burst"`
}

func userDoc(u models.User) User {
	return User{
		u.ID,
		u.Name,
		u.Role,
		u.CreatedAt,
		Limits{u.Quota.MaxSandboxes, u.MaxQueued, u.Quota.MaxCPUs, u.Quota.MaxMemoryMiB, u.Rate.JobRate, u.Rate.JobBurst},
	}
}

// noUser is the answer to an API key where a user is meant.
func noUser() error {
	return problem.New(
		http.StatusConflict,
		"no_login",
		"this request came with an API key, which nobody has logged in with; send the token of a login",
	)
}
