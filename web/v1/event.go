package v1

import (
	"context"
	"encoding/json"
	"time"

	"sandyard/models"
	"sandyard/web/middleware"
	"sandyard/web/rest"
)

// Event is the document of something that happened.
type Event struct {
	ID         int64        `json:"id" doc:"Grows with time"`
	At         time.Time    `json:"at"`
	Event      string       `json:"event" doc:"What happened, such as sandbox.running, sandbox.adopted, job.requeued, job.failed or schedule.disabled" example:"sandbox.lost"`
	SandboxID  string       `json:"sandbox_id,omitempty" doc:"Absent if a schedule creates a new sandbox for each run"`
	ScheduleID *string      `json:"schedule_id,omitempty" doc:"The schedule of the event"`
	JobID      *string      `json:"job_id,omitempty" doc:"The job of the event, or the job that caused it"`
	Actor      string       `json:"actor" doc:"Who caused it: the id of an API key, schedule:<id>, scheduler, platform or worker:<node>"`
	Reason     *string      `json:"reason,omitempty" doc:"Why it happened"`
	Detail     *EventDetail `json:"detail,omitempty"`
}

// EventDetail is what more is known of an event. What does not belong to it is absent.
type EventDetail struct {
	Kind      string     `json:"kind,omitempty" doc:"The job's kind"`
	Attempt   int        `json:"attempt,omitempty" doc:"The job's attempt"`
	Error     string     `json:"error,omitempty" doc:"The job's error code"`
	ExitCode  *int       `json:"exit_code,omitempty"`
	RetryOf   string     `json:"retry_of,omitempty"`
	From      string     `json:"from,omitempty" doc:"The sandbox's previous state or node"`
	Node      string     `json:"node,omitempty" doc:"The worker that holds the sandbox or ran the job"`
	Provider  string     `json:"provider,omitempty"`
	Template  string     `json:"template,omitempty"`
	Image     string     `json:"image,omitempty"`
	ExpiresAt *time.Time `json:"expires_at,omitempty"`
}

// EventPage is one page of events.
type EventPage struct {
	Events     []Event `json:"events"`
	NextCursor string  `json:"next_cursor,omitempty" doc:"Absent on the last page"`
}

type eventsInput struct {
	ID     string `path:"id"`
	Cursor string `query:"cursor" pattern:"^[0-9]{1,18}$" patternDescription:"a next_cursor" doc:"The next_cursor of the previous page"`
	Limit  int    `query:"limit" minimum:"1" maximum:"100" default:"50"`
}

// events has the routes of what happened to sandboxes and jobs.
type events struct{ *core }

func (s *events) addEvents() {
	rest.Route(s.api, "list-sandbox-events", "GET /v1/sandboxes/{id}/events", tagSandboxes,
		"List the events of a sandbox and its jobs, newest first", s.sandboxEvents)
	rest.Route(s.api, "list-job-history", "GET /v1/jobs/{id}/history", tagJobs,
		"List the events of a job, newest first", s.jobHistory)
}

func (s *events) sandboxEvents(ctx context.Context, in *eventsInput) (*rest.Output[EventPage], error) {
	return s.events(ctx, in, models.EventFilter{Sandbox: in.ID}, func(tenantID string) error {
		_, err := s.Store.Sandbox(ctx, tenantID, in.ID)
		return err
	})
}

func (s *events) jobHistory(ctx context.Context, in *eventsInput) (*rest.Output[EventPage], error) {
	return s.events(ctx, in, models.EventFilter{Job: in.ID}, func(tenantID string) error {
		_, err := s.Store.Job(ctx, tenantID, in.ID)
		return err
	})
}

// events answers with a page. Events may outlive the row they tell of, so exists is asked only where there are none.
func (s *core) events(
	ctx context.Context,
	in *eventsInput,
	f models.EventFilter,
	exists func(tenantID string) error,
) (*rest.Output[EventPage], error) {
	f.Limit = in.Limit + 1
	before, err := rest.ReadNumber(in.Cursor)
	if err != nil {
		return nil, err
	}
	f.Before = before
	tenant := middleware.RequestOf(ctx).Tenant
	list, err := s.Store.Events(ctx, tenant, f)
	if err == nil && len(list) == 0 {
		err = exists(tenant)
	}
	if err != nil {
		return nil, err
	}
	page, next := rest.CutPage(list, in.Limit, func(e models.Event) int64 { return e.ID })
	return rest.OK(EventPage{rest.Docs(page, eventDoc), next}), nil
}

func eventDoc(e models.Event) Event {
	doc := Event{
		ID:         e.ID,
		At:         e.At,
		Event:      e.Event,
		SandboxID:  e.SandboxID,
		ScheduleID: e.ScheduleID,
		JobID:      e.JobID,
		Actor:      e.Actor,
		Reason:     e.Reason,
	}
	var d EventDetail
	if json.Unmarshal(e.Detail, &d) == nil && d != (EventDetail{}) {
		doc.Detail = &d
	}
	return doc
}
