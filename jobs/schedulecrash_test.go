package jobs_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"sandyard/dev/jobsrig"
	"sandyard/dev/testenv"
	"sandyard/jobs"
	"sandyard/jobs/kind"
	"sandyard/models"
)

// failing makes the first six writes to the table fail, so that their transactions are rolled back: what a crash in their
// middle leaves. It holds until heal is called.
func (r *rig) failing(when, table string) (heal func()) {
	r.T.Helper()
	r.SQL(`CREATE OR REPLACE FUNCTION fail_first() RETURNS trigger LANGUAGE plpgsql AS $$
		BEGIN
			IF nextval(TG_NAME::regclass) <= 6 THEN RAISE EXCEPTION 'a fault of the test'; END IF; -- no rollback takes a number back
			RETURN NULL;
		END $$`)
	name := strings.ToLower("faults_" + when + "_" + table)
	r.SQL("CREATE SEQUENCE " + name)
	r.SQL(fmt.Sprintf("CREATE TRIGGER %s AFTER %s ON %s FOR EACH STATEMENT EXECUTE FUNCTION fail_first()", name, when, table))
	return func() { r.SQL(fmt.Sprintf("DROP TRIGGER %s ON %s", name, table)) }
}

// mutiny lets every scheduler lead at once, until the test ends.
func (r *rig) mutiny() {
	conn, err := pgx.Connect(r.T.Context(), r.DSN)
	r.Must(err)
	ctx, stop := context.WithCancel(context.WithoutCancel(r.T.Context()))
	var done sync.WaitGroup
	done.Go(func() {
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		for ctx.Err() == nil {
			_, _ = conn.Exec(ctx, "UPDATE leases SET lease_until = now() - interval '1 ms'") // the next one tries again
			select {
			case <-tick.C:
			case <-ctx.Done():
			}
		}
		_ = conn.Close(context.WithoutCancel(ctx))
	})
	r.T.Cleanup(func() { stop(); done.Wait() })
}

// patiently waits for what takes many ticks of the loops, for two minutes at most; what follows says what is missing.
func (r *rig) patiently(ok func() bool) {
	r.T.Helper()
	deadline := time.NewTimer(2 * time.Minute)
	defer deadline.Stop()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-deadline.C:
			return
		}
	}
}

// TestEachTickFiresOnce lets two schedulers lead at once while transactions fail at every step from the due time to the
// job: no due time may have two jobs, none may have none.
func TestEachTickFiresOnce(t *testing.T) {
	testenv.Long(t, "it takes many seconds")
	t.Parallel()
	r := newRig(t)
	r.quota(1000)
	const schedules, ticks = 6, 3
	var ids []string
	for range schedules {
		ids = append(ids, r.Schedule(jobs.Action{Run: &jobs.OneShot{Exec: kind.Exec{Command: "fake:exit 0"}}}, func(s *models.Schedule) {
			s.Missed, s.MaxCatchUp = models.MissedRunAll, 100
		}))
	}
	r.Due((ticks-1)*time.Hour+time.Minute, ids...)
	for _, step := range [][2]string{
		{"INSERT", "schedule_runs"}, {"UPDATE", "schedules"}, {"UPDATE", "schedule_runs"}, {"INSERT", "jobs"}, {"INSERT", "sandboxes"},
	} {
		r.failing(step[0], step[1])
	}
	r.mutiny()
	r.Scheduler()
	r.Scheduler()
	r.Worker(8)
	r.patiently(func() bool {
		done := 0
		for _, id := range ids {
			for _, x := range r.Runs(id) {
				if x.EndedAt != nil {
					done++
				}
			}
		}
		return done == schedules*ticks
	})
	seen := map[string]bool{}
	for _, id := range ids {
		want := make([]string, ticks)
		for i := range want {
			want[i] = "succeeded"
		}
		for _, x := range r.wantRuns(id, want...) {
			if seen[*x.JobID] {
				t.Errorf("job %s is that of two runs", *x.JobID)
			}
			seen[*x.JobID] = true
		}
	}
	r.Eventually("every sandbox is gone", func() bool {
		n, err := r.Store.CountSandboxes(t.Context(), jobsrig.Tenant, models.SandboxFilter{State: models.SandboxDeleted})
		r.Must(err)
		return n == schedules*ticks
	})
	execs, err := r.Store.Jobs(t.Context(), jobsrig.Tenant, models.JobFilter{Kind: "exec", Limit: 1000})
	r.Must(err)
	if len(execs) != schedules*ticks {
		t.Errorf("%d times were due, and %d commands were submitted", schedules*ticks, len(execs))
	}
}

// TestASchedulerDiesBetweenTickAndJob has the due time written down by one that dies then, and submitted by the next.
func TestASchedulerDiesBetweenTickAndJob(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.Worker(2)
	id := r.Schedule(jobsrig.ExecIn(r.readied(), "fake:exit 0"))
	r.Due(time.Second, id)
	heal := r.failing("INSERT", "jobs")
	r.SQL(`CREATE OR REPLACE FUNCTION fail_first() RETURNS trigger LANGUAGE plpgsql AS $$
		BEGIN RAISE EXCEPTION 'always'; END $$`)
	first := r.Scheduler()
	r.Eventually("the tick is written down", func() bool { return len(r.Runs(id)) == 1 })
	first.Stop()
	if x := r.Runs(id)[0]; x.State != models.RunPending || x.JobID != nil {
		t.Errorf("without a job the run is %+v", x)
	}
	heal()
	r.Scheduler()
	r.wantRuns(id, "succeeded")
}
