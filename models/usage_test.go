package models_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"sandyard/dev/testdb"
	"sandyard/models"
)

// openBeside is open with a way past the store.
func openBeside(t *testing.T) (*models.Store, *sql.DB) {
	t.Helper()
	dsn := testdb.New(t)
	s := openAt(t, dsn, 100)
	db := database(t, dsn)
	return s, db
}

func exec(t *testing.T, db *sql.DB, statement string, args ...any) {
	t.Helper()
	if _, err := db.ExecContext(t.Context(), statement, args...); err != nil {
		t.Fatal(err)
	}
}

// usage asks for the groups of all hours up to now.
func usage(t *testing.T, s *models.Store, by ...string) []models.Usage {
	t.Helper()
	rows, err := s.Usage(t.Context(), models.UsageQuery{
		Tenant: "default", From: time.Now().Add(-100 * 24 * time.Hour), To: time.Now().Add(time.Hour), By: by, Limit: 1000,
	})
	if err != nil {
		t.Fatal(err)
	}
	return rows
}

func total(t *testing.T, s *models.Store) models.Usage {
	t.Helper()
	rows := usage(t, s)
	if len(rows) != 1 {
		t.Fatalf("the total is %+v", rows)
	}
	return rows[0]
}

func fold(t *testing.T, s *models.Store, limit int) {
	t.Helper()
	for _, f := range []func(context.Context, int) (bool, error){s.FoldFacts, s.FoldSpans} {
		for more := true; more; {
			var err error
			if more, err = f(t.Context(), limit); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func near(x, y float64) bool { return math.Abs(x-y) < 1e-5+1e-9*math.Abs(y) }

// runThrough gives a sandbox a life: the states that its jobs lead it through, one job each.
func runThrough(t *testing.T, s *models.Store, user string, states ...models.SandboxState) error {
	t.Helper()
	box := newSandbox()
	box.Spec = json.RawMessage(`{"resources": {"CPUs": 2, "MemoryMB": 1024}}`)
	if user != "" {
		box.Labels = map[string]string{"user": user}
	}
	sub := models.Submission{TenantID: "default", SandboxID: box.ID, New: box, Timeout: time.Minute, Jobs: []models.Job{newJob(models.KindCreate, box.ID)}}
	for range states[1:] {
		sub.Jobs = append(sub.Jobs, newJob("exec", box.ID))
	}
	out, err := s.Submit(t.Context(), sub)
	for i := 0; err == nil && i < len(states); i++ {
		var c models.Job
		if c, err = s.Claim(t.Context(), out.Jobs[i].ID, "node", lease); err != nil {
			break
		}
		o := outcome(c, models.Succeeded, states[i])
		o.Result = map[string]any{"exit_code": 0, "duration_ms": 1500}
		if i%3 == 2 {
			o.State, o.Error = models.Failed, &models.JobError{Code: "x"}
		}
		_, err = s.Finish(t.Context(), o)
	}
	return err
}

// TestUsageIsWhatTheEventsSay lets sandboxes live while their usage is folded again and again by several, and calculates
// it anew from their events and jobs.
func TestUsageIsWhatTheEventsSay(t *testing.T) {
	t.Parallel()
	s, db := openBeside(t)
	const on, off = models.SandboxRunning, models.SandboxPaused
	lives := [][]models.SandboxState{
		{on, "", off, on, "", models.SandboxDeleted},
		{on, off, models.SandboxLost},
		{on, "", ""},
		{on, off},
		{on, off, on, off, on},
		{models.SandboxFailed},
		{on, models.SandboxLost},
		{on, on, off, off, models.SandboxDeleted},
	}
	var all, folds errgroup.Group
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	for range 3 {
		folds.Go(func() error {
			for ctx.Err() == nil {
				for _, f := range []func(context.Context, int) (bool, error){s.FoldFacts, s.FoldSpans} {
					if _, err := f(context.WithoutCancel(ctx), 1+rand.N(9)); err != nil {
						return err
					}
				}
			}
			return nil
		})
	}
	all.SetLimit(4)
	for i := range 40 {
		all.Go(func() error { return runThrough(t, s, fmt.Sprintf("u%d", i%3), lives[i%len(lives)]...) })
	}
	if err := all.Wait(); err != nil {
		t.Fatal(err)
	}
	stop()
	if err := folds.Wait(); err != nil {
		t.Fatal(err)
	}
	// What still lives is ended by hand, so that nothing grows while it is looked at.
	exec(t, db, "UPDATE sandboxes SET state = 'deleting' WHERE state IN ('running', 'paused')")
	for _, when := range []string{"before the fold", "after it"} {
		compareUsage(t, s, db, when)
		fold(t, s, 7)
	}
	if _, err := s.PruneJobs(t.Context(), 0, 1000); err != nil {
		t.Fatal(err)
	}
	if n, err := s.Jobs(t.Context(), "default", models.JobFilter{Limit: 1}); err != nil || len(n) > 0 {
		t.Fatalf("jobs are left: %v, %v", n, err)
	}
	if n, err := s.PruneSandboxes(t.Context(), time.Hour, 1000); err != nil || n > 0 {
		t.Fatalf("%d sandboxes are forgotten too early, %v", n, err)
	}
	ended := "SELECT count(*) FROM sandboxes WHERE ended_at IS NOT NULL"
	var want, left int
	if err := db.QueryRowContext(t.Context(), ended).Scan(&want); err != nil {
		t.Fatal(err)
	}
	if n, err := s.PruneSandboxes(t.Context(), 0, 1000); err != nil || n != want || n == 0 {
		t.Fatalf("%d of %d sandboxes are forgotten, %v", n, want, err)
	}
	if err := db.QueryRowContext(t.Context(), ended).Scan(&left); err != nil || left > 0 {
		t.Fatalf("%d ended sandboxes are left, %v", left, err)
	}
	if u := total(t, s); u.RunningSeconds == 0 || string(u.Jobs) == "[]" {
		t.Errorf("after the retention nothing is known any more: %+v", u)
	}
}

// compareUsage calculates by other means: the time between two events, and counts of jobs.
func compareUsage(t *testing.T, s *models.Store, db *sql.DB, when string) {
	t.Helper()
	rows, err := db.QueryContext(t.Context(), `
		SELECT whose, coalesce(sum(seconds) FILTER (WHERE event = 'sandbox.running'), 0),
			coalesce(sum(seconds) FILTER (WHERE event = 'sandbox.paused'), 0),
			(SELECT count(*) FROM jobs j JOIN sandboxes b ON b.id = j.sandbox_id WHERE b.labels->>'user' = whose AND j.finished_at IS NOT NULL),
			(SELECT count(*) FROM jobs j JOIN sandboxes b ON b.id = j.sandbox_id WHERE b.labels->>'user' = whose AND j.state = 'failed')
		FROM (SELECT b.labels->>'user' AS whose, e.event,
				extract(epoch FROM lead(e.at) OVER (PARTITION BY e.sandbox_id ORDER BY e.id) - e.at) AS seconds
			FROM events e JOIN sandboxes b ON b.id = e.sandbox_id WHERE e.event LIKE 'sandbox.%' AND e.detail->'from' IS NOT NULL) x
		GROUP BY whose ORDER BY whose`)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	got := usage(t, s, "user")
	n := 0
	for ; rows.Next(); n++ {
		var user string
		var running, paused float64
		var ended, failed int64
		if err := rows.Scan(&user, &running, &paused, &ended, &failed); err != nil {
			t.Fatal(err)
		}
		u := got[n]
		var counted []models.JobUsage
		if err := json.Unmarshal(u.Jobs, &counted); err != nil {
			t.Fatal(err)
		}
		var jobs, bad int64
		for _, c := range counted {
			jobs += c.Count
			if c.Outcome == "failed" {
				bad += c.Count
			}
		}
		if u.User != user || !near(u.RunningSeconds, running) || !near(u.PausedSeconds, paused) || !near(u.CPUSeconds, 2*running) ||
			!near(u.MemoryGiBSeconds, running+paused) || jobs != ended || bad != failed {
			t.Errorf("%s, %s: usage is %+v with %d jobs of which %d failed; the rows say %g s running, %g s paused, %d jobs, %d failed",
				when, user, u, jobs, bad, running, paused, ended, failed)
		}
	}
	if err := rows.Err(); err != nil || n != len(got) || n != 3 {
		t.Errorf("%d users, want %d of three: %v", len(got), n, err)
	}
}

func TestASpanIsDividedAmongItsHours(t *testing.T) {
	t.Parallel()
	s, db := openBeside(t)
	if err := runThrough(t, s, "", models.SandboxRunning); err != nil {
		t.Fatal(err)
	}
	exec(t, db, "UPDATE usage_spans SET started_at = date_trunc('hour', now(), 'UTC') - interval '150 minutes'")
	before := time.Now()
	for range 3 {
		rows := usage(t, s, "hour")
		if len(rows) < 3 || rows[0].RunningSeconds != 1800 || rows[1].RunningSeconds != 3600 || rows[2].RunningSeconds != 3600 {
			t.Fatalf("by hours: %+v", rows)
		}
		want := 150*60 + before.Sub(before.Truncate(time.Hour)).Seconds()
		if u := total(t, s); math.Abs(u.RunningSeconds-want) > 3600 || u.CPUSeconds != 2*u.RunningSeconds {
			t.Errorf("in all: %+v, about %g s are right", u, want)
		}
		fold(t, s, 1)
	}
	var left float64
	if err := db.QueryRowContext(t.Context(), "SELECT extract(epoch FROM now() - started_at) FROM usage_spans").Scan(&left); err != nil || left > 5400 {
		t.Errorf("the fold left a span of %g s, %v", left, err)
	}
	exec(t, db, "UPDATE sandboxes SET state = 'deleting'")
	u := total(t, s)
	fold(t, s, 10)
	if after := total(t, s); !near(after.RunningSeconds, u.RunningSeconds) {
		t.Errorf("ended with %g s, folded to %g", u.RunningSeconds, after.RunningSeconds)
	}
}

func TestAFoldThatBreaksOffLosesNothing(t *testing.T) {
	t.Parallel()
	s, db := openBeside(t)
	if err := runThrough(t, s, "", models.SandboxRunning, "", models.SandboxDeleted); err != nil {
		t.Fatal(err)
	}
	want := total(t, s)
	exec(t, db, `CREATE FUNCTION fail() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'a fault of the test'; END $$`)
	exec(t, db, "CREATE TRIGGER fail AFTER INSERT OR UPDATE ON usage_hours FOR EACH STATEMENT EXECUTE FUNCTION fail()")
	for _, f := range []func(context.Context, int) (bool, error){s.FoldFacts, s.FoldSpans} {
		if _, err := f(t.Context(), 100); err == nil {
			t.Error("the fold did not fail")
		}
	}
	exec(t, db, "DROP TRIGGER fail ON usage_hours")
	for range 2 {
		got := total(t, s)
		if !near(got.RunningSeconds, want.RunningSeconds) || string(got.Jobs) != string(want.Jobs) {
			t.Errorf("usage was %+v and is %+v", want, got)
		}
		fold(t, s, 100)
	}
}

func TestUsageOfTheOutside(t *testing.T) {
	t.Parallel()
	s, db := openBeside(t)
	box := newSandbox()
	box.Labels = map[string]string{"user": "ann"}
	create(t, s, box)
	for i := range 3 {
		use := models.EgressUse{SandboxID: box.ID, Connections: 1, Sent: 100, Received: 1000}
		if err := s.AddEgressUse(t.Context(), []models.EgressUse{use}); err != nil {
			t.Fatal(err)
		}
		if i == 1 {
			fold(t, s, 1)
		}
	}
	exec(t, db, "DELETE FROM egress_usage")
	if rows := usage(t, s, "user"); len(rows) != 1 || rows[0].User != "ann" || rows[0].Sent != 300 || rows[0].Received != 3000 {
		t.Errorf("usage is %+v", rows)
	}
}

func TestPagesOfUsage(t *testing.T) {
	t.Parallel()
	s, _ := openBeside(t)
	for i := range 5 {
		if err := runThrough(t, s, fmt.Sprint("u", i), models.SandboxRunning); err != nil {
			t.Fatal(err)
		}
	}
	var after, users []string
	for {
		rows, err := s.Usage(t.Context(), models.UsageQuery{
			From: time.Now().Add(-2 * time.Hour), To: time.Now().Add(time.Hour), By: []string{"day", "tenant", "user", "template"}, After: after, Limit: 2,
		})
		if err != nil {
			t.Fatal(err)
		}
		if len(rows) == 0 {
			break
		}
		for _, u := range rows {
			users, after = append(users, u.User), u.Key()
			if u.Tenant != "default" || u.Provider != "" || len(u.Start) != len("2026-01-01T00:00:00Z") {
				t.Errorf("a row is %+v", u)
			}
		}
	}
	if fmt.Sprint(users) != "[u0 u1 u2 u3 u4]" {
		t.Errorf("the pages hold %v", users)
	}
}

// TestUsageOfAReplacement looks that the time of a sandbox which takes a lost one's place is counted for the same user.
func TestUsageOfAReplacement(t *testing.T) {
	t.Parallel()
	s, db := openBeside(t)
	lost := newSandbox()
	create(t, s, lost)
	exec(t, db, "UPDATE sandboxes SET state = 'lost', ended_at = now(), usage_user = 'ann'")
	again := newSandbox()
	again.Replaces = &lost.ID
	create(t, s, again)
	exec(t, db, "UPDATE sandboxes SET state = 'running' WHERE id = $1", again.ID)
	exec(t, db, "UPDATE sandboxes SET state = 'creating' WHERE id = $1", again.ID)
	exec(t, db, "UPDATE usage_spans SET ended_at = NULL") // a span that nothing has ended
	exec(t, db, "UPDATE sandboxes SET state = 'running' WHERE id = $1", again.ID)
	if rows := usage(t, s, "user"); len(rows) != 1 || rows[0].User != "ann" {
		t.Errorf("usage is %+v", rows)
	}
	var open int
	if err := db.QueryRowContext(t.Context(), "SELECT count(*) FROM usage_spans WHERE ended_at IS NULL").Scan(&open); err != nil || open != 1 {
		t.Errorf("%d spans last, %v", open, err)
	}
}
