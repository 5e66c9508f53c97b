//go:build chaos

package chaos

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

// checkTicks is what schedules promise.
const checkTicks = "due times of schedules fire once"

// ticksFile is where the runs of schedules leave a line each.
const ticksFile = "ticks"

// missing begins the reason of due times that the policy for missed ones has passed over.
const missing = "missed: "

// clockwork is a user of schedules: sandboxes that last, in each of which one runs a command again and again.
func (c *client) clockwork(ctx, load context.Context) error {
	for n, s := range []object{
		{"interval_seconds": 2, "overlap": "queue", "missed": "run_all", "max_catch_up": 100},
		{"interval_seconds": 3, "overlap": "skip", "missed": "skip"},
		{"interval_seconds": 4, "overlap": "cancel_running", "missed": "run_once"},
		{"interval_seconds": 2, "overlap": "queue", "missed": "run_all", "max_catch_up": 2},
	} {
		if load.Err() != nil {
			return nil
		}
		b, err := c.box(ctx, object{"memory_mb": 64, "disk_mb": 16}, ticksFile)
		if err != nil {
			return err
		}
		if b == nil {
			continue
		}
		s["name"] = fmt.Sprintf("every-%d", n)
		s["job"] = object{"sandbox_id": b.id, "kind": "exec", "args": object{
			"command": fmt.Sprintf("echo line >> %s; sleep %d", ticksFile, c.rng.IntN(4)*(n%3)), "timeout_seconds": 60,
		}}
		status, text, _, err := c.insist(ctx, http.MethodPost, "/v1/schedules", "", s)
		switch status {
		case http.StatusCreated, http.StatusConflict: // one that is repeated meets its own name
		case http.StatusNotFound, http.StatusGone: // as the sandbox is by now
		default:
			return fmt.Errorf("make a schedule: status %d: %s %w", status, text, err)
		}
		_ = pass(load, 15*time.Second) // the load may end
	}
	<-load.Done()
	return nil
}

// scheduleRow is a schedule as PostgreSQL has it.
type scheduleRow struct {
	ID, SandboxID, State, Reason, Overlap, Missed string
	MaxCatchUp                                    int
	IntervalMS                                    int64
	Anchor, LastDue                               time.Time
}

func (s scheduleRow) String() string {
	return fmt.Sprintf("schedule %s of %s (every %d ms, overlap %s, missed %s, %s %s)", s.ID, s.SandboxID, s.IntervalMS, s.Overlap, s.Missed, s.State, s.Reason)
}

// runRow is a due time and what became of it.
type runRow struct {
	ID, ScheduleID, State, Reason, JobID string
	Ticks                                int
	Manual                               bool
	DueAt, CreatedAt                     time.Time
}

func readSchedules(ctx context.Context, conn *pgx.Conn, h *history) (err error) {
	h.schedules, err = rows[scheduleRow](ctx, conn, `SELECT id, coalesce(sandbox_id, '') AS sandbox_id, state, coalesce(reason, '') AS reason,
		overlap, missed, max_catch_up, coalesce(interval_ms, 0) AS interval_ms, anchor, coalesce(last_due, anchor) AS last_due FROM schedules`)
	if err != nil {
		return err
	}
	runs, err := rows[runRow](ctx, conn, `SELECT id, schedule_id, state, coalesce(reason, '') AS reason, coalesce(job_id, '') AS job_id,
		ticks, manual, due_at, created_at FROM schedule_runs ORDER BY due_at`)
	h.runs = map[string][]runRow{}
	for _, one := range runs {
		h.runs[one.ScheduleID] = append(h.runs[one.ScheduleID], one)
	}
	return err
}

// silence waits until schedulers have seen to all that was due, and pauses the schedules, so that there is an end. Their
// times count from another moment then.
func (r *run) silence(ctx context.Context, t *trial) {
	c := t.clients[0]
	h, err := readHistory(ctx, r.sys.postgres.DSN())
	if err == nil {
		err = eventually(ctx, settling, "due times were seen to", func() (bool, string) { return r.nothingDue(ctx) })
	}
	if err != nil {
		t.find(checkTicks, "%v", err)
		return
	}
	t.anchors = map[string]time.Time{}
	for _, s := range h.schedules {
		t.anchors[s.ID] = s.Anchor
		if s.State != "active" {
			continue
		}
		// One may have been disabled meanwhile.
		status, text, _, err := c.insist(ctx, http.MethodPost, "/v1/schedules/"+s.ID+"/pause", "", nil)
		if err != nil || status != http.StatusOK && status != http.StatusConflict {
			t.find(checkTicks, "%v cannot be paused: status %d: %s %v", s, status, text, err)
		}
	}
}

func (r *run) nothingDue(ctx context.Context) (bool, string) {
	conn, err := pgx.Connect(ctx, r.sys.postgres.DSN())
	if err != nil {
		return false, err.Error()
	}
	defer conn.Close(ctx)
	var late int
	err = conn.QueryRow(ctx, "SELECT count(*) FROM schedules WHERE state = 'active' AND next_due < now() - interval '1 second'").Scan(&late)
	return err == nil && late == 0, fmt.Sprintf("%d schedules are late, %v", late, err)
}

// openRuns are the runs that have not ended.
func (h *history) openRuns() []string {
	var all []string
	for _, runs := range h.runs {
		for _, one := range runs {
			if one.State == "pending" || one.State == "submitted" {
				all = append(all, one.ID+" is "+one.State)
			}
		}
	}
	return all
}

// ticks looks at what became of all due times.
func (t *trial) ticks() {
	of := map[string]string{}
	for _, s := range t.h.schedules {
		every, seen, sum := time.Duration(s.IntervalMS)*time.Millisecond, map[time.Time]bool{}, 0
		for _, one := range t.h.runs[s.ID] {
			if first := of[one.JobID]; one.JobID != "" && first != "" {
				t.find(checkTicks, "%v: job %s is that of two runs, %s and %s", s, one.JobID, first, one.ID)
			}
			of[one.JobID] = one.ID
			if j := t.h.jobs[one.JobID]; one.JobID != "" && one.State != j.State {
				t.find(checkTicks, "%v: the run %+v says something else than its job: %s", s, one, t.h.tell(one.JobID))
			}
			if one.Manual {
				continue
			}
			if seen[one.DueAt] || one.DueAt.Sub(t.anchors[s.ID])%every != 0 {
				t.find(checkTicks, "%v: %v is a due time twice, or is none", s, one.DueAt)
			}
			seen[one.DueAt] = true
			sum += one.Ticks
			t.skipped(s, one)
		}
		if due := int(s.LastDue.Sub(t.anchors[s.ID]) / every); due != sum {
			t.find(checkTicks, "%v was due %d times, and %d are accounted for", s, due, sum)
		}
	}
}

// skipped looks whether a due time at which nothing ran is one that the policies pass over.
func (t *trial) skipped(s scheduleRow, one runRow) {
	instead := 0 // due times that were to run, of those that were decided about at once
	for _, other := range t.h.runs[s.ID] {
		if other.CreatedAt.Equal(one.CreatedAt) && other.DueAt.After(one.DueAt) {
			instead++
		}
	}
	switch {
	case one.State == "failed" && one.JobID == "" && one.Reason == "":
		t.find(checkTicks, "%v: nobody knows why nothing ran at %v", s, one.DueAt)
	case one.State != "skipped":
	case !strings.HasPrefix(one.Reason, missing):
		if by := map[string]string{"an earlier run has not ended": "skip", "a later run replaced it": "cancel_running"}[one.Reason]; by != "" && by != s.Overlap || one.Reason == "" {
			t.find(checkTicks, "%v has skipped %v: %s", s, one.DueAt, one.Reason)
		}
	case instead == 0 && (s.Missed != "skip" || one.CreatedAt.Sub(one.DueAt) < time.Minute):
		t.find(checkTicks, "%v has missed %v, and nothing ran instead: %s", s, one.DueAt, one.Reason)
	case s.Missed == "run_all" && instead != s.MaxCatchUp:
		t.find(checkTicks, "%v has missed %v, and caught up with %d", s, one.DueAt, instead)
	}
}

// ticksIn compares what the runs have left in their sandbox with what became of them.
func (t *trial) ticksIn(b *box, look *op) {
	lines, least, most := strings.Count(look.end.Content, "line\n"), 0, 0
	for _, s := range t.h.schedules {
		if s.SandboxID != b.id {
			continue
		}
		for _, one := range t.h.runs[s.ID] {
			if j := t.h.jobs[one.JobID]; j.Attempt > 0 {
				most++
				if j.State == "succeeded" {
					least++
				}
			}
		}
		if lines < least || lines > most {
			t.find(checkEffect, "%v has left %d lines, with %d runs of which %d have succeeded", s, lines, most, least)
		}
	}
}
