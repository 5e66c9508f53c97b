package scheduler

import (
	"context"
	"fmt"
	"time"

	"sandyard/jobs/loop"
	"sandyard/jobs/timetable"
	"sandyard/models"
)

const (
	// maxWaitingRuns bounds the runs of one schedule that wait.
	maxWaitingRuns = 100
	// missedAfter is how long after its due time a run counts as missed.
	missedAfter = time.Minute
	// largestTickBatch bounds the due times of one schedule that one tick looks at.
	largestTickBatch = 10_000
	// scheduleActor comes before the id of the schedule that submits a job.
	scheduleActor = "schedule:"
)

// dueSchedules bounds one transaction.
const dueSchedules = 200

// fireSchedules writes down the runs of all schedules that are due.
func (s *Scheduler) fireSchedules(ctx context.Context) error {
	_, err := loop.InParts(ctx, dueSchedules, func(ctx context.Context, limit int) (int, error) {
		return s.store.FireSchedules(ctx, limit, planTick)
	})
	return err
}

// planTick decides what becomes of all the times at which a schedule has been due by now.
func planTick(d models.DueSchedule) models.Tick {
	times, err := timetable.Of(d.Schedule)
	if err != nil {
		return models.Tick{Last: *d.NextDue, Disable: err.Error()}
	}
	keep := 1
	if d.Missed == models.MissedRunAll {
		keep = d.MaxCatchUp
	}
	due, next, n := dueTimes(times, *d.NextDue, d.Now, keep+1)
	p := planner{d: d, tick: &models.Tick{Next: &next}}
	newest := due[len(due)-1]
	switch {
	case next.IsZero():
		p.tick.Next, p.tick.Disable = nil, "it is never due again"
	case !next.After(d.Now): // an immense outage is looked at in pieces; what may yet run is the next one's
		p.tick.Last, p.tick.Next = due[len(due)-keep-1], new(due[len(due)-keep])
		p.skip(p.tick.Last, n-keep, missed)
		return *p.tick
	}
	p.tick.Last = newest
	runs := min(n, keep)
	if d.Missed == models.MissedSkip && d.Now.Sub(newest) > missedAfter {
		runs = 0
	}
	if n > runs {
		p.skip(due[len(due)-1-runs], n-runs, missed)
	}
	p.run(due[len(due)-runs:])
	return *p.tick
}

// missed is the reason why due times are skipped that passed while nobody could fire them.
const missed = "missed: no scheduler was running"

// dueTimes returns the newest due times from first until now, at most keep of all the n that there are, and the one
// after them. It looks at so many times and no more; then the next one lies in the past.
func dueTimes(times timetable.Timetable, first, now time.Time, keep int) (due []time.Time, next time.Time, n int) {
	for next = first; !next.IsZero() && !next.After(now) && n < largestTickBatch; n++ {
		if due = append(due, next); len(due) > keep {
			due = due[1:]
		}
		next = times.Next(next)
	}
	return due, next, n
}

// planner adds runs to a schedule's tick.
type planner struct {
	d    models.DueSchedule
	tick *models.Tick
}

func (p planner) add(due time.Time, state string, ticks int, reason string) {
	after := time.Duration(len(p.tick.Runs)) * time.Microsecond // the ones before: histories go by ids
	r := models.ScheduleRun{
		ID: models.NewIDAt(
			"run_",
			p.d.Now.Add(after),
		), TenantID: p.d.TenantID, ScheduleID: p.d.ID, DueAt: due, State: state, Ticks: ticks,
		RetryAt: p.d.Now, CreatedAt: p.d.Now,
	}
	if state == models.RunSkipped {
		r.Reason, r.EndedAt = &reason, &p.d.Now
	}
	p.tick.Runs = append(p.tick.Runs, r)
}

func (p planner) skip(due time.Time, ticks int, reason string) {
	p.add(due, models.RunSkipped, ticks, reason)
}

// run lets due times run. Several are caught up with, one after the other, whatever the policy for overlaps is.
func (p planner) run(due []time.Time) {
	for i, t := range due {
		switch {
		case len(due) == 1 && p.d.Overlap == models.OverlapSkip && p.d.Busy:
			p.skip(t, 1, "an earlier run has not ended")
		case p.d.Waiting+i >= maxWaitingRuns:
			p.skip(t, 1, fmt.Sprintf("%d runs are already waiting", maxWaitingRuns))
		default:
			p.add(t, models.RunPending, 1, "")
		}
	}
}
