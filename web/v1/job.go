package v1

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"sandyard/jobs"
	"sandyard/jobs/kind"
	"sandyard/models"
	"sandyard/web/middleware"
	"sandyard/web/problem"
	"sandyard/web/rest"
)

// JobBody is the body of a submission of any kind.
type JobBody struct {
	SandboxID string         `json:"sandbox_id"`
	Kind      string         `json:"kind" doc:"Such as exec, write, read, pause, delete"`
	Args      map[string]any `json:"args,omitempty" doc:"The fields of this kind, the same as in its own operation"`
	Submit
}

type submitJobInput struct {
	SubmitParams
	Body JobBody
}

type jobInput struct {
	ID string `path:"id"`
}

// FieldsParam leaves out what a client does not need.
type FieldsParam struct {
	Fields []string `query:"fields" doc:"Return only these fields of a job, such as state,result"`
}

type cancelJobInput struct {
	ID string `path:"id"`
	WaitParam
}

type getJobInput struct {
	ID string `path:"id"`
	WaitParam
	FieldsParam
}

type retryInput struct {
	SubmitParams
	ID   string `path:"id"`
	Body *struct{}
}

type listJobsInput struct {
	SandboxID string `query:"sandbox_id"`
	Kind      string `query:"kind"`
	State     string `query:"state" enum:"queued,running,succeeded,failed,timed_out,cancelled,lost,expired"`
	FieldsParam
	rest.PageParams
}

// JobPage is one page of a list of jobs.
type JobPage struct {
	Jobs       []Job  `json:"jobs"`
	NextCursor string `json:"next_cursor,omitempty" doc:"Absent on the last page"`
}

// Delivery is the document of one callback.
type Delivery struct {
	ID            string     `json:"id" doc:"Sent as the header webhook-id of every attempt"`
	JobID         string     `json:"job_id"`
	Event         string     `json:"event"`
	URL           string     `json:"url"`
	State         string     `json:"state" enum:"pending,delivered,failed"`
	Attempts      int        `json:"attempts"`
	NextAttemptAt *time.Time `json:"next_attempt_at,omitempty"`
	LastStatus    *int       `json:"last_status,omitempty" doc:"HTTP status of the last attempt's response"`
	LastError     *string    `json:"last_error,omitempty"`
	CreatedAt     time.Time  `json:"created_at"`
	DeliveredAt   *time.Time `json:"delivered_at,omitempty"`
}

// DeliveryList is the callbacks of a job.
type DeliveryList struct {
	Deliveries []Delivery `json:"deliveries"`
}

// jobRoutes has the routes of jobs.
type jobRoutes struct{ *core }

func (s *jobRoutes) addJobs() {
	write(s.core, rest.Operation("submit-job", "POST /v1/jobs", tagJobs,
		"Submit a job of any kind on a sandbox"), s.submitJob)
	rest.Register(
		s.api,
		s.projected(
			"list-jobs",
			"/v1/jobs",
			"List jobs, newest first, without output and content",
			reflect.TypeFor[JobPage](),
		),
		s.listJobs,
	)
	rest.Register(
		s.api,
		s.projected("get-job", "/v1/jobs/{id}", "Get a job, or wait for its end", reflect.TypeFor[Job]()),
		s.getJob,
	)
	rest.Route(s.api, "cancel-job", "POST /v1/jobs/{id}/cancel", tagJobs,
		"Cancel a job: a queued job ends at once; a running job is stopped, even if its worker has died", s.cancelJob)
	write(s.core, rest.Operation("retry-job", "POST /v1/jobs/{id}/retry", tagJobs,
		"Submit an ended job again as a new job"), s.retryJob)
	rest.Route(s.api, "list-deliveries", "GET /v1/jobs/{id}/deliveries", tagJobs,
		"List the webhook deliveries of a job", s.listDeliveries)
}

// projected describes an operation whose answer is a T of which fields may be left out.
func (s *core) projected(id, path, summary string, t reflect.Type) huma.Operation {
	op := rest.Operation(id, "GET "+path, tagJobs, summary)
	res := s.api.Response("OK", "application/json", t)
	if t == reflect.TypeFor[Job]() {
		res.Content["application/json"].Schema = jobOrFields()
	}
	op.Responses = map[string]*huma.Response{"200": res}
	return op
}

func (s *jobRoutes) submitJob(ctx context.Context, in *submitJobInput) (*acceptedOutput, error) {
	if err := s.args.Check("body.args", in.Body.Kind, in.Body.Args); err != nil {
		return nil, err
	}
	raw, err := json.Marshal(in.Body.Args)
	if err != nil {
		return nil, err
	}
	if in.Body.Args == nil {
		raw = nil
	}
	args, err := kind.Decode(in.Body.Kind, raw)
	if err != nil {
		return nil, err
	}
	return s.submit(ctx, in.SubmitParams, in.Body.Submit, func(o jobs.Options) (models.Submitted, error) {
		return s.Jobs.Submit(ctx, in.Body.SandboxID, args, o)
	})
}

func (s *jobRoutes) getJob(ctx context.Context, in *getJobInput) (*rest.Output[any], error) {
	wait, err := in.duration(0)
	if err != nil {
		return nil, err
	}
	if err := in.check(); err != nil {
		return nil, err
	}
	var j models.Job
	if wait > 0 {
		var leave func()
		if leave, err = s.Stack.Waits.Enter(middleware.RequestOf(ctx).Tenant); err != nil {
			return nil, err
		}
		defer leave()
		j, err = s.Stack.Poll(ctx, s.Waiters.Wait, in.ID, wait)
	} else {
		j, err = s.Store.Job(ctx, middleware.RequestOf(ctx).Tenant, in.ID)
	}
	if err != nil {
		return nil, err
	}
	if err := s.Stack.Output(ctx, &j, in.outputs()...); err != nil {
		return nil, err
	}
	return rest.OK(in.project(s.jobDoc(j))), nil
}

func (s *jobRoutes) listJobs(ctx context.Context, in *listJobsInput) (*rest.Output[any], error) {
	if err := in.check(); err != nil {
		return nil, err
	}
	if kinds := kind.Names(); in.Kind != "" && !slices.Contains(kinds, in.Kind) {
		return nil, problem.Invalid("query.kind", "must be one of "+strings.Join(kinds, ", "))
	}
	list, err := s.Store.Jobs(ctx, middleware.RequestOf(ctx).Tenant, models.JobFilter{
		Sandbox: in.SandboxID, Kind: in.Kind, State: models.JobState(in.State), Before: in.Cursor, Limit: in.Limit + 1,
	})
	if err != nil {
		return nil, err
	}
	page, next := rest.CutPage(list, in.Limit, func(j models.Job) string { return j.ID })
	docs := rest.Docs(page, func(j models.Job) any { return in.project(s.jobSummary(j)) })
	return rest.OK[any](struct {
		Jobs       []any  `json:"jobs"`
		NextCursor string `json:"next_cursor,omitempty"`
	}{docs, next}), nil
}

func (s *jobRoutes) cancelJob(ctx context.Context, in *cancelJobInput) (*rest.Output[Job], error) {
	wait, err := in.duration(0)
	if err != nil {
		return nil, err
	}
	j, err := s.Jobs.Cancel(ctx, middleware.RequestOf(ctx).Tenant, in.ID, middleware.RequestOf(ctx).Actor())
	if err != nil {
		return nil, err
	}
	if wait > 0 && !j.State.Terminal() {
		j = s.untilEnd(ctx, j, wait)
	}
	return rest.OK(s.jobDoc(j)), nil
}

// untilEnd waits for a job's end. A tenant with too many waits is answered at once.
func (s *core) untilEnd(ctx context.Context, j models.Job, wait time.Duration) models.Job {
	leave, err := s.Stack.Waits.Enter(middleware.RequestOf(ctx).Tenant)
	if err != nil {
		return j
	}
	defer leave()
	if ended, err := s.Stack.Poll(ctx, s.Waiters.Wait, j.ID, wait); err == nil {
		return ended
	}
	return j
}

func (s *jobRoutes) retryJob(ctx context.Context, in *retryInput) (*acceptedOutput, error) {
	return s.submit(ctx, in.SubmitParams, Submit{}, func(o jobs.Options) (models.Submitted, error) {
		return s.Jobs.Retry(ctx, in.ID, o)
	})
}

func (s *jobRoutes) listDeliveries(ctx context.Context, in *jobInput) (*rest.Output[DeliveryList], error) {
	tenant := middleware.RequestOf(ctx).Tenant
	if _, err := s.Store.Job(ctx, tenant, in.ID); err != nil {
		return nil, err
	}
	list, err := s.Store.Deliveries(ctx, tenant, in.ID)
	if err != nil {
		return nil, err
	}
	return rest.OK(DeliveryList{rest.Docs(list, deliveryDoc)}), nil
}

func deliveryDoc(d models.Delivery) Delivery {
	doc := Delivery{
		ID: d.ID, JobID: d.JobID, Event: d.Event, URL: d.URL, State: d.State, Attempts: d.Attempt,
		LastStatus: d.LastStatus, LastError: d.LastError, CreatedAt: d.CreatedAt, DeliveredAt: d.DeliveredAt,
	}
	if d.State == "pending" {
		doc.NextAttemptAt = &d.NextAttemptAt
	}
	return doc
}

// check refuses names that no job has.
func (p FieldsParam) check() error {
	if len(p.Fields) == 0 {
		return nil
	}
	known := fieldNames(reflect.TypeFor[Job]())
	for _, f := range p.Fields {
		if !slices.Contains(known, f) {
			return problem.Invalid(
				"query.fields",
				fmt.Sprintf("contains the unknown field %q; the fields are %s", f, strings.Join(known, ", ")),
			)
		}
	}
	return nil
}

// outputs are the parts of a job's output that the document shows.
func (p FieldsParam) outputs() (parts []models.Output) {
	asked := func(names ...string) bool {
		return len(p.Fields) == 0 || slices.ContainsFunc(names, func(n string) bool { return slices.Contains(p.Fields, n) })
	}
	if asked("stdout", "stdout_encoding") {
		parts = append(parts, models.OutputStdout)
	}
	if asked("stderr", "stderr_encoding") {
		parts = append(parts, models.OutputStderr)
	}
	if asked("result", "content", "content_encoding") {
		parts = append(parts, models.OutputContent) // of a cell or a read of many files it is a part of the result
	}
	if len(parts) > 0 {
		parts = append(parts, models.OutputResult)
	}
	return parts
}

// project leaves of the document what was asked for.
func (p FieldsParam) project(doc Job) any {
	if len(p.Fields) == 0 {
		return doc
	}
	all, v := map[string]any{}, reflect.ValueOf(doc)
	for i, name := range fieldNames(v.Type()) {
		optional := strings.HasSuffix(v.Type().Field(i).Tag.Get("json"), ",omitempty")
		if slices.Contains(p.Fields, name) && (!optional || !absent(v.Field(i))) {
			all[name] = v.Field(i).Interface()
		}
	}
	return all
}

// absent says whether encoding/json leaves an optional field out.
func absent(v reflect.Value) bool { return v.IsZero() || v.Kind() == reflect.Slice && v.Len() == 0 }

func fieldNames(t reflect.Type) []string {
	var names []string
	for f := range t.Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		names = append(names, name)
	}
	return names
}
