package jobs_test

import (
	"errors"
	"strings"
	"testing"

	"sandyard/dev/jobsrig"
	"sandyard/jobs"
	"sandyard/jobs/kind"
	"sandyard/jobs/secrets"
	"sandyard/jobs/worker"
	"sandyard/models"
	"sandyard/vault"
)

// TestSecretsThatAreGone: a command whose secret was deleted, or which the worker cannot read, is not started; one that an
// earlier attempt has started is killed.
func TestSecretsThatAreGone(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	v, err := vault.New(vault.NewKey())
	r.Must(err)
	kept := secrets.New(r.Store, v)
	_, err = kept.Put(t.Context(), jobsrig.Tenant, "token", "s3cret")
	r.Must(err)
	uses := kind.SecretEnv{Secrets: map[string]string{"TOKEN": "token"}}
	able := func(c *worker.Config) { c.Secrets = kept }

	first := r.Worker(2, able)
	box, created := r.Create(jobs.CreateSandbox{})
	r.Wait(created)
	long := r.Submit(box, &kind.Exec{Command: "fake:sleep 1h", SecretEnv: uses}, jobsrig.Options())
	r.Eventually("the command runs", func() bool { return r.State.Running(box) == 1 })
	first.Stop(t.Context())
	unable := r.Worker(2)
	ends := func(job, code, part string) {
		t.Helper()
		j := r.Wait(job)
		if j.State != models.Failed || j.Error.Code != code || !strings.Contains(j.Error.Message, part) || strings.Contains(j.Error.Message, "s3cret") {
			t.Errorf("%s %+v, want %s", j.State, j.Error, code)
		}
		if n := r.State.Running(box); n != 0 {
			t.Errorf("%d commands still run", n)
		}
	}
	ends(long, "secret_unreadable", "SECRETS_KEY")
	unable.Stop(t.Context())

	gone := map[string]string{}
	for name, args := range map[string]kind.Args{
		"exec": &kind.Exec{Command: "fake:stdout x", SecretEnv: uses}, "background": &kind.Exec{Command: "fake:sleep 1h", Background: true, SecretEnv: uses},
		"code": &kind.Code{Language: "python", Code: "1", SecretEnv: uses},
	} {
		gone[name] = r.Submit(box, args, jobsrig.Options())
	}
	r.Must(r.Store.DeleteSecret(t.Context(), jobsrig.Tenant, "token"))
	r.Worker(2, able)
	for name, job := range gone {
		ends(job, "secret_not_found", "PUT /v1/secrets/token")
		if n := r.State.Starts(job); n != 0 {
			t.Errorf("%s was started %d times", name, n)
		}
	}
}

func TestSecretsAreChecked(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	v, err := vault.New(vault.NewKey())
	r.Must(err)
	kept := secrets.New(r.Store, v)
	for name, c := range map[string][2]string{
		"no name": {"", "x"}, "a path": {"../x", "x"}, "a long name": {strings.Repeat("a", 64), "x"}, "a digit first": {"1a", "x"},
		"no value": {"a", ""}, "a long value": {"a", strings.Repeat("x", secrets.MaxBytes+1)}, "NUL": {"a", "x\x00"},
	} {
		if _, err := kept.Put(t.Context(), jobsrig.Tenant, c[0], c[1]); !errors.As(err, new(*kind.InvalidError)) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := secrets.New(r.Store, nil).Put(t.Context(), jobsrig.Tenant, "a", "x"); !errors.Is(err, vault.ErrNoKey) {
		t.Errorf("without a key: %v", err)
	}
	_, err = kept.Put(t.Context(), jobsrig.Tenant, "a", "x")
	r.Must(err)
	box, _ := r.Create(jobs.CreateSandbox{})
	for name, e := range map[string]kind.Exec{
		"an unknown secret":        {SecretEnv: kind.SecretEnv{Secrets: map[string]string{"A": "b"}}},
		"a name that none can be":  {SecretEnv: kind.SecretEnv{Secrets: map[string]string{"A": "/"}}},
		"no name of a variable":    {SecretEnv: kind.SecretEnv{Secrets: map[string]string{"A=B": "a"}}},
		"a variable of env, again": {SecretEnv: kind.SecretEnv{Secrets: map[string]string{"A": "a"}}, Env: map[string]string{"A": "x"}},
	} {
		e.Command = "fake:stdout x"
		if _, err := r.Client.Submit(t.Context(), box, &e, jobsrig.Options()); !errors.As(err, new(*kind.InvalidError)) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for i := range models.MaxSecrets {
		_, err = kept.Put(t.Context(), jobsrig.Tenant, "a"+strings.Repeat("x", i%60)+string(rune('a'+i/60)), "x")
	}
	if limit := (*models.LimitError)(nil); !errors.As(err, &limit) || limit.Limit != "secrets" {
		t.Errorf("one more than a tenant may have: %v", err)
	}
	_, err = kept.Put(t.Context(), jobsrig.Tenant, "a", "y") // a new value of one that is there
	r.Must(err)
}
