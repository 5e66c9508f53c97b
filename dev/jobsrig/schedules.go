package jobsrig

import (
	"slices"
	"time"

	"sandyard/jobs"
	"sandyard/models"
)

// Schedule writes a schedule of an action and returns its id.
func (r *Rig) Schedule(a jobs.Action, change ...func(*models.Schedule)) string {
	r.T.Helper()
	every := time.Hour.Milliseconds()
	s := models.Schedule{TenantID: Tenant, CreatedBy: "test", IntervalMS: &every}
	r.Must(jobs.SetAction(&s, a, jobs.Standing{}))
	for _, f := range change {
		f(&s)
	}
	s, err := r.Client.CreateSchedule(r.T.Context(), s)
	r.Must(err)
	return s.ID
}

// Due moves the next run of schedules into the past.
func (r *Rig) Due(ago time.Duration, ids ...string) {
	r.T.Helper()
	r.SQL(`UPDATE schedules SET next_due = now() - $1 * interval '1 ms', anchor = now() - $1 * interval '1 ms' - interval_ms * interval '1 ms'
		WHERE id = ANY ($2)`, ago.Milliseconds(), ids)
}

// ExecIn is the action of a schedule that runs a command in a sandbox.
func ExecIn(box, script string) jobs.Action {
	return jobs.Action{Job: &jobs.SandboxJob{SandboxID: box, Kind: "exec", Args: map[string]any{"command": script}}}
}

// Runs lists what has become of a schedule's runs.
func (r *Rig) Runs(schedule string) []models.ScheduleRun {
	r.T.Helper()
	list, err := r.Store.ScheduleRuns(r.T.Context(), Tenant, schedule, "", 1000)
	r.Must(err)
	slices.SortFunc(list, func(x, y models.ScheduleRun) int { return x.DueAt.Compare(y.DueAt) })
	return list
}

// StatesOf lists the states of runs.
func StatesOf(runs []models.ScheduleRun) []string {
	var states []string
	for _, x := range runs {
		states = append(states, x.State)
	}
	return states
}
