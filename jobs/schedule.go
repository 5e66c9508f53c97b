package jobs

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"slices"
	"time"

	"sandyard/jobs/kind"
	"sandyard/jobs/timetable"
	"sandyard/models"
)

// Action is what a schedule submits at each of its times: exactly one of its fields.
type Action struct {
	Run    *OneShot       `json:"run,omitempty" doc:"One command in a new sandbox, which is deleted afterwards"`
	Create *CreateSandbox `json:"create,omitempty" doc:"A sandbox that stays; while one with its key is live, nothing is created"`
	Job    *SandboxJob    `json:"job,omitempty" doc:"A job on an existing sandbox"`
}

// SandboxJob is a job of any kind on a sandbox that stands.
type SandboxJob struct {
	SandboxID string         `json:"sandbox_id"`
	Kind      string         `json:"kind" doc:"Such as exec, write, read, pause, delete"`
	Args      map[string]any `json:"args,omitempty" doc:"The fields of this kind, the same as in its own operation"`
}

// Standing are the options that go with every submission of a schedule.
type Standing struct {
	Parallel             bool    `json:"parallel,omitempty" doc:"For job: do not wait for earlier jobs of the sandbox"`
	Priority             int     `json:"priority,omitempty" minimum:"-100" maximum:"100" doc:"Priority among your own jobs; higher runs first"`
	CallbackURL          string  `json:"callback_url,omitempty" doc:"URL to call at the end of each job, signed per Standard Webhooks"`
	QueueDeadlineSeconds float64 `json:"queue_deadline_seconds,omitempty" minimum:"0" maximum:"86400" doc:"A job expires if it has not started by then; 0 = never"`
}

func (s Standing) options() Options {
	return Options{
		Parallel: s.Parallel, Priority: s.Priority, CallbackURL: s.CallbackURL,
		QueueDeadline: time.Duration(s.QueueDeadlineSeconds * float64(time.Second)),
	}
}

// Bounds of a schedule.
const (
	maxAction       = 1 << 20 // bytes of its JSON
	maxScheduleName = 128
	defaultCatchUp  = 10
	largestCatchUp  = 100
	defaultTimeZone = "UTC"
	scheduleRun     = "run"
)

// SetAction makes a schedule submit a, with these options.
func SetAction(s *models.Schedule, a Action, o Standing) error {
	n := 0
	for _, set := range []bool{a.Run != nil, a.Create != nil, a.Job != nil} {
		if set {
			n++
		}
	}
	if n != 1 {
		return kind.Invalid("action", "give exactly one of run, create and job")
	}
	s.Kind, s.SandboxID = scheduleRun, nil
	switch {
	case a.Create != nil:
		s.Kind = models.KindCreate
	case a.Job != nil:
		s.Kind, s.SandboxID = a.Job.Kind, &a.Job.SandboxID
	}
	var err error
	if s.Action, err = json.Marshal(a); err != nil {
		return err
	}
	if len(s.Action) > maxAction {
		return kind.Invalid(
			"action",
			"is %d bytes of JSON; the limit is %d; put large files into a template's image",
			len(s.Action),
			maxAction,
		)
	}
	s.Options, err = json.Marshal(o)
	return err
}

// ActionOf reads what a schedule submits.
func ActionOf(s models.Schedule) (a Action, o Standing, err error) {
	d := json.NewDecoder(bytes.NewReader(s.Action))
	d.UseNumber() // arguments go on as they came
	if err := d.Decode(&a); err != nil {
		return a, o, err
	}
	return a, o, json.Unmarshal(s.Options, &o)
}

// CreateSchedule adds a schedule. Errors: *InvalidError, models.ErrNotFound and *models.EndedError for its sandbox,
// *models.LimitError, models.ErrScheduleExists.
func (c *Client) CreateSchedule(ctx context.Context, s models.Schedule) (models.Schedule, error) {
	s.State, s.ChangedBy = cmp.Or(s.State, models.ScheduleActive), s.CreatedBy
	if err := c.checkSchedule(ctx, &s); err != nil {
		return s, err
	}
	return c.store.CreateSchedule(ctx, s, firstDue)
}

// ChangeSchedule lets change make of a schedule what it will, on behalf of actor. Errors: those of CreateSchedule, and
// models.ErrNotFound.
func (c *Client) ChangeSchedule(
	ctx context.Context,
	tenantID, id, actor string,
	change func(*models.Schedule) error,
) (models.Schedule, error) {
	for try := 0; ; try++ {
		s, err := c.store.Schedule(ctx, tenantID, id)
		if err != nil {
			return s, err
		}
		old := s.Action
		if err := change(&s); err != nil {
			return s, err
		}
		if s.State == models.ScheduleActive || !bytes.Equal(old, s.Action) {
			err = c.checkSchedule(ctx, &s)
		} else {
			err = checkTimes(&s)
		}
		if err != nil {
			return s, err
		}
		s, err = c.store.SaveSchedule(ctx, s, actor, firstDue)
		if try == 5 || !errors.Is(err, models.ErrStale) {
			return s, err
		}
	}
}

// PauseSchedule keeps a schedule from firing until it is resumed. One that is disabled stays so.
func (c *Client) PauseSchedule(ctx context.Context, tenantID, id, actor string) (models.Schedule, error) {
	return c.ChangeSchedule(ctx, tenantID, id, actor, func(s *models.Schedule) error {
		if s.State == models.ScheduleActive {
			s.State = models.SchedulePaused
		}
		return nil
	})
}

// ResumeSchedule lets a paused or disabled schedule fire again, from now on: what was due meanwhile is not made good.
func (c *Client) ResumeSchedule(ctx context.Context, tenantID, id, actor string) (models.Schedule, error) {
	return c.ChangeSchedule(ctx, tenantID, id, actor, func(s *models.Schedule) error {
		s.State, s.Reason = models.ScheduleActive, nil
		return nil
	})
}

func firstDue(s models.Schedule) (*time.Time, error) {
	times, err := timetable.Of(s)
	if err != nil {
		return nil, err
	}
	return new(times.Next(s.Anchor)), nil
}

// checkSchedule says what is wrong with a schedule, also with what it would submit now.
func (c *Client) checkSchedule(ctx context.Context, s *models.Schedule) error {
	if err := checkTimes(s); err != nil {
		return err
	}
	a, o, err := ActionOf(*s)
	if err != nil {
		return err
	}
	if err := o.options().check(c.catalog.Callbacks); err != nil {
		return err
	}
	if a.Job != nil {
		return c.checkJob(ctx, s.TenantID, *a.Job)
	}
	var wish CreateSandbox
	args := []kind.Args{}
	if a.Create != nil {
		wish = *a.Create
	} else {
		once := a.Run.RunOnce()
		work, err := once.work()
		if wrong, ok := errors.AsType[*kind.InvalidError](err); ok {
			return kind.Invalid("run."+wrong.Field, "%s", wrong.Message)
		}
		wish, args = once.Sandbox, append(args, work)
		for i := range once.Files {
			args = append(args, &once.Files[i])
		}
	}
	if _, _, err := c.wish(ctx, wish, s.TenantID); err != nil {
		return err
	}
	return checkArgs(s.TenantID, args)
}

// checkJob asks for the sandbox, too: a schedule for one that is gone would only be disabled.
func (c *Client) checkJob(ctx context.Context, tenantID string, j SandboxJob) error {
	args, err := j.args()
	if err != nil {
		return err
	}
	box, err := c.store.Sandbox(ctx, tenantID, j.SandboxID)
	if err != nil {
		return err
	}
	if box.Ended() {
		return &models.EndedError{Sandbox: box.ID, State: box.State, EndedAt: box.EndedAt}
	}
	return checkArgs(tenantID, []kind.Args{args})
}

func (j SandboxJob) args() (kind.Args, error) {
	if j.Args == nil {
		return kind.Decode(j.Kind, nil)
	}
	raw, err := json.Marshal(j.Args)
	if err != nil {
		return nil, err
	}
	return kind.Decode(j.Kind, raw)
}

// checkArgs makes jobs of the arguments and forgets them.
func checkArgs(tenantID string, args []kind.Args) error {
	for _, a := range args {
		if _, err := newJob("", a, Options{TenantID: tenantID}); err != nil {
			return err
		}
	}
	return nil
}

// checkTimes completes the schedule with its defaults.
func checkTimes(s *models.Schedule) error {
	s.TimeZone = cmp.Or(s.TimeZone, defaultTimeZone)
	s.Overlap, s.Missed = cmp.Or(s.Overlap, models.OverlapSkip), cmp.Or(s.Missed, models.MissedSkip)
	s.MaxCatchUp = cmp.Or(s.MaxCatchUp, defaultCatchUp)
	if _, err := timetable.Of(*s); err != nil {
		return err
	}
	overlaps := []string{models.OverlapSkip, models.OverlapQueue, models.OverlapCancel}
	misses := []string{models.MissedSkip, models.MissedRunOnce, models.MissedRunAll}
	switch {
	case s.Name != nil && (*s.Name == "" || len(*s.Name) > maxScheduleName):
		return kind.Invalid("name", "must have 1 to %d bytes", maxScheduleName)
	case !slices.Contains(overlaps, s.Overlap):
		return kind.Invalid("overlap", "must be one of %v", overlaps)
	case !slices.Contains(misses, s.Missed):
		return kind.Invalid("missed", "must be one of %v", misses)
	case s.MaxCatchUp < 1 || s.MaxCatchUp > largestCatchUp:
		return kind.Invalid("max_catch_up", "must be between 1 and %d", largestCatchUp)
	case s.Missed == models.MissedRunAll && s.Overlap == models.OverlapCancel:
		return kind.Invalid(
			"missed",
			"run_all needs overlap skip or queue: with cancel_running each run would end the one before",
		)
	}
	return nil
}

// RunSchedule submits what a schedule submits, at once and whatever still runs of it. Errors: those of Submit.
func (c *Client) RunSchedule(ctx context.Context, id string, o Options) (models.Submitted, error) {
	s, err := c.store.Schedule(ctx, o.TenantID, id)
	if err != nil {
		return models.Submitted{}, err
	}
	return c.Perform(
		ctx,
		s,
		models.ScheduleRun{ID: models.NewIDAt("run_", c.store.Now(ctx)), ScheduleID: s.ID, Manual: true},
		o,
	)
}

// Perform submits the jobs of a run. The run takes them in the same transaction, so that it never has two, and none is
// without it.
func (c *Client) Perform(
	ctx context.Context,
	s models.Schedule,
	run models.ScheduleRun,
	by Options,
) (models.Submitted, error) {
	a, standing, err := ActionOf(s)
	if err != nil {
		return models.Submitted{}, err
	}
	o := standing.options()
	if s.UserID != nil {
		o.User = *s.UserID
	}
	o.TenantID, o.Actor, o.IdempotencyKey, o.Request, o.run = s.TenantID, by.Actor, by.IdempotencyKey, by.Request, &run
	switch {
	case a.Job != nil:
		args, err := a.Job.args()
		if err != nil {
			return models.Submitted{}, err
		}
		return c.Submit(ctx, a.Job.SandboxID, args, o)
	case a.Create != nil:
		return c.Create(ctx, *a.Create, o)
	}
	o.Parallel = false // the parts of a run stand in their order
	return c.Run(ctx, a.Run.RunOnce(), o)
}
