package web

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"sandyard/models"
	"sandyard/web/middleware"
	"sandyard/web/problem"
)

// Key is the document of an API key. Its text is shown once, when it is made.
type Key struct {
	ID         string     `json:"id"`
	Name       string     `json:"name"`
	Begins     string     `json:"begins" doc:"The first characters of the key"`
	Scopes     []string   `json:"scopes"`
	CreatedAt  time.Time  `json:"created_at"`
	LastUsedAt *time.Time `json:"last_used_at,omitempty" doc:"To the minute"`
	ExpiresAt  *time.Time `json:"expires_at,omitempty"`
	RevokedAt  *time.Time `json:"revoked_at,omitempty"`
}

// KeyList is a tenant's keys.
type KeyList struct {
	Keys []Key `json:"keys" doc:"Newest first, revoked ones included, at most 1000"`
}

// NewKeyBody is the body of a request for a key.
type NewKeyBody struct {
	Name             string   `json:"name" minLength:"1" maxLength:"100" doc:"No two valid keys of a tenant have the same name"`
	Scopes           []string `json:"scopes,omitempty" enum:"sandboxes,admin,operator" doc:"Default sandboxes. Only scopes that your own key has"`
	ExpiresInSeconds float64  `json:"expires_in_seconds,omitempty" minimum:"1" maximum:"315360000" doc:"The key is refused after this time; default never"`
}

// MadeKey is a new key, with its text.
type MadeKey struct {
	Key  Key    `json:"key"`
	Text string `json:"text" doc:"Send it as Authorization: Bearer. It is not stored and cannot be shown again"`
}

type newKeyInput struct{ Body NewKeyBody }

type keyInput struct {
	ID string `path:"id" pattern:"^key_[0-9a-v]{26}$" patternDescription:"a key's id"`
}

// listedKeys is how many keys are listed.
const listedKeys = 1000

func (s *Server) addKeys() {
	register(s, operation("list-keys", http.MethodGet, "/v1/keys", tagServer, "List your tenant's API keys (scope admin)"), s.listKeys)
	create := operation("create-key", http.MethodPost, "/v1/keys", tagServer, "Create an API key (scope admin)")
	create.DefaultStatus = http.StatusCreated
	register(s, create, s.createKey)
	register(s, operation("revoke-key", http.MethodDelete, "/v1/keys/{id}", tagServer,
		"Revoke an API key (scope admin): it is refused within ten seconds, and its terminals and streams end"), s.revokeKey)
}

// adminOnly refuses requests whose key manages nothing. An operator may do what an admin may.
func adminOnly(ctx context.Context) error {
	scopes := middleware.RequestOf(ctx).Scopes
	if slices.Contains(scopes, models.ScopeAdmin) || slices.Contains(scopes, models.ScopeOperator) {
		return nil
	}
	return problem.Forbidden(models.ScopeAdmin)
}

func keyDoc(k models.APIKey) Key {
	return Key{
		ID: k.ID, Name: k.Name, Begins: k.Hint, Scopes: k.Scopes, CreatedAt: k.CreatedAt, LastUsedAt: k.LastUsedAt, ExpiresAt: k.ExpiresAt,
		RevokedAt: k.RevokedAt,
	}
}

func (s *Server) listKeys(ctx context.Context, _ *struct{}) (*output[KeyList], error) {
	if err := adminOnly(ctx); err != nil {
		return nil, err
	}
	all, err := s.store.Keys(ctx, middleware.RequestOf(ctx).Tenant, listedKeys)
	list := KeyList{Keys: []Key{}}
	for _, k := range all {
		list.Keys = append(list.Keys, keyDoc(k))
	}
	return &output[KeyList]{list}, err
}

// createKey gives nobody more than he has.
func (s *Server) createKey(ctx context.Context, in *newKeyInput) (*output[MadeKey], error) {
	if err := adminOnly(ctx); err != nil {
		return nil, err
	}
	r, scopes := middleware.RequestOf(ctx), in.Body.Scopes
	if len(scopes) == 0 {
		scopes = []string{models.ScopeSandboxes}
	}
	for i, scope := range scopes {
		operator := slices.Contains(r.Scopes, models.ScopeOperator) && scope == models.ScopeAdmin
		if !slices.Contains(r.Scopes, scope) && !operator {
			return nil, problem.Forbidden(scope)
		}
		if slices.Contains(scopes[:i], scope) {
			return nil, problem.Invalid(fmt.Sprintf("body.scopes[%d]", i), "is named twice")
		}
	}
	text, err := s.store.MakeKey(ctx, r.Tenant, models.NewKey{
		Name: in.Body.Name, Scopes: scopes, Life: time.Duration(in.Body.ExpiresInSeconds * float64(time.Second)),
	})
	switch {
	case errors.Is(err, models.ErrKeyName):
		return nil, problem.Invalid("body.name", "must have 1 to 100 printable characters")
	case errors.Is(err, models.ErrKeyNamed):
		return nil, problem.New(http.StatusConflict, "name_taken", models.ErrKeyNamed.Error())
	case err != nil:
		return nil, err
	}
	k, err := s.store.Authenticate(ctx, text)
	return &output[MadeKey]{MadeKey{keyDoc(k), text}}, err
}

func (s *Server) revokeKey(ctx context.Context, in *keyInput) (*output[Key], error) {
	if err := adminOnly(ctx); err != nil {
		return nil, err
	}
	tenant := middleware.RequestOf(ctx).Tenant
	if err := s.store.RevokeKey(ctx, tenant, in.ID); err != nil {
		return nil, err
	}
	k, err := s.store.Key(ctx, tenant, in.ID)
	return &output[Key]{keyDoc(k)}, err
}
