package calls

import (
	"context"
	"time"

	"sandyard/jobs"
	"sandyard/jobs/kind"
	"sandyard/models"
	"sandyard/tokens"
	"sandyard/web/middleware"
)

// Patient returns calls that wait so much longer for their jobs.
func (c *Calls) Patient(wait time.Duration) *Calls {
	other := c.c
	other.Patience = wait
	return New(other)
}

// Make creates a sandbox as the wish says and returns it when it runs. Existing says that a live sandbox has the wish's
// key already: that one is returned as it stands.
func (c *Calls) Make(ctx context.Context, wish jobs.CreateSandbox) (box models.Sandbox, existing bool, err error) {
	job, box, err := c.wait(ctx, func(o jobs.Options) (models.Submitted, error) {
		done, err := c.c.Jobs.Create(ctx, wish, o)
		existing = done.Existing
		return done, err
	})
	if err == nil && !existing && job.State != models.Succeeded {
		err = Failure(job, box)
	}
	return box, existing, err
}

// Do carries out a job on a sandbox and returns it, with the named parts of its output, when it has succeeded.
func (c *Calls) Do(ctx context.Context, sandboxID string, args kind.Args, parts ...models.Output) (models.Job, error) {
	job, err := c.result(ctx, sandboxID, args)
	if err == nil {
		err = c.c.Stack.Output(ctx, &job, parts...)
	}
	return job, err
}

// Find returns the live sandbox of the request's tenant that has an id or, failing that, a key.
func (c *Calls) Find(ctx context.Context, name string) (models.Sandbox, error) {
	box, err := c.Sandbox(ctx, name)
	if err == nil {
		return box, nil
	}
	list, lookup := c.c.Store.Sandboxes(
		ctx,
		middleware.RequestOf(ctx).Tenant,
		models.SandboxFilter{Key: name, Live: true, Limit: 1},
	)
	if lookup != nil {
		return box, lookup
	}
	if len(list) == 0 || list[0].Desired == models.DesiredDeleted {
		return box, err
	}
	return list[0], nil
}

// Address is where ports are reached; it is zero where they are not.
func (c *Calls) Address() (tokens.Address, *tokens.Signer) { return c.c.Address, c.c.Signer }

// Internet says whether sandboxes may connect to the outside that do not say.
func (c *Calls) Internet() bool { return !c.c.NoInternet }

// PausedSpan is how long a sandbox may be paused that asks for so long, in milliseconds; 0 = without end.
func (c *Calls) PausedSpan(asked time.Duration) (int64, error) {
	ms := asked.Milliseconds()
	return ms, c.c.Jobs.Catalog().Paused.Fill("paused_timeout_seconds", "MAX_PAUSED_TIMEOUT", &ms)
}

// LongestLife is how long a sandbox may live from its start; 0 = without end.
func (c *Calls) LongestLife() time.Duration { return c.c.Jobs.Catalog().Lifetime.Most }
