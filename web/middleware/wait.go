package middleware

import (
	"context"
	"time"

	"sandyard/jobs"
	"sandyard/models"
	"sandyard/web/problem"
)

// Waiting is one of the ways to wait that queue.Waiters has.
type Waiting func(ctx context.Context, tenantID, jobID string, limit time.Duration) (models.Job, error)

// Poll waits for a job of the request's tenant, but not longer than the server lives.
func (s *Stack) Poll(ctx context.Context, waitFor Waiting, jobID string, wait time.Duration) (models.Job, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer s.onQuit(cancel)()
	return waitFor(ctx, RequestOf(ctx).Tenant, jobID, wait)
}

// Follow waits for the job that a submission is about, and returns it with its sandbox, as both stand at its end or
// after the wait.
func (s *Stack) Follow(
	ctx context.Context,
	done models.Submitted,
	wait time.Duration,
) (models.Job, models.Sandbox, error) {
	return s.await(ctx, s.waiters.WaitNew, Answer(done).ID, wait)
}

// Await is Follow for a job that was submitted earlier.
func (s *Stack) Await(ctx context.Context, jobID string, wait time.Duration) (models.Job, models.Sandbox, error) {
	return s.await(ctx, s.waiters.Wait, jobID, wait)
}

func (s *Stack) await(
	ctx context.Context,
	waitFor Waiting,
	id string,
	wait time.Duration,
) (models.Job, models.Sandbox, error) {
	job, err := s.Poll(ctx, waitFor, id, wait)
	if err != nil {
		return models.Job{}, models.Sandbox{}, err
	}
	box, err := s.store.Sandbox(ctx, job.TenantID, job.SandboxID)
	return job, box, err
}

// Output reads what Store.Job has left because of its size, when there is memory for it.
func (s *Stack) Output(ctx context.Context, j *models.Job, parts ...models.Output) error {
	if j.Unread == 0 || len(parts) == 0 {
		return nil
	}
	const encoded = 2 // encoding/json keeps buffers that have grown to the next power of two
	if err := RequestOf(ctx).Held.Add(ctx, encoded*j.Unread); err != nil {
		return err
	}
	return s.store.Output(ctx, j, parts...)
}

// Answer picks the job that a request is about: of several, the command between its sandbox's create and delete.
func Answer(done models.Submitted) models.Job {
	for _, j := range done.Jobs {
		if models.IsProgram(j.Kind) {
			return j
		}
	}
	if len(done.Jobs) == 0 { // a sandbox that stood already, from before its create job was pruned
		return models.Job{SandboxID: done.Sandbox.ID, Kind: models.KindCreate, State: models.Succeeded}
	}
	return done.Jobs[0]
}

// Options are what every submission of this request carries.
func (r *Request) Options() jobs.Options {
	return jobs.Options{TenantID: r.Tenant, Actor: r.Actor(), User: r.User, Audit: r.AuditEntry(), Request: r.Digest}
}

// Keyed are the Options of a request that came with an Idempotency-Key; an empty one stands for none.
func (r *Request) Keyed(key string) (jobs.Options, error) {
	if !Storable([]byte(key)) {
		return jobs.Options{}, problem.Invalid("header.Idempotency-Key", "must be UTF-8 without NUL")
	}
	o := r.Options()
	o.IdempotencyKey = key
	return o, nil
}
