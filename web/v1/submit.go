package v1

import (
	"context"
	"math"
	"net/http"
	"strconv"
	"time"

	"sandyard/jobs"
	"sandyard/models"
	"sandyard/web/middleware"
	"sandyard/web/problem"
)

// maxWait bounds a long poll.
const maxWait = 120 * time.Second

// SubmitParams come with every request that submits a job.
type SubmitParams struct {
	IdempotencyKey string `header:"Idempotency-Key" doc:"Your own name for this request, at most 255 characters. A request that is repeated with it within 24 hours, as after a lost response or a 503, returns the first request's job"`
	WaitParam
}

// WaitParam makes a request a long poll.
type WaitParam struct {
	Wait string `query:"wait" doc:"How long to wait for the job's end, such as 30s or 30, at most 120s. The job continues when the wait or the connection ends" example:"30s"`
}

// Submit holds the fields that every submission may have beside its own.
type Submit struct {
	Parallel             bool    `json:"parallel,omitempty" doc:"Do not wait for earlier jobs of the sandbox. Ignored by create, build and run, which have no earlier jobs"`
	Priority             int     `json:"priority,omitempty" minimum:"-100" maximum:"100" doc:"Priority among your own jobs; higher runs first"`
	CallbackURL          string  `json:"callback_url,omitempty" doc:"URL to call at the job's end, signed per Standard Webhooks; GET /v1/webhooks/secret returns the secret"`
	QueueDeadlineSeconds float64 `json:"queue_deadline_seconds,omitempty" minimum:"0" maximum:"86400" doc:"The job expires if it has not started by then; 0 = never"`
}

// Accepted is the answer to what submits a job.
type Accepted struct {
	Job      Job      `json:"job"`
	Sandbox  *Sandbox `json:"sandbox,omitempty"`
	Existing bool     `json:"existing,omitempty" doc:"A live sandbox with this key already existed; nothing was created"`
}

type acceptedOutput struct {
	Status   int
	Location string `header:"Location" doc:"The job"`
	Replayed string `header:"Idempotent-Replayed" doc:"true if an earlier request with this Idempotency-Key submitted the job"`
	Body     Accepted
}

// options are what goes with the submission that ctx's request makes.
func (p SubmitParams) options(ctx context.Context, f Submit) (jobs.Options, error) {
	o, err := middleware.RequestOf(ctx).Keyed(p.IdempotencyKey)
	o.Parallel, o.Priority, o.CallbackURL = f.Parallel, f.Priority, f.CallbackURL
	o.QueueDeadline = time.Duration(f.QueueDeadlineSeconds * float64(time.Second))
	return o, err
}

// submit checks the request's parameters before do makes the submission, then waits as asked.
func (s *core) submit(ctx context.Context, p SubmitParams, f Submit,
	do func(jobs.Options) (models.Submitted, error),
) (*acceptedOutput, error) {
	wait, err := p.duration(0)
	if err != nil {
		return nil, err
	}
	return s.submitAndWait(ctx, p, f, wait, do)
}

func (s *core) submitAndWait(ctx context.Context, p SubmitParams, f Submit, wait time.Duration,
	do func(jobs.Options) (models.Submitted, error),
) (*acceptedOutput, error) {
	o, err := p.options(ctx, f)
	if err != nil {
		return nil, err
	}
	if wait > 0 {
		leave, err := s.Stack.Waits.Enter(middleware.RequestOf(ctx).Tenant)
		if err != nil {
			return nil, err
		}
		defer leave()
	}
	done, err := do(o)
	if err != nil {
		return nil, err
	}
	return s.accepted(ctx, done, wait), nil
}

// accepted answers a submission. From here on nothing may turn it into an error: the job is written down.
func (s *core) accepted(ctx context.Context, done models.Submitted, wait time.Duration) *acceptedOutput {
	job, box := middleware.Answer(done), done.Sandbox
	if wait > 0 && !job.State.Terminal() {
		job.Input = nil
		clear(done.Jobs) // what was submitted takes no memory while it is waited for
		middleware.RequestOf(ctx).Held.Release()
		job, box = s.waitFor(ctx, job, box, wait)
	}
	out := &acceptedOutput{Status: http.StatusAccepted, Location: "/v1/jobs/" + job.ID}
	if done.Replayed || done.Existing || job.State.Terminal() {
		out.Status = http.StatusOK
	}
	if done.Replayed {
		out.Replayed = "true"
	}
	doc := s.sandboxDoc(box)
	if err := s.Stack.Output(ctx, &job, FieldsParam{}.outputs()...); err != nil {
		s.Log.WarnContext(ctx, "answer without the job's output", "job_id", job.ID, "error", err)
	}
	out.Body = Accepted{Job: s.jobDoc(job), Sandbox: &doc, Existing: done.Existing}
	return out
}

// waitFor returns job and sandbox as they stand at the job's end or after the wait.
func (s *core) waitFor(
	ctx context.Context,
	job models.Job,
	box models.Sandbox,
	wait time.Duration,
) (models.Job, models.Sandbox) {
	now, err := s.Stack.Poll(ctx, s.Waiters.WaitNew, job.ID, wait)
	if err != nil {
		s.Log.WarnContext(ctx, "wait interrupted", "job_id", job.ID, "error", err)
		return job, box
	}
	if after, err := s.Store.Sandbox(ctx, job.TenantID, box.ID); err == nil {
		box = after
	}
	return now, box
}

// duration reads the wait, whose default is def.
func (p WaitParam) duration(def time.Duration) (time.Duration, error) {
	if p.Wait == "" {
		return def, nil
	}
	d, err := time.ParseDuration(p.Wait)
	if seconds, plain := strconv.ParseFloat(p.Wait, 64); plain == nil && math.Abs(seconds) < 1e6 {
		d, err = time.Duration(seconds*float64(time.Second)), nil
	}
	if err != nil || d < 0 || d > maxWait {
		return 0, problem.Invalid("query.wait", "must be a duration between 0 and 120s, such as 30s")
	}
	return d, nil
}
