package mcp

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"sandyard/models"
	"sandyard/toolset"
	"sandyard/web/middleware"
	"sandyard/web/problem"
)

type jobRef struct {
	JobID string `json:"job_id" jsonschema:"The job_id or exec_id of an earlier answer"`
}

type jobWait struct {
	JobID   string  `json:"job_id" jsonschema:"The job_id or exec_id of an earlier answer"`
	Seconds float64 `json:"seconds,omitempty" jsonschema:"How long to wait for the job's end; default and most 20"`
}

// jobDoc is how a job stands.
type jobDoc struct {
	ID         string           `json:"job_id"`
	Kind       string           `json:"kind"`
	State      string           `json:"state"`
	SandboxID  string           `json:"sandbox_id"`
	Running    bool             `json:"running"` // it has not ended
	Result     any              `json:"result,omitempty"`
	Error      *models.JobError `json:"error,omitempty"`
	QueuedAt   time.Time        `json:"queued_at"`
	FinishedAt *time.Time       `json:"finished_at,omitempty"`
}

func docOf(job models.Job) jobDoc {
	doc := jobDoc{
		ID: job.ID, Kind: job.Kind, State: string(job.State), SandboxID: job.SandboxID, Running: !job.State.Terminal(),
		Error:    job.Error,
		QueuedAt: job.QueuedAt.UTC(), FinishedAt: job.FinishedAt,
	}
	if len(job.Result) > 0 && job.Unread == 0 && len(job.Result) <= toolset.MaxHead &&
		job.Kind != "port" { // a port's URL has a token
		doc.Result = job.Result
	}
	return doc
}

func (d jobDoc) String() string {
	text := fmt.Sprintf("Job %s (%s) is %s.", d.ID, d.Kind, d.State)
	if d.Error != nil {
		text += " " + d.Error.Code + ": " + d.Error.Message
	}
	return text
}

func (d jobDoc) answer() *answer { return &answer{Text: d.String(), Fields: d} }

// jobTools are the tools of jobs.
type jobTools struct{ *Server }

func (s *jobTools) jobWait(ctx context.Context, c *call, a *jobWait) (*answer, error) {
	job, box, err := s.follow(ctx, c, a.JobID, toolset.Wait(a.Seconds))
	if err != nil {
		return nil, noJob(a.JobID, err)
	}
	if job.State == models.Succeeded && models.IsProgram(job.Kind) && !inBackground(job) {
		return s.outcome(ctx, job, box, toolset.Cursor{})
	}
	return docOf(job).answer(), nil
}

func (s *jobTools) jobGet(ctx context.Context, _ *call, a *jobRef) (*answer, error) {
	job, err := s.c.Store.Job(ctx, middleware.RequestOf(ctx).Tenant, a.JobID)
	if err != nil {
		return nil, noJob(a.JobID, err)
	}
	return docOf(job).answer(), nil
}

func (s *jobTools) jobCancel(ctx context.Context, _ *call, a *jobRef) (*answer, error) {
	job, err := s.stop(ctx, a.JobID)
	if err != nil {
		return nil, noJob(a.JobID, err)
	}
	return docOf(job).answer(), nil
}

// stop cancels a job because a tool was asked to, which the audit log tells.
func (s *Server) stop(ctx context.Context, jobID string) (models.Job, error) {
	r := middleware.RequestOf(ctx)
	r.Target = jobID
	if err := s.mw.Begin(ctx); err != nil {
		return models.Job{}, err
	}
	return s.c.Jobs.Cancel(ctx, r.Tenant, jobID, r.Actor())
}

type jobList struct {
	State string `json:"state,omitempty" jsonschema:"queued, running, succeeded, failed, cancelled, timed_out, lost or expired"`
	Kind  string `json:"kind,omitempty" jsonschema:"Such as exec, code or write"`
	Limit int    `json:"limit,omitempty" jsonschema:"Most jobs to return, at most 100; default 20"`
	in
}

func jobStates() []models.JobState {
	return []models.JobState{
		models.Queued, models.Running, models.Succeeded, models.Failed, models.Cancelled, models.TimedOut, models.Lost,
		models.Expired,
	}
}

// jobList lists the jobs of the named sandbox, or of all.
func (s *jobTools) jobList(ctx context.Context, _ *call, a *jobList) (*answer, error) {
	if a.State != "" && !slices.Contains(jobStates(), models.JobState(a.State)) {
		return nil, invalid("state", fmt.Sprintf("must be one of %v", jobStates()))
	}
	if a.Limit < 0 || a.Limit > 100 {
		return nil, invalid("limit", "must be between 1 and 100")
	}
	if a.Limit == 0 {
		a.Limit = 20
	}
	if a.Sandbox != "" { // of which a list would not tell that it is somebody else's
		if _, err := s.c.Store.Sandbox(ctx, middleware.RequestOf(ctx).Tenant, a.Sandbox); err != nil {
			return nil, err
		}
	}
	list, err := s.c.Store.Jobs(ctx, middleware.RequestOf(ctx).Tenant, models.JobFilter{
		Sandbox: a.Sandbox, Kind: a.Kind, State: models.JobState(a.State), Limit: a.Limit,
	})
	if err != nil {
		return nil, err
	}
	docs, lines := []jobDoc{}, []string{}
	for _, job := range list {
		doc := docOf(job)
		doc.Result = nil
		docs, lines = append(docs, doc), append(lines, doc.String())
	}
	if len(lines) == 0 {
		lines = []string{"There are no such jobs."}
	}
	return &answer{Text: strings.Join(lines, "\n"), Fields: map[string]any{"jobs": docs}}, nil
}

func noJob(id string, err error) error {
	if p := problem.Of(err, 0); p.Code == "not_found" {
		return problem.New(
			p.Status,
			"job_not_found",
			fmt.Sprintf("there is no job %q of this API key; use the job_id of an earlier answer", id),
		)
	}
	return err
}
