// Package calls serves contracts that know no jobs: a call submits one job on a sandbox, waits for it and returns what
// it has produced. What a caller does not wait for to its end goes on.
package calls

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"strconv"
	"time"

	"sandyard/egress"
	"sandyard/jobs"
	"sandyard/jobs/kind"
	"sandyard/models"
	"sandyard/tokens"
	"sandyard/web/middleware"
	"sandyard/web/problem"
)

const (
	// DefaultPatience is how long a call waits: a little less than the minute after which clients give up.
	DefaultPatience = 55 * time.Second
	// WorkDir is where commands start and relative paths begin, unless the template says something else. It is also the
	// home directory.
	WorkDir = "/home/user"
	// DefaultTimeout is how long sandboxes live, from their create or a connect on.
	DefaultTimeout = time.Hour
	// MaxTimeout is how long at most.
	MaxTimeout = 24 * time.Hour
)

// Config is what calls need. All of it stays the caller's.
type Config struct {
	Stack      *middleware.Stack
	Jobs       *jobs.Client
	Store      *models.Store
	Signer     *tokens.Signer // makes the tokens of ports
	Address    tokens.Address // where ports are reached; empty = nowhere
	NoInternet bool           // for sandboxes whose template does not say
	Timeout    time.Duration  // 0 = DefaultTimeout
	MaxTimeout time.Duration  // 0 = MaxTimeout
	Patience   time.Duration  // 0 = DefaultPatience
}

// Calls are the calls. They may be made concurrently, by the request of the context.
type Calls struct{ c Config }

// New returns calls.
func New(c Config) *Calls {
	c.Timeout, c.MaxTimeout = cmp.Or(c.Timeout, DefaultTimeout), cmp.Or(c.MaxTimeout, MaxTimeout)
	c.Patience = cmp.Or(c.Patience, DefaultPatience)
	return &Calls{c}
}

// UserLabel is the label of a sandbox that says whom it is for.
const UserLabel = "user_id"

// Create makes a sandbox for a user, whom a label names, and returns it when it runs. A caller who waits for too long
// gets it while it is still being created: its jobs wait for that.
func (c *Calls) Create(ctx context.Context, user string, wish jobs.CreateSandbox) (models.Sandbox, error) {
	wish.Labels = map[string]string{UserLabel: user}
	wish.AutoResume, wish.TimeoutSeconds = true, c.c.Timeout.Seconds()
	wish.Foreign.NeverIdle, wish.Foreign.OwnNetwork, wish.Foreign.WorkDir = true, true, WorkDir
	if !c.c.NoInternet {
		wish.Foreign.Egress = egress.Policy{Allow: []string{egress.All}}
	}
	job, box, err := c.wait(ctx, func(o jobs.Options) (models.Submitted, error) { return c.c.Jobs.Create(ctx, wish, o) })
	if err == nil && job.State.Terminal() && job.State != models.Succeeded {
		err = Failure(job, box)
	}
	return box, Rename(err, "labels."+UserLabel, UserLabel)
}

// Connect resumes a sandbox that is paused, and lets it live as long from now on as a new one.
func (c *Calls) Connect(ctx context.Context, sandboxID string) error {
	box, err := c.Sandbox(ctx, sandboxID)
	if err != nil {
		return err
	}
	if box.State != models.SandboxPaused && box.Desired != models.DesiredPaused {
		return c.expire(ctx, sandboxID, c.c.Timeout)
	}
	return c.do(ctx, sandboxID, &kind.Resume{TimeoutSeconds: c.c.Timeout.Seconds()})
}

// SetTimeout lets a sandbox end so many seconds from now. Field is the name of the body's field.
func (c *Calls) SetTimeout(ctx context.Context, sandboxID, field string, seconds float64) error {
	if most := c.c.MaxTimeout; seconds < 1 || seconds > most.Seconds() {
		return problem.Invalid(
			"body."+field,
			"must be between 1 and "+strconv.FormatFloat(most.Seconds(), 'f', -1, 64)+" seconds",
		)
	}
	return c.expire(ctx, sandboxID, time.Duration(seconds*float64(time.Second)))
}

// expire holds as soon as the job is accepted.
func (c *Calls) expire(ctx context.Context, sandboxID string, in time.Duration) error {
	o := middleware.RequestOf(ctx).Options()
	_, err := c.c.Jobs.Submit(ctx, sandboxID, &kind.SetTimeout{TimeoutSeconds: in.Seconds()}, o)
	return gone(err)
}

// Pause stops a sandbox's programs where they are. A sandbox that is paused stays so.
func (c *Calls) Pause(ctx context.Context, sandboxID string) error {
	box, err := c.Sandbox(ctx, sandboxID)
	if err != nil || box.State == models.SandboxPaused && box.Desired == models.DesiredPaused {
		return err
	}
	return c.do(ctx, sandboxID, &kind.Pause{})
}

// Delete removes a sandbox at once. One that is not there, or not any more, is an error.
func (c *Calls) Delete(ctx context.Context, sandboxID string) error {
	if _, err := c.Sandbox(ctx, sandboxID); err != nil {
		return err
	}
	job, box, err := c.wait(
		ctx,
		func(o jobs.Options) (models.Submitted, error) { return c.c.Jobs.Delete(ctx, sandboxID, true, o) },
	)
	if err == nil && job.State.Terminal() && job.State != models.Succeeded {
		err = Failure(job, box)
	}
	return err
}

// Sandbox returns a sandbox that has not ended, of the request's tenant.
func (c *Calls) Sandbox(ctx context.Context, id string) (models.Sandbox, error) {
	box, err := c.c.Store.Sandbox(ctx, middleware.RequestOf(ctx).Tenant, id)
	if err == nil && (box.Ended() || box.Desired == models.DesiredDeleted) {
		err = models.ErrNotFound
	}
	return box, gone(err)
}

// gone is err, which says the same of a sandbox that was never there and of one that has ended.
func gone(err error) error {
	var ended *models.EndedError
	if errors.Is(err, models.ErrNotFound) || errors.As(err, &ended) {
		return problem.New(http.StatusNotFound, "not_found",
			"there is no such sandbox: it was deleted, its timeout ended it, or the id is wrong; create another one")
	}
	return err
}

// Rename gives the field that err says is wrong the name that the contract has for it; names are pairs of ours and
// theirs.
func Rename(err error, names ...string) error {
	if wrong, ok := errors.AsType[*kind.InvalidError](err); ok {
		for i := 0; i+1 < len(names); i += 2 {
			if wrong.Field == names[i] {
				return &kind.InvalidError{Field: names[i+1], Message: wrong.Message}
			}
		}
	}
	return err
}

// do carries out a job whose only result is that it is done.
func (c *Calls) do(ctx context.Context, sandboxID string, args kind.Args) error {
	_, err := c.result(ctx, sandboxID, args)
	return err
}

// result submits a job and returns it when it has succeeded.
func (c *Calls) result(ctx context.Context, sandboxID string, args kind.Args) (models.Job, error) {
	job, box, err := c.wait(
		ctx,
		func(o jobs.Options) (models.Submitted, error) { return c.c.Jobs.Submit(ctx, sandboxID, args, o) },
	)
	if err == nil && job.State != models.Succeeded {
		err = Failure(job, box)
	}
	return job, err
}

// wait submits a job beside all others of its sandbox, as callers expect who wait for each, and follows it.
func (c *Calls) wait(
	ctx context.Context,
	submit func(jobs.Options) (models.Submitted, error),
) (job models.Job, box models.Sandbox, err error) {
	r := middleware.RequestOf(ctx)
	leave, err := c.c.Stack.Waits.Enter(r.Tenant)
	if err != nil {
		return job, box, err
	}
	defer leave()
	o := r.Options()
	o.Parallel = true
	done, err := submit(o)
	if err != nil {
		return job, box, gone(err)
	}
	r.Held.Release() // what was sent stands in the database by now
	return c.c.Stack.Follow(ctx, done, c.c.Patience)
}
