package account

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"time"

	"sandyard/models"
	"sandyard/web/middleware"
	"sandyard/web/problem"
	"sandyard/web/rest"
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
	ReplacedBy *string    `json:"replaced_by,omitempty" doc:"The id of the key that it was rotated to"`
	User       *string    `json:"user,omitempty" doc:"The id of the user whose key it is, and whose limits hold for it"`
}

// KeyList is a tenant's keys.
type KeyList struct {
	Keys []Key `json:"keys" doc:"Newest first, revoked ones included, at most 1000"`
}

// NewKeyBody is the body of a request for a key.
type NewKeyBody struct {
	Name             string   `json:"name" minLength:"1" maxLength:"100" doc:"No two valid keys of a tenant have the same name"`
	Scopes           []string `json:"scopes,omitempty" enum:"sandboxes,jobs,files,templates,webhooks,admin,operator" doc:"Default sandboxes. Only what your own scopes open"`
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

// RotateBody is the body of a rotation.
type RotateBody struct {
	OverlapSeconds *float64 `json:"overlap_seconds,omitempty" minimum:"0" maximum:"7776000" doc:"How long the old key stays valid; default one day"`
}

type rotateInput struct {
	ID   string `path:"id" pattern:"^key_[0-9a-v]{26}$" patternDescription:"a key's id"`
	Body *RotateBody
}

// defaultOverlap is how long a rotated key works beside its successor.
const defaultOverlap = 24 * time.Hour

// listedKeys is how many keys are listed.
const listedKeys = 1000

func (s *Server) addKeys() {
	rest.Route(s.api, "list-keys", "GET /v1/keys", Tag, "List your tenant's API keys (scope admin)", s.listKeys)
	create := rest.Operation("create-key", "POST /v1/keys", Tag, "Create an API key (scope admin)")
	create.DefaultStatus = http.StatusCreated
	rest.Register(s.api, create, s.createKey)
	rotate := rest.Operation("rotate-key", "POST /v1/keys/{id}/rotate", Tag,
		"Make a key with the same name and scopes (scope admin); the old one stays valid for a while")
	rotate.DefaultStatus = http.StatusCreated
	rest.Register(s.api, rotate, s.rotateKey)
	rest.Route(s.api, "revoke-key", "DELETE /v1/keys/{id}", Tag,
		"Revoke an API key (scope admin): it is refused within ten seconds, and its terminals and streams end",
		s.revokeKey)
}

func keyDoc(k models.APIKey) Key {
	return Key{
		ID: k.ID, Name: k.Name, Begins: k.Hint, Scopes: k.Scopes, CreatedAt: k.CreatedAt, LastUsedAt: k.LastUsedAt,
		ExpiresAt: k.ExpiresAt,
		RevokedAt: k.RevokedAt, ReplacedBy: k.ReplacedBy, User: k.UserID,
	}
}

func (s *Server) listKeys(ctx context.Context, _ *struct{}) (*rest.Output[KeyList], error) {
	all, err := s.store.Keys(ctx, middleware.RequestOf(ctx).Tenant, listedKeys)
	return rest.OK(KeyList{rest.Docs(all, keyDoc)}), err
}

// createKey gives nobody more than he has.
func (s *Server) createKey(ctx context.Context, in *newKeyInput) (*rest.Output[MadeKey], error) {
	r, scopes := middleware.RequestOf(ctx), in.Body.Scopes
	if len(scopes) == 0 {
		scopes = []string{models.ScopeSandboxes}
	}
	for i, scope := range scopes {
		if !models.Opens(r.Scopes, scope) {
			return nil, problem.Forbidden(scope)
		}
		if slices.Contains(scopes[:i], scope) {
			return nil, problem.Invalid(fmt.Sprintf("body.scopes[%d]", i), "is named twice")
		}
	}
	text, err := s.store.MakeKey(ctx, r.Tenant, models.NewKey{
		Name: in.Body.Name, Scopes: scopes, Life: time.Duration(in.Body.ExpiresInSeconds * float64(time.Second)),
		User: r.User, // or one could make oneself a key without one's limits
	})
	if err != nil {
		return nil, err
	}
	k, err := s.store.Authenticate(ctx, text)
	r.Target = k.ID
	return rest.OK(MadeKey{keyDoc(k), text}), err
}

// rotateKey gives nobody a key that opens more than his own.
func (s *Server) rotateKey(ctx context.Context, in *rotateInput) (*rest.Output[MadeKey], error) {
	r := middleware.RequestOf(ctx)
	old, err := s.store.Key(ctx, r.Tenant, in.ID)
	if err != nil {
		return nil, err
	}
	for _, scope := range old.Scopes {
		if !models.Opens(r.Scopes, scope) {
			return nil, problem.Forbidden(scope)
		}
	}
	overlap := defaultOverlap
	if in.Body != nil && in.Body.OverlapSeconds != nil {
		overlap = time.Duration(*in.Body.OverlapSeconds * float64(time.Second))
	}
	text, err := s.store.RotateKey(ctx, r.Tenant, in.ID, overlap)
	if err != nil {
		return nil, err
	}
	k, err := s.store.Authenticate(ctx, text)
	return rest.OK(MadeKey{keyDoc(k), text}), err
}

func (s *Server) revokeKey(ctx context.Context, in *keyInput) (*rest.Output[Key], error) {
	tenant := middleware.RequestOf(ctx).Tenant
	if err := s.store.RevokeKey(ctx, tenant, in.ID); err != nil {
		return nil, err
	}
	k, err := s.store.Key(ctx, tenant, in.ID)
	return rest.OK(keyDoc(k)), err
}
