package models_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"time"

	"sandyard/models"
)

// noise is text that nothing compresses.
func noise(n int) string {
	var b strings.Builder
	for b.Len() < n {
		b.WriteString(strconv.FormatUint(rand.Uint64(), 36))
	}
	return b.String()[:n]
}

// TestALongUserIsCounted: the label user of a sandbox was a part of an index that takes less, and no usage was ever added again.
func TestALongUserIsCounted(t *testing.T) {
	t.Parallel()
	s, db := openBeside(t)
	box := newSandbox()
	box.Labels = map[string]string{"user": noise(16 << 10)}
	finish(t, s, create(t, s, box).Dispatch[0], models.SandboxRunning)
	finish(t, s, create(t, s, newSandbox()).Dispatch[0], models.SandboxRunning)
	exec(t, db, "UPDATE usage_spans SET ended_at = now() + interval '1 minute'")
	fold(t, s, 1000)
	users := map[string]bool{}
	for _, u := range usage(t, s, "user") {
		users[u.User] = true
	}
	if !users["test"] || !users[box.Labels["user"][:128]] {
		t.Errorf("usage is counted for %v", users)
	}
}

// TestAPoisonRowStopsNoUsage puts a fact and a span into the tables that cannot be added, amid others that can.
func TestAPoisonRowStopsNoUsage(t *testing.T) {
	t.Parallel()
	s, db := openBeside(t)
	exec(t, db, `INSERT INTO usage_facts (tenant_id, sandbox_id, kind, outcome, sent)
		SELECT 'default', 'sb', CASE WHEN i IN (3, 57) THEN repeat(md5(i::text) || md5('x' || i), 1000) ELSE 'exec' END, 'succeeded', 1
		FROM generate_series(1, 100) i`)
	exec(t, db, `ALTER TABLE usage_hours ADD CONSTRAINT short CHECK (length(kind) < 100)`) // compressed or not
	exec(t, db, `INSERT INTO usage_spans (tenant_id, sandbox_id, user_id, template, provider, paused, cpus, memory_mb, started_at, ended_at)
		SELECT 'default', 'sb' || i, 'u', '', '', false, CASE WHEN i = 5 THEN 1.7e308 ELSE 1 END, 1, now() - interval '1 hour', now()
		FROM generate_series(1, 10) i`)
	for name, fold := range map[string]func(context.Context, int) (bool, error){"facts": s.FoldFacts, "spans": s.FoldSpans} {
		var refused *models.RefusedUsage
		if _, err := fold(t.Context(), 5000); !errors.As(err, &refused) {
			t.Errorf("%s: nobody is told of what was put aside: %v", name, err)
		}
		if more, err := fold(t.Context(), 5000); err != nil || more {
			t.Errorf("%s: what was put aside comes again: %v", name, err)
		}
	}
	st, err := s.Stats(t.Context())
	if err != nil || st.RefusedUsage != 3 {
		t.Errorf("%d rows were put aside, want 3: %v", st.RefusedUsage, err)
	}
	if all := total(t, s); all.Sent != 98 || all.RunningSeconds < 9*3600-1 || all.RunningSeconds > 9*3600+1 {
		t.Errorf("%d of 98 facts and %v s of nine hours were added", all.Sent, all.RunningSeconds)
	}
}

// TestManyUsersAreOne: labels are free, and hours are kept for ever.
func TestManyUsersAreOne(t *testing.T) {
	t.Parallel()
	s, db := openBeside(t)
	for range 2 {
		exec(t, db, `INSERT INTO usage_facts (tenant_id, sandbox_id, actor, kind, outcome) SELECT 'default', '', 'user' || i, 'exec', 'succeeded'
			FROM generate_series(1, 1500) i`)
		fold(t, s, 700)
	}
	var users, jobs int
	err := db.QueryRowContext(t.Context(), "SELECT count(DISTINCT user_id), sum(jobs) FROM usage_hours").Scan(&users, &jobs)
	if err != nil || users > 1001 || users < 1000 || jobs != 3000 {
		t.Errorf("%d jobs of %d users, want 3000 of 1001: %v", jobs, users, err)
	}
}

// TestAPoisonScheduleStopsNoOther: the runs of one schedule cannot be written down.
func TestAPoisonScheduleStopsNoOther(t *testing.T) {
	t.Parallel()
	s, db := openBeside(t)
	exec(t, db, `INSERT INTO schedules (id, tenant_id, state, time_zone, interval_ms, anchor, overlap, missed, max_catch_up, kind, action, options,
			next_due, created_by, changed_by)
		SELECT 'sch' || i, 'default', 'active', 'UTC', 1000, now(), 'skip', 'skip', 1, 'run', '{}', '{}', now(), 'test', 'test' FROM generate_series(1, 9) i`)
	exec(t, db, "ALTER TABLE schedule_runs ADD CONSTRAINT poison CHECK (schedule_id <> 'sch4')")
	n, err := s.FireSchedules(t.Context(), 200, func(d models.DueSchedule) models.Tick {
		next := d.Now.Add(time.Hour)
		run := models.ScheduleRun{ID: models.NewID("run_"), TenantID: d.TenantID, ScheduleID: d.ID, DueAt: d.Now, State: models.RunPending}
		return models.Tick{Runs: []models.ScheduleRun{run}, Last: d.Now, Next: &next}
	})
	if err != nil || n != 9 {
		t.Fatalf("%d fired, %v", n, err)
	}
	runs, err := s.PendingRuns(t.Context(), 100)
	if err != nil || len(runs) != 8 {
		t.Errorf("%d runs of 8, %v", len(runs), err)
	}
	if c, err := s.Schedule(t.Context(), "default", "sch4"); err != nil || c.State != models.ScheduleDisabled || c.Reason == nil {
		t.Errorf("the schedule that failed is %+v, %v", c, err)
	}
}
