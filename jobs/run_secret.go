package jobs

import (
	"context"
	"errors"
	"maps"
	"slices"

	"sandyard/jobs/kind"
)

// environment is that of a command which names env and secrets: the variables for later commands come behind both.
func (a *attempt) environment(
	ctx context.Context,
	env map[string]string,
	named kind.SecretEnv,
) (map[string]string, error) {
	own, err := a.named(ctx, env, named)
	if err != nil || len(a.job.KeptEnv) == 0 {
		return own, err
	}
	all := maps.Clone(a.job.KeptEnv)
	maps.Copy(all, own)
	return all, nil
}

// named is env with the secrets in it.
func (a *attempt) named(ctx context.Context, env map[string]string, named kind.SecretEnv) (map[string]string, error) {
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

// without is the end of a job without its secrets. What an earlier attempt has started is killed: nobody would hear of
// it.
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
