// Package secrets keeps the secrets of tenants, encrypted: the API writes them, workers read them for jobs.
package secrets

import (
	"context"
	"errors"
	"fmt"

	"sandyard/jobs/kind"
	"sandyard/models"
	"sandyard/vault"
)

// MaxBytes bounds the value of a secret.
const MaxBytes = 64 << 10

// Keeper keeps the secrets of tenants: written by the API, read by workers for the jobs that name them.
type Keeper struct {
	store *models.Store
	vault *vault.Vault
}

// New returns the secrets in store, which v encrypts; nil = none can be written or used.
func New(store *models.Store, v *vault.Vault) *Keeper { return &Keeper{store, v} }

// Put writes a secret of a tenant. Errors: *InvalidError, vault.ErrNoKey, *models.LimitError.
func (s *Keeper) Put(ctx context.Context, tenantID, name, value string) (models.Secret, error) {
	switch {
	case !kind.SecretName.MatchString(name):
		return models.Secret{}, kind.Invalid(
			"name",
			"must have up to 63 letters, digits, _, . and -, and begin with a letter or _",
		)
	case value == "":
		return models.Secret{}, kind.Invalid("value", "is empty; delete the secret instead")
	case len(value) > MaxBytes:
		return models.Secret{}, kind.Invalid("value", "is %d bytes long; the limit is %d", len(value), MaxBytes)
	}
	if err := kind.NoNUL("value", value); err != nil {
		return models.Secret{}, err
	}
	sealed, err := s.vault.Seal(tenantID, name, value)
	if err != nil {
		return models.Secret{}, err
	}
	return s.store.PutSecret(ctx, tenantID, name, sealed)
}

// Values returns the values of a tenant's secrets by name. What is missing or cannot be opened is a *models.JobError.
func (s *Keeper) Values(ctx context.Context, tenantID string, names []string) (map[string]string, error) {
	found, err := s.store.SealedSecrets(ctx, tenantID, names)
	if err != nil {
		return nil, err
	}
	values := map[string]string{}
	for _, one := range found {
		value, err := s.vault.Open(tenantID, one.Name, one.Sealed)
		switch {
		case errors.Is(err, vault.ErrNoKey), errors.Is(err, vault.ErrOtherKey):
			return nil, &Error{
				models.JobError{
					Code: "secret_unreadable",
					Message: fmt.Sprintf(
						"this worker cannot read the secret %q: %v; ask your operator to set the SECRETS_KEY of the API on the "+
							"workers, too",
						one.Name,
						err,
					),
				},
			}
		case err != nil:
			return nil, &Error{
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
			return nil, &Error{
				models.JobError{
					Code:    "secret_not_found",
					Message: fmt.Sprintf("there is no secret %q any more; write it with PUT /v1/secrets/%s", name, name),
				},
			}
		}
	}
	return values, nil
}

// Error is why a command is not started.
type Error struct{ Why models.JobError }

func (e *Error) Error() string { return e.Why.Message }
