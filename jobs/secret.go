package jobs

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"sandyard/jobs/kind"
	"sandyard/models"
	"sandyard/vault"
)

// MaxSecretBytes bounds the value of a secret.
const MaxSecretBytes = 64 << 10

// Secrets keeps the secrets of tenants: written by the API, read by workers for the jobs that name them.
type Secrets struct {
	store *models.Store
	vault *vault.Vault
}

// NewSecrets returns the secrets in store, which v encrypts; nil = none can be written or used.
func NewSecrets(store *models.Store, v *vault.Vault) *Secrets { return &Secrets{store, v} }

// Put writes a secret of a tenant. Errors: *InvalidError, vault.ErrNoKey, *models.LimitError.
func (s *Secrets) Put(ctx context.Context, tenant, name, value string) (models.Secret, error) {
	switch {
	case !kind.SecretName.MatchString(name):
		return models.Secret{}, kind.Invalid(
			"name",
			"must have up to 63 letters, digits, _, . and -, and begin with a letter or _",
		)
	case value == "":
		return models.Secret{}, kind.Invalid("value", "is empty; delete the secret instead")
	case len(value) > MaxSecretBytes:
		return models.Secret{}, kind.Invalid("value", "is %d bytes long; the limit is %d", len(value), MaxSecretBytes)
	}
	if err := kind.NoNUL("value", value); err != nil {
		return models.Secret{}, err
	}
	sealed, err := s.vault.Seal(tenant, name, value)
	if err != nil {
		return models.Secret{}, err
	}
	return s.store.PutSecret(ctx, tenant, name, sealed)
}

// values returns the values of a tenant's secrets by name. What is missing or cannot be opened is a *models.JobError.
func (s *Secrets) values(ctx context.Context, tenant string, names []string) (map[string]string, error) {
	found, err := s.store.SealedSecrets(ctx, tenant, names)
	if err != nil {
		return nil, err
	}
	values := map[string]string{}
	for _, one := range found {
		value, err := s.vault.Open(tenant, one.Name, one.Sealed)
		switch {
		case errors.Is(err, vault.ErrNoKey), errors.Is(err, vault.ErrOtherKey):
			return nil, &secretError{
				models.JobError{
					Code: "secret_unreadable",
					Message: fmt.Sprintf(
						"this worker cannot read the secret %q: %v; ask your operator to set the SECRETS_KEY of the API on the workers, too",
						one.Name,
						err,
					),
				},
			}
		case err != nil:
			return nil, &secretError{
				models.JobError{
					Code:    "secret_unreadable",
					Message: fmt.Sprintf("the secret %q cannot be read: %v; write it again", one.Name, err),
				},
			}
		}
		values[one.Name] = value
	}
	for _, name := range names {
		if _, ok := values[name]; !ok {
			return nil, &secretError{
				models.JobError{
					Code:    "secret_not_found",
					Message: fmt.Sprintf("there is no secret %q any more; write it with PUT /v1/secrets/%s", name, name),
				},
			}
		}
	}
	return values, nil
}

// secretError is why a command is not started.
type secretError struct{ why models.JobError }

func (e *secretError) Error() string { return e.why.Message }

// failed is the result of a job that cannot have its secrets.
func (e *secretError) failed() result {
	return result{state: models.Failed, err: &e.why}
}

// checkSecrets refuses a job that names a secret which the tenant has not.
func (c *Client) checkSecrets(ctx context.Context, tenant string, args kind.Args) error {
	u, ok := args.(kind.UsesSecrets)
	if !ok {
		return nil
	}
	return c.knowsSecrets(ctx, tenant, u.SecretNames())
}

// knowsSecrets refuses names of secrets, by their variables, that the tenant has not.
func (c *Client) knowsSecrets(ctx context.Context, tenant string, named map[string]string) error {
	if len(named) == 0 {
		return nil
	}
	found, err := c.store.SealedSecrets(ctx, tenant, slices.Collect(maps.Values(named)))
	if err != nil {
		return err
	}
	for variable, name := range named {
		if !slices.ContainsFunc(found, func(s models.Secret) bool { return s.Name == name }) {
			return kind.Invalid("secrets."+variable, "there is no secret %q; write it with PUT /v1/secrets/%s", name, name)
		}
	}
	return nil
}
