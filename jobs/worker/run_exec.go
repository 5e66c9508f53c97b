package worker

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"sandyard/jobs/kind"
	"sandyard/jobs/secrets"
	"sandyard/models"
	"sandyard/providers"
)

// runExec attaches where an earlier attempt has started the command already. A cancel kills the command and so ends
// Run; losing the job to another worker only detaches.
func runExec(ctx context.Context, a *attempt, e *kind.Exec) (result, error) {
	switch {
	case a.isCancelled():
		return a.killLeft(ctx)
	case e.Background:
		return launch(ctx, a, e)
	}
	sb, err := a.open(ctx)
	if err != nil {
		return result{}, err
	}
	defer a.onCancel(func() error { return a.killIn(ctx, sb) })()
	cmd := e.ProviderCommand(a.job)
	if cmd.Env, err = a.environment(ctx, e.Env, e.SecretEnv); err != nil {
		return a.without(ctx, err)
	}
	cmd.Started = a.slot.Rest
	res, err := sb.Run(ctx, cmd)
	if err != nil {
		return result{}, err
	}
	out := result{value: execResult(res), stdout: res.Stdout, stderr: res.Stderr}
	out.afterCommit = func(ctx context.Context) error { return a.w.outputs.Forget(ctx, a.job, sb) }
	if res.TimedOut {
		out.state = models.TimedOut
		out.err = &models.JobError{
			Code: "timeout",
			Message: "the command reached its timeout of " + a.job.Timeout().String() +
				" and was killed with all its processes; raise timeout_seconds if it needs longer",
		}
	}
	return out, nil
}

func execResult(r providers.Result) kind.ExecResult {
	return kind.ExecResult{
		ExitCode: r.ExitCode, Signal: r.Signal, TimedOut: r.TimedOut, OOMKilled: r.OOMKilled,
		StdoutBytes: r.StdoutBytes, StderrBytes: r.StderrBytes,
		StdoutTruncated: r.StdoutBytes > int64(len(r.Stdout)), StderrTruncated: r.StderrBytes > int64(len(r.Stderr)),
		DurationMS: r.Duration.Milliseconds(),
	}
}

// runSetEnv writes the change down; every attempt writes the same.
func runSetEnv(ctx context.Context, a *attempt, s *kind.SetEnv) (result, error) {
	if _, err := a.open(ctx); err != nil { // as of any other job of a sandbox that is paused or gone
		return result{}, err
	}
	err := a.w.store.ChangeEnv(
		ctx,
		a.job,
		models.EnvChange{Set: s.Env, Replace: s.Replace, MostNames: kind.MaxEnvNames, MostBytes: kind.MaxEnvBytes},
	)
	if large, ok := errors.AsType[*models.EnvTooLargeError](err); ok {
		return result{state: models.Failed, err: &models.JobError{Code: "env_too_large", Message: fmt.Sprintf(
			"nothing was changed: %v; the limits are %d and %d; remove variables, or write long values to a file",
			large,
			kind.MaxEnvNames,
			kind.MaxEnvBytes,
		)}}, nil
	}
	done := kind.SetEnvResult{Set: []string{}, Removed: []string{}}
	for _, name := range slices.Sorted(maps.Keys(s.Env)) {
		if s.Env[name] != nil {
			done.Set = append(done.Set, name)
		} else {
			done.Removed = append(done.Removed, name)
		}
	}
	return result{value: done}, err
}

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
	values, err := a.w.secrets.Values(ctx, a.job.TenantID, slices.Collect(maps.Values(named.Secrets)))
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
	missing := (*secrets.Error)(nil)
	if !errors.As(err, &missing) {
		return result{}, err
	}
	out := withoutSecret(missing)
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
	out.afterCommit = func(ctx context.Context) error { return a.w.outputs.Forget(ctx, a.job, sb) }
	return out, nil
}

// withoutSecret is the result of a job that cannot have its secrets.
func withoutSecret(e *secrets.Error) result {
	return result{state: models.Failed, err: &e.Why}
}
