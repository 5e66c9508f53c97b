package models_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"sandyard/dev/testdb"
	"sandyard/models"
)

// TestWhatKeepsFailingRestsLonger: deletes and pauses that fail for good are tried ever more rarely, once an hour in the end.
func TestWhatKeepsFailingRestsLonger(t *testing.T) {
	t.Parallel()
	dsn := testdb.New(t)
	s, ctx := openAt(t, dsn, 100), t.Context()
	db := database(t, dsn)
	run := func(statement string, args ...any) {
		t.Helper()
		_, err := db.ExecContext(ctx, statement, args...)
		must(t, err)
	}
	box, _ := made(t, s)
	isDue := func(rule *models.DueRule) bool {
		t.Helper()
		all, err := s.Due(ctx, rule, 10)
		must(t, err)
		return slices.ContainsFunc(all, func(b models.Sandbox) bool { return b.ID == box })
	}
	for n, c := range []struct {
		first, last int // seconds ago
		state       string
		due         bool
	}{
		{20, 20, "failed", true},
		{20, 9, "failed", false},
		{1000, 200, "failed", false},
		{1000, 300, "failed", true},
		{100_000, 3500, "failed", false},
		{100_000, 3700, "failed", true},
		{100_000, 20, "cancelled", true},
		{20, 9, "cancelled", false},
	} {
		run("DELETE FROM jobs WHERE sandbox_id = $1", box)
		run("UPDATE sandboxes SET state = 'deleting', desired = 'deleted' WHERE id = $1", box)
		for i, ago := range []int{c.first, c.last} {
			run(`INSERT INTO jobs (id, tenant_id, sandbox_id, kind, state, seq, actor, args, timeout_ms, max_attempts, finished_at)
				VALUES ($1, 'default', $2, 'delete', $3, $4, 'test', '{}', 1000, 1, now() - $5 * interval '1 s')`,
				fmt.Sprint("job", n, i), box, c.state, i+1, ago)
		}
		if got := isDue(models.StuckDelete()); got != c.due {
			t.Errorf("deletes %s %d and %d s ago: due %v", c.state, c.first, c.last, got)
		}
		if c.state == "failed" {
			run(`UPDATE sandboxes SET state = 'running', desired = 'running', on_timeout = 'pause', expires_at = now() - $2 * interval '1 s',
				pause_failed_at = now() - $3 * interval '1 s' WHERE id = $1`, box, c.first, c.last)
			if got := isDue(models.DueTimeout()); got != c.due {
				t.Errorf("expired %d s ago, a pause failed %d s ago: due %v", c.first, c.last, got)
			}
		}
	}
}

// TestAShortTimeoutLeavesTimeForTheStart: a sandbox whose create waits for longer than its timeout is not deleted for
// that. The timeout counts from the start.
func TestAShortTimeoutLeavesTimeForTheStart(t *testing.T) {
	t.Parallel()
	s := open(t, 100)
	submit := func(box *models.Sandbox, isNew, extendOnly bool, kind string, timeout time.Duration) models.Submitted {
		t.Helper()
		sub := models.Submission{
			TenantID: "default", SandboxID: box.ID, Timeout: timeout, ExtendOnly: extendOnly,
			Jobs: []models.Job{newJob(kind, box.ID)},
		}
		if isNew {
			sub.New = box
		}
		out, err := s.Submit(t.Context(), sub)
		must(t, err)
		return out
	}
	holds := func(b models.Sandbox, timeout, atLeast time.Duration) {
		t.Helper()
		if left := b.ExpiresAt.Sub(b.CreatedAt); b.TimeoutMS != timeout.Milliseconds() || left < atLeast {
			t.Errorf("a timeout of %d ms, %v from the submission, instead of %v and %v", b.TimeoutMS, left, timeout, atLeast)
		}
	}
	box := newSandbox()
	box.TimeoutMS = time.Second.Milliseconds()
	out := submit(box, true, false, models.KindCreate, time.Second)
	holds(out.Sandbox, time.Second, 10*time.Minute)
	holds(submit(box, false, false, models.KindTimeout, 2*time.Second).Sandbox, 2*time.Second, 10*time.Minute)
	holds(submit(box, false, true, models.KindTimeout, time.Second).Sandbox, 2*time.Second, 10*time.Minute)
	holds(submit(box, false, true, models.KindTimeout, time.Hour).Sandbox, time.Hour, time.Hour)
	holds(submit(box, false, false, models.KindTimeout, time.Second).Sandbox, time.Second, 10*time.Minute)

	finish(t, s, out.Dispatch[0], models.SandboxRunning)
	started, err := s.Sandbox(t.Context(), "default", box.ID)
	must(t, err)
	if left := started.ExpiresAt.Sub(*started.StartedAt); left != time.Second {
		t.Errorf("%v from its start, instead of its second", left)
	}
}
