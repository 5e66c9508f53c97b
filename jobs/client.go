// Package jobs is the client of the queue's life: it turns requests into durable jobs, and hands them to Redis.
//
// PostgreSQL decides everything; a message in Redis only says where to look. Workers (jobs/worker) carry jobs out, the
// scheduler (jobs/scheduler) picks up whatever time or a crash has left. See ARCHITECTURE.md for the life of a job.
package jobs

import (
	"context"
	"log/slog"
	"time"

	"sandyard/jobs/imagepolicy"
	"sandyard/jobs/kind"
	"sandyard/jobs/queue"
	"sandyard/models"
)

// Client accepts jobs and tells how they stand. Its methods may be called concurrently.
//
// Errors of all that submit: *InvalidError, and those of models.Store.Submit.
type Client struct {
	store   *models.Store
	queue   *queue.Queue
	catalog Catalog
	images  imagepolicy.Policy
	rooms   *rooms
	log     *slog.Logger
}

// NewClient returns a client on store that hands jobs to queue.
func NewClient(store *models.Store, queue *queue.Queue, catalog Catalog, log *slog.Logger) *Client {
	allowed := imagepolicy.New(store, catalog.Templates, catalog.Images)
	return &Client{store: store, queue: queue, catalog: catalog, images: allowed, rooms: newRooms(store), log: log}
}

// Catalog says what the configuration offers.
func (c *Client) Catalog() Catalog { return c.catalog }

// wish returns the row of the sandbox that is wished for, and the job that makes it.
func (c *Client) wish(ctx context.Context, wish CreateSandbox, tenantID string) (*models.Sandbox, *kind.Create, error) {
	from, err := c.resolve(ctx, wish, tenantID)
	if err != nil {
		return nil, nil, err
	}
	box, limits, err := wish.sandbox(tenantID, from)
	if err == nil {
		err = c.catalog.bound(box)
	}
	for _, p := range from.places {
		if err == nil {
			err = c.fits(ctx, p.Provider, limits)
		}
		if err == nil {
			err = canMake(c.catalog.able(p.Provider), box)
		}
	}
	create := &kind.Create{ReadySeconds: kind.ReadyTimeout(from.template.Definition).Seconds()}
	if err == nil {
		create.ReadySeconds += kind.Spec{Git: wish.Git, Setup: wish.Setup}.SetupTime().Seconds()
		err = c.checkSetup(ctx, wish, box)
	}
	if from.template.BuildID != nil {
		create.ReadySeconds += defaultBuildTimeout.Seconds() // the engine that gets it may have to build the image first
	}
	return box, create, err
}

// Create submits a sandbox's create job, or returns the tenant's live sandbox that has the wish's key.
func (c *Client) Create(ctx context.Context, wish CreateSandbox, o Options) (models.Submitted, error) {
	box, create, err := c.wish(ctx, wish, o.TenantID)
	if err != nil {
		return models.Submitted{}, err
	}
	return c.submit(ctx, c.newSandbox(box), []kind.Args{create}, o)
}

// Run submits a sandbox, its files, one command or piece of code and the sandbox's removal as one. The job of the
// command or code is the answer.
func (c *Client) Run(ctx context.Context, r RunOnce, o Options) (models.Submitted, error) {
	c.catalog.Defaults.outlive(&r)
	box, create, err := c.wish(ctx, r.Sandbox, o.TenantID)
	if err != nil {
		return models.Submitted{}, err
	}
	work, err := r.work()
	if err != nil {
		return models.Submitted{}, err
	}
	args := []kind.Args{create}
	if len(r.Files) > 0 {
		if err := kind.CheckFiles(r.Files); err != nil {
			return models.Submitted{}, err
		}
		args, o.needsFiles = append(args, &kind.WriteMany{Files: r.Files}), true
	}
	sub := c.newSandbox(box)
	sub.PrimaryJob = len(args)
	return c.submit(ctx, sub, append(args, work, &kind.Delete{Reason: "run finished"}), o)
}

func (c *Client) newSandbox(box *models.Sandbox) models.Submission {
	return models.Submission{SandboxID: box.ID, New: box, Timeout: time.Duration(box.TimeoutMS) * time.Millisecond}
}

// Submit submits one job on an existing sandbox.
func (c *Client) Submit(ctx context.Context, sandboxID string, args kind.Args, o Options) (models.Submitted, error) {
	sub := models.Submission{SandboxID: sandboxID}
	if err := setTimeout(&sub, args); err != nil {
		return models.Submitted{}, err
	}
	if kind.Of(args).Outside {
		o.Parallel = true
	}
	if _, ok := args.(*kind.Port); ok {
		if err := c.reachable(ctx, sandboxID, o); err != nil {
			return models.Submitted{}, err
		}
	}
	if err := c.supports(ctx, sandboxID, args, o); err != nil {
		return models.Submitted{}, err
	}
	out, err := c.submit(ctx, sub, []kind.Args{args}, o)
	if err == nil {
		c.resumeFor(ctx, out.Sandbox, args)
	}
	return out, err
}

// setTimeout writes down when the sandbox is to expire, where a job says so.
func setTimeout(sub *models.Submission, args kind.Args) (err error) {
	switch t := args.(type) {
	case *kind.SetTimeout:
		sub.ExtendOnly = t.OnlyLater
		sub.Timeout, err = t.Duration()
	case *kind.Resume:
		sub.ExtendOnly = true
		sub.Timeout, err = t.Duration()
	}
	return err
}

// KeepAlive sets the sandbox's timeout anew, from now on, as long as it was; like every job it counts as activity.
func (c *Client) KeepAlive(ctx context.Context, sandboxID string, o Options) (models.Submitted, error) {
	box, err := c.store.Sandbox(ctx, o.TenantID, sandboxID)
	if err != nil {
		return models.Submitted{}, err
	}
	return c.Submit(ctx, sandboxID, &kind.SetTimeout{TimeoutSeconds: float64(box.TimeoutMS) / 1000}, o)
}

// Delete submits the removal of a sandbox after its earlier jobs, or, with force, at once: jobs that wait are cancelled
// and those that run are stopped.
func (c *Client) Delete(ctx context.Context, sandboxID string, force bool, o Options) (models.Submitted, error) {
	sub := models.Submission{SandboxID: sandboxID}
	if force {
		o.Parallel = true
		sub.End = &models.End{Reason: "deleted", Actor: o.Actor}
	}
	return c.submit(ctx, sub, []kind.Args{&kind.Delete{}}, o)
}

func (c *Client) submit(
	ctx context.Context,
	sub models.Submission,
	args []kind.Args,
	o Options,
) (models.Submitted, error) {
	if err := o.check(c.catalog.Callbacks); err != nil {
		return models.Submitted{}, err
	}
	for i, a := range args {
		c.catalog.Defaults.complete(a)
		j, err := newJob(sub.SandboxID, a, o)
		if err != nil {
			return models.Submitted{}, err
		}
		if err := c.checkSecrets(ctx, o.TenantID, a); err != nil {
			return models.Submitted{}, err
		}
		if i != sub.PrimaryJob { // only the job that the request is about reports back
			j.CallbackURL, j.ExpireIn, j.Call = nil, 0, nil
		}
		if o.needsFiles && i == sub.PrimaryJob {
			j.Needs = &sub.Jobs[i-1].ID
		}
		sub.Jobs = append(sub.Jobs, j)
	}
	if sub.Build != nil {
		sub.Build.JobID = sub.Jobs[0].ID
	}
	if sub.User = o.User; o.User != "" && sub.New != nil {
		sub.New.UserID = &o.User
	}
	sub.Audit = o.Audit
	sub.TenantID, sub.IdempotencyKey, sub.Request, sub.Run = o.TenantID, o.IdempotencyKey, o.Request, o.run
	return c.commit(ctx, sub)
}

// commit writes a submission down and wakes the queue. Once the commit is made nothing can undo the acceptance: what
// Redis does not take now, the sweep sends later.
func (c *Client) commit(ctx context.Context, sub models.Submission) (models.Submitted, error) {
	out, err := c.submitCharged(ctx, sub)
	if err != nil {
		return out, err
	}
	c.queue.Send(ctx, out.Dispatch)
	c.queue.Announce(ctx, out.Ended...)
	if sub.End != nil {
		c.queue.Interrupt(ctx, sub.SandboxID)
	}
	return out, nil
}

// newJob makes a job that the options say more of.
func newJob(sandboxID string, args kind.Args, o Options) (models.Job, error) {
	j, err := kind.NewJob(o.TenantID, sandboxID, args)
	if err != nil {
		return j, err
	}
	j.Parallel, j.Priority, j.Actor = o.Parallel, o.Priority, o.Actor
	if o.CallbackURL != "" {
		j.CallbackURL = &o.CallbackURL
	}
	if o.retryOf != "" {
		j.RetryOf = &o.retryOf
	}
	j.ExpireIn, j.Call, j.JoinIn = o.QueueDeadline, o.Call, o.JoinIn
	return j, nil
}

// Cancel ends a queued job at once and stops a running one, on behalf of actor; on an ended job it does nothing.
func (c *Client) Cancel(ctx context.Context, tenantID, id, actor string) (models.Job, error) {
	j, f, err := c.store.Cancel(ctx, tenantID, id, actor)
	if err != nil {
		return j, err
	}
	c.queue.Follow(ctx, f)
	if !j.State.Terminal() {
		c.queue.Interrupt(ctx, id)
	}
	return j, nil
}

// Retry submits an ended job again, as a new one. Errors: models.ErrNotTerminal, and those of Submit.
func (c *Client) Retry(ctx context.Context, id string, o Options) (models.Submitted, error) {
	j, err := c.store.JobWithInput(ctx, o.TenantID, id)
	if err != nil {
		return models.Submitted{}, err
	}
	if !j.State.Terminal() {
		return models.Submitted{}, models.ErrNotTerminal
	}
	args, err := kind.FromJob(j)
	if err != nil {
		return models.Submitted{}, err
	}
	if j.Kind == models.KindCreate || j.Kind == models.KindBuild {
		return models.Submitted{}, kind.Invalid("job", "a %s cannot be retried; submit a new one", j.Kind)
	}
	if j.InputDropped {
		return models.Submitted{}, kind.Invalid(
			"job",
			"the input of job %s, such as stdin or a file's content, was deleted when it "+
				"ended; submit the %s again with its input",
			j.ID,
			j.Kind,
		)
	}
	o.Parallel, o.Priority, o.retryOf = j.Parallel, j.Priority, j.ID
	if j.CallbackURL != nil {
		o.CallbackURL = *j.CallbackURL
	}
	return c.retry(ctx, j, args, o)
}

func (c *Client) retry(ctx context.Context, j models.Job, args kind.Args, o Options) (models.Submitted, error) {
	again, err := newJob(j.SandboxID, args, o)
	if err != nil {
		return models.Submitted{}, err
	}
	again.Input = j.Input
	sub := models.Submission{
		TenantID: o.TenantID, User: o.User, Audit: o.Audit, SandboxID: j.SandboxID, Jobs: []models.Job{again},
		IdempotencyKey: o.IdempotencyKey, Request: o.Request,
	}
	if err := setTimeout(&sub, args); err != nil {
		return models.Submitted{}, err
	}
	return c.commit(ctx, sub)
}
