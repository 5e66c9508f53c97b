package v1

import (
	"context"
	"net/http"
	"time"

	"sandyard/jobs"
	"sandyard/models"
	"sandyard/web/middleware"
	"sandyard/web/rest"
)

// Times say when a schedule is due.
type Times struct {
	Cron            *string  `json:"cron,omitempty" maxLength:"256" doc:"Five fields: minute, hour, day of month, month, day of week; or @hourly, @daily, @weekly, @monthly, @yearly. Daylight saving: times skipped by the clock change are due once, right after it; times that occur twice are due the first time only, unless the hour is *" example:"30 3 * * 1-5"`
	TimeZone        *string  `json:"time_zone,omitempty" maxLength:"64" doc:"IANA time zone of cron; default UTC" example:"Europe/Berlin"`
	IntervalSeconds *float64 `json:"interval_seconds,omitempty" minimum:"1" maximum:"31536000" doc:"Instead of cron: due at this interval, counted from the creation, the last change of the times or the last resume"`
}

// Policies say what a schedule does when it cannot do as it was told.
type Policies struct {
	Overlap    string `json:"overlap,omitempty" enum:"skip,queue,cancel_running" doc:"What happens at a due time while an earlier run is active: skip the new run, queue it (at most 100 wait), or cancel the earlier run's job and then run; default skip. A background exec counts as ended when its command has started"`
	Missed     string `json:"missed,omitempty" enum:"skip,run_once,run_all" doc:"What happens to due times that passed without a running scheduler. skip: run the newest only if it is at most a minute old; run_once: run the newest; run_all: run the newest max_catch_up, one after the other; default skip"`
	MaxCatchUp int    `json:"max_catch_up,omitempty" minimum:"1" maximum:"100" doc:"For run_all; default 10"`
}

// Schedule is the document of what is done again and again.
type Schedule struct {
	ID     string  `json:"id"`
	Name   *string `json:"name,omitempty"`
	State  string  `json:"state" enum:"active,paused,disabled" doc:"disabled: its sandbox, template or another required object is gone"`
	Reason *string `json:"reason,omitempty" doc:"Why it is disabled"`
	Times
	Policies
	Kind      string  `json:"kind" doc:"run, create, or the kind of the job that it submits"`
	SandboxID *string `json:"sandbox_id,omitempty" doc:"The sandbox of its jobs, if all use the same one"`
	jobs.Action
	jobs.Standing
	NextDue             *time.Time `json:"next_due,omitempty" doc:"Absent unless the schedule is active"`
	LastDue             *time.Time `json:"last_due,omitempty"`
	ConsecutiveFailures int        `json:"consecutive_failures" doc:"Failed runs since the last successful one: not submitted, job not succeeded, or a command exit code other than 0"`
	CreatedBy           string     `json:"created_by" doc:"The id of an API key. The schedule belongs to the tenant and continues if the key is revoked"`
	CreatedAt           time.Time  `json:"created_at"`
	UpdatedAt           time.Time  `json:"updated_at"`
}

// NewSchedule is the body that makes a schedule.
type NewSchedule struct {
	Name   *string `json:"name,omitempty" minLength:"1" maxLength:"128" doc:"Your own name for it, unique among your schedules"`
	Paused bool    `json:"paused,omitempty" doc:"Create it in the state paused"`
	Times
	Policies
	jobs.Action
	jobs.Standing
}

// ScheduleChange is the body that changes a schedule. What is absent stays; cron takes the place of interval_seconds
// and the other way round; run, create or job come with all of the options that are to go with them.
type ScheduleChange struct {
	Name *string `json:"name,omitempty" minLength:"1" maxLength:"128"`
	Times
	Policies
	jobs.Action
	jobs.Standing
}

// ScheduleRun is the document of a due time and what became of it.
type ScheduleRun struct {
	ID        string     `json:"id"`
	DueAt     time.Time  `json:"due_at"`
	Manual    bool       `json:"manual" doc:"Started by POST …/run"`
	State     string     `json:"state" enum:"pending,submitted,skipped,succeeded,failed,timed_out,cancelled,lost,expired" doc:"pending: it waits for an earlier run; submitted: its job has not ended; otherwise the final state of its job. failed without a job: it could not be submitted"`
	Reason    *string    `json:"reason,omitempty" doc:"Why it waits, was skipped or failed"`
	Ticks     int        `json:"ticks" doc:"Number of due times that a skipped run stands for; due_at is the last"`
	JobID     *string    `json:"job_id,omitempty"`
	SandboxID *string    `json:"sandbox_id,omitempty"`
	ExitCode  *int       `json:"exit_code,omitempty" doc:"Exit code of an exec's command"`
	EndedAt   *time.Time `json:"ended_at,omitempty"`
}

// SchedulePage is one page of a list of schedules.
type SchedulePage struct {
	Schedules  []Schedule `json:"schedules" doc:"Without run, create and job"`
	NextCursor string     `json:"next_cursor,omitempty" doc:"Absent on the last page"`
}

// ScheduleRunPage is one page of a schedule's history.
type ScheduleRunPage struct {
	Runs       []ScheduleRun `json:"runs"`
	NextCursor string        `json:"next_cursor,omitempty" doc:"Absent on the last page"`
}

type newScheduleInput struct{ Body NewSchedule }

type scheduleInput struct {
	ID string `path:"id"`
}

type changeScheduleInput struct {
	ID   string `path:"id"`
	Body ScheduleChange
}

type runScheduleInput struct {
	SubmitParams
	ID   string `path:"id"`
	Body *struct{}
}

type listSchedulesInput struct {
	State     string `query:"state" enum:"active,paused,disabled"`
	SandboxID string `query:"sandbox_id"`
	Name      string `query:"name"`
	CreatedBy string `query:"created_by" doc:"The id of an API key; revoking the key does not end its schedules"`
	rest.PageParams
}

type listRunsInput struct {
	ID string `path:"id"`
	rest.PageParams
}

// schedules has the routes of schedules and their runs.
type schedules struct{ *core }

func (s *schedules) addSchedules() {
	create := rest.Operation("create-schedule", "POST /v1/schedules", tagSchedules, "Create a schedule")
	create.Description = "Submits a job repeatedly: at the times of a `cron` expression in a time zone, or every `interval_seconds`. Each due " +
		"time is stored and fires at most once, even if processes crash."
	create.DefaultStatus = http.StatusCreated
	rest.Register(s.api, create, s.createSchedule)
	rest.Route(s.api, "list-schedules", "GET /v1/schedules", tagSchedules,
		"List schedules, newest first", s.listSchedules)
	rest.Route(s.api, "get-schedule", "GET /v1/schedules/{id}", tagSchedules, "Get a schedule", s.getSchedule)
	rest.Route(s.api, "change-schedule", "PATCH /v1/schedules/{id}", tagSchedules,
		"Change a schedule", s.changeSchedule)
	rest.Route(s.api, "delete-schedule", "DELETE /v1/schedules/{id}", tagSchedules,
		"Delete a schedule with its history; jobs that it has submitted continue", s.deleteSchedule)
	rest.Route(s.api, "pause-schedule", "POST /v1/schedules/{id}/pause", tagSchedules,
		"Pause a schedule", s.pauseSchedule)
	rest.Route(s.api, "resume-schedule", "POST /v1/schedules/{id}/resume", tagSchedules,
		"Resume a paused or disabled schedule; due times that passed meanwhile are skipped", s.resumeSchedule)
	write(s.core, rest.Operation("run-schedule", "POST /v1/schedules/{id}/run", tagSchedules,
		"Run a schedule immediately, in any state and even while earlier runs are active"), s.runSchedule)
	rest.Route(s.api, "list-schedule-runs", "GET /v1/schedules/{id}/runs", tagSchedules,
		"List a schedule's last runs, newest first", s.listScheduleRuns)
	rest.Route(s.api, "list-schedule-events", "GET /v1/schedules/{id}/events", tagSchedules,
		"List the events of a schedule, newest first", s.scheduleEvents)
}

func (s *schedules) createSchedule(ctx context.Context, in *newScheduleInput) (*rest.Output[Schedule], error) {
	r := middleware.RequestOf(ctx)
	c := models.Schedule{TenantID: r.Tenant, CreatedBy: r.Actor(), Name: in.Body.Name}
	if r.User != "" {
		c.UserID = &r.User
	}
	if in.Body.Paused {
		c.State = models.SchedulePaused
	}
	in.Body.Times.apply(&c)
	in.Body.Policies.apply(&c)
	if err := s.checkAction(in.Body.Action); err != nil {
		return nil, err
	}
	if err := jobs.SetAction(&c, in.Body.Action, in.Body.Standing); err != nil {
		return nil, err
	}
	c, err := s.Jobs.CreateSchedule(ctx, c)
	r.Target = c.ID
	return scheduleOutput(c, err)
}

// apply leaves the other way of saying when alone where the request names both: that is an error of its own.
func (t Times) apply(c *models.Schedule) {
	if t.Cron != nil {
		c.Cron, c.IntervalMS = t.Cron, nil
	}
	if t.IntervalSeconds != nil {
		c.IntervalMS = new(int64(*t.IntervalSeconds * 1000))
		if t.Cron == nil {
			c.Cron = nil
		}
	}
	if t.TimeZone != nil {
		c.TimeZone = *t.TimeZone
	}
}

func (p Policies) apply(c *models.Schedule) {
	if p.Overlap != "" {
		c.Overlap = p.Overlap
	}
	if p.Missed != "" {
		c.Missed = p.Missed
	}
	if p.MaxCatchUp != 0 {
		c.MaxCatchUp = p.MaxCatchUp
	}
}

func (s *schedules) changeSchedule(ctx context.Context, in *changeScheduleInput) (*rest.Output[Schedule], error) {
	r := middleware.RequestOf(ctx)
	if err := s.checkAction(in.Body.Action); err != nil {
		return nil, err
	}
	return scheduleOutput(s.Jobs.ChangeSchedule(ctx, r.Tenant, in.ID, r.Actor(), func(c *models.Schedule) error {
		if in.Body.Name != nil {
			c.Name = in.Body.Name
		}
		in.Body.Times.apply(c)
		in.Body.Policies.apply(c)
		action, standing := in.Body.Action, in.Body.Standing
		if action == (jobs.Action{}) {
			if standing == (jobs.Standing{}) {
				return nil
			}
			var err error
			if action, _, err = jobs.ActionOf(*c); err != nil {
				return err
			}
		}
		return jobs.SetAction(c, action, standing)
	}))
}

func scheduleOutput(c models.Schedule, err error) (*rest.Output[Schedule], error) {
	if err != nil {
		return nil, err
	}
	doc, err := scheduleDoc(c)
	return rest.OK(doc), err
}

// scheduleDoc leaves the action out where it was not read.
func scheduleDoc(c models.Schedule) (Schedule, error) {
	doc := Schedule{
		ID: c.ID, Name: c.Name, State: c.State, Reason: c.Reason, Times: Times{Cron: c.Cron},
		Policies: Policies{Overlap: c.Overlap, Missed: c.Missed}, Kind: c.Kind, SandboxID: c.SandboxID,
		NextDue: c.NextDue, LastDue: c.LastDue, ConsecutiveFailures: c.ConsecutiveFailures,
		CreatedBy: c.CreatedBy, CreatedAt: c.CreatedAt, UpdatedAt: c.UpdatedAt,
	}
	if c.Cron != nil {
		doc.TimeZone = &c.TimeZone
	}
	if c.IntervalMS != nil {
		doc.IntervalSeconds = new(float64(*c.IntervalMS) / 1000)
	}
	if c.Missed == models.MissedRunAll {
		doc.MaxCatchUp = c.MaxCatchUp
	}
	if len(c.Action) == 0 {
		return doc, nil
	}
	var err error
	doc.Action, doc.Standing, err = jobs.ActionOf(c)
	return doc, err
}

func (s *schedules) getSchedule(ctx context.Context, in *scheduleInput) (*rest.Output[Schedule], error) {
	return scheduleOutput(s.Store.Schedule(ctx, middleware.RequestOf(ctx).Tenant, in.ID))
}

func (s *schedules) listSchedules(ctx context.Context, in *listSchedulesInput) (*rest.Output[SchedulePage], error) {
	list, err := s.Store.Schedules(ctx, middleware.RequestOf(ctx).Tenant, models.ScheduleFilter{
		State: in.State, Sandbox: in.SandboxID, Name: in.Name, CreatedBy: in.CreatedBy, Before: in.Cursor,
		Limit: in.Limit + 1,
	})
	if err != nil {
		return nil, err
	}
	page := SchedulePage{Schedules: []Schedule{}}
	list, page.NextCursor = rest.CutPage(list, in.Limit, func(c models.Schedule) string { return c.ID })
	for _, c := range list {
		doc, err := scheduleDoc(c)
		if err != nil {
			return nil, err
		}
		page.Schedules = append(page.Schedules, doc)
	}
	return rest.OK(page), nil
}

func (s *schedules) deleteSchedule(ctx context.Context, in *scheduleInput) (*rest.Output[Schedule], error) {
	r := middleware.RequestOf(ctx)
	return scheduleOutput(s.Store.DeleteSchedule(ctx, r.Tenant, in.ID, r.Actor()))
}

func (s *schedules) pauseSchedule(ctx context.Context, in *scheduleInput) (*rest.Output[Schedule], error) {
	r := middleware.RequestOf(ctx)
	return scheduleOutput(s.Jobs.PauseSchedule(ctx, r.Tenant, in.ID, r.Actor()))
}

func (s *schedules) resumeSchedule(ctx context.Context, in *scheduleInput) (*rest.Output[Schedule], error) {
	r := middleware.RequestOf(ctx)
	return scheduleOutput(s.Jobs.ResumeSchedule(ctx, r.Tenant, in.ID, r.Actor()))
}

func (s *schedules) runSchedule(ctx context.Context, in *runScheduleInput) (*acceptedOutput, error) {
	return s.submit(ctx, in.SubmitParams, Submit{}, func(o jobs.Options) (models.Submitted, error) {
		return s.Jobs.RunSchedule(ctx, in.ID, o)
	})
}

func (s *schedules) listScheduleRuns(ctx context.Context, in *listRunsInput) (*rest.Output[ScheduleRunPage], error) {
	tenant := middleware.RequestOf(ctx).Tenant
	if _, err := s.Store.Schedule(ctx, tenant, in.ID); err != nil {
		return nil, err
	}
	list, err := s.Store.ScheduleRuns(ctx, tenant, in.ID, in.Cursor, in.Limit+1)
	if err != nil {
		return nil, err
	}
	page, next := rest.CutPage(list, in.Limit, func(r models.ScheduleRun) string { return r.ID })
	return rest.OK(ScheduleRunPage{rest.Docs(page, runDoc), next}), nil
}

func runDoc(r models.ScheduleRun) ScheduleRun {
	return ScheduleRun{
		ID: r.ID, DueAt: r.DueAt, Manual: r.Manual, State: r.State, Reason: r.Reason, Ticks: r.Ticks, JobID: r.JobID,
		SandboxID: r.SandboxID, ExitCode: r.ExitCode, EndedAt: r.EndedAt,
	}
}

func (s *schedules) scheduleEvents(ctx context.Context, in *eventsInput) (*rest.Output[EventPage], error) {
	return s.events(ctx, in, models.EventFilter{Schedule: in.ID}, func(tenantID string) error {
		_, err := s.Store.Schedule(ctx, tenantID, in.ID)
		return err
	})
}
