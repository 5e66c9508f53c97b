package jobs

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"

	"sandyard/models"
	"sandyard/vault"
)

// Bounds of secrets.
const (
	MaxSecretBytes = 64 << 10
	maxSecretsUsed = 64 // by one job
)

var secretName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_.-]{0,62}$`)

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
	case !secretName.MatchString(name):
		return models.Secret{}, invalid("name", "must have up to 63 letters, digits, _, . and -, and begin with a letter or _")
	case value == "":
		return models.Secret{}, invalid("value", "is empty; delete the secret instead")
	case len(value) > MaxSecretBytes:
		return models.Secret{}, invalid("value", "is %d bytes long; the limit is %d", len(value), MaxSecretBytes)
	}
	if err := noNUL("value", value); err != nil {
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
			return nil, &secretError{models.JobError{Code: "secret_unreadable", Message: fmt.Sprintf("this worker cannot read the secret %q: %v; ask your operator to set the SECRETS_KEY of the API on the workers, too", one.Name, err)}}
		case err != nil:
			return nil, &secretError{models.JobError{Code: "secret_unreadable", Message: fmt.Sprintf("the secret %q cannot be read: %v; write it again", one.Name, err)}}
		}
		values[one.Name] = value
	}
	for _, name := range names {
		if _, ok := values[name]; !ok {
			return nil, &secretError{models.JobError{Code: "secret_not_found", Message: fmt.Sprintf("there is no secret %q any more; write it with PUT /v1/secrets/%s", name, name)}}
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

// SecretEnv is environment variables whose values are secrets.
type SecretEnv struct {
	Secrets map[string]string `json:"secrets,omitempty" doc:"Environment variables whose values are secrets of the tenant: the variable's name, then the secret's name. Values are in no row, log or answer, unless the program prints them"`
}

func (e SecretEnv) check(env map[string]string) error {
	if len(e.Secrets) > maxSecretsUsed {
		return invalid("secrets", "has %d variables; the limit is %d", len(e.Secrets), maxSecretsUsed)
	}
	for variable, name := range e.Secrets {
		if err := checkEnv("secrets", map[string]string{variable: ""}); err != nil {
			return err
		}
		if _, twice := env[variable]; twice {
			return invalid("secrets."+variable, "is also in env; name the variable once")
		}
		if !secretName.MatchString(name) {
			return invalid("secrets."+variable, "%.80q is not a valid name of a secret; use up to 63 letters, digits, _, . and -", name)
		}
	}
	return nil
}

func (e SecretEnv) secrets() map[string]string { return e.Secrets }

// usesSecrets is a kind of job that may name secrets.
type usesSecrets interface{ secrets() map[string]string }

// checkSecrets refuses a job that names a secret which the tenant has not.
func (c *Client) checkSecrets(ctx context.Context, tenant string, args Args) error {
	u, ok := args.(usesSecrets)
	if !ok {
		return nil
	}
	return c.knowsSecrets(ctx, tenant, u.secrets())
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
			return invalid("secrets."+variable, "there is no secret %q; write it with PUT /v1/secrets/%s", name, name)
		}
	}
	return nil
}

// environment is that of a command which names env and secrets: the variables for later commands come behind both.
func (a *attempt) environment(ctx context.Context, env map[string]string, named SecretEnv) (map[string]string, error) {
	own, err := a.named(ctx, env, named)
	if err != nil || len(a.job.KeptEnv) == 0 {
		return own, err
	}
	all := maps.Clone(a.job.KeptEnv)
	maps.Copy(all, own)
	return all, nil
}

// named is env with the secrets in it.
func (a *attempt) named(ctx context.Context, env map[string]string, named SecretEnv) (map[string]string, error) {
	if len(named.Secrets) == 0 {
		return env, nil
	}
	values, err := a.w.secrets.values(ctx, a.job.TenantID, slices.Collect(maps.Values(named.Secrets)))
	if err != nil {
		return nil, err
	}
	all := map[string]string{}
	maps.Copy(all, env)
	for variable, name := range named.Secrets {
		all[variable] = values[name]
	}
	return all, nil
}

// without is the end of a job without its secrets. What an earlier attempt has started is killed: nobody would hear of it.
func (a *attempt) without(ctx context.Context, err error) (result, error) {
	missing := (*secretError)(nil)
	if !errors.As(err, &missing) {
		return result{}, err
	}
	out := missing.failed()
	if a.job.Attempt == 1 {
		return out, nil
	}
	sb, err := a.open(ctx)
	if err == nil {
		err = a.killIn(ctx, sb)
	}
	if err != nil {
		return result{}, err
	}
	out.settled = func(ctx context.Context) error { return a.w.forgetSpool(ctx, a.job, sb) }
	return out, nil
}
