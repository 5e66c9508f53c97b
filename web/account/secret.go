package account

import (
	"context"
	"net/http"
	"time"

	"sandyard/jobs/secrets"
	"sandyard/models"
	"sandyard/web/middleware"
	"sandyard/web/rest"
)

// Secret is the document of a tenant's secret. Its value cannot be read.
type Secret struct {
	Name      string    `json:"name"`
	CreatedAt time.Time `json:"created_at"`
	UpdatedAt time.Time `json:"updated_at" doc:"When its value was written last"`
}

// SecretList is a tenant's secrets.
type SecretList struct {
	Secrets []Secret `json:"secrets" doc:"By name, at most 1000"`
}

// SecretBody is the body of a secret.
type SecretBody struct {
	Value string `json:"value" minLength:"1" maxLength:"65536"`
}

type secretInput struct {
	Name string `path:"name" maxLength:"63" pattern:"^[A-Za-z_][A-Za-z0-9_.-]*$" patternDescription:"letters, digits, _, . and -"`
}

type putSecretInput struct {
	Name string `path:"name" maxLength:"63" pattern:"^[A-Za-z_][A-Za-z0-9_.-]*$" patternDescription:"letters, digits, _, . and -"`
	Body SecretBody
}

func (s *Server) addSecrets(all *secrets.Keeper) {
	rest.Route(s.api, "list-secrets", "GET /v1/secrets", Tag,
		"List the names of your tenant's secrets (scope admin)", s.listSecrets)
	rest.Route(s.api, "put-secret", "PUT /v1/secrets/{name}", Tag,
		"Write a secret (scope admin), which commands use by its name and nobody can read",
		func(ctx context.Context, in *putSecretInput) (*rest.Output[Secret], error) {
			one, err := all.Put(ctx, middleware.RequestOf(ctx).Tenant, in.Name, in.Body.Value)
			return rest.OK(secretDoc(one)), err
		})
	remove := rest.Operation("delete-secret", "DELETE /v1/secrets/{name}", Tag,
		"Delete a secret (scope admin) with which no sandboxes are made; jobs that name it fail from now on")
	remove.DefaultStatus = http.StatusNoContent
	rest.Register(s.api, remove, s.deleteSecret)
}

func secretDoc(one models.Secret) Secret { return Secret{one.Name, one.CreatedAt, one.UpdatedAt} }

func (s *Server) listSecrets(ctx context.Context, _ *struct{}) (*rest.Output[SecretList], error) {
	all, err := s.store.Secrets(ctx, middleware.RequestOf(ctx).Tenant)
	return rest.OK(SecretList{rest.Docs(all, secretDoc)}), err
}

func (s *Server) deleteSecret(ctx context.Context, in *secretInput) (*struct{}, error) {
	return nil, s.store.DeleteSecret(ctx, middleware.RequestOf(ctx).Tenant, in.Name)
}
