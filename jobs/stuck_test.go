package jobs_test

import (
	"context"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/redis/go-redis/v9"

	"sandyard/dev/jobsrig"
	"sandyard/dev/testenv"
	"sandyard/jobs"
	"sandyard/jobs/queue"
	"sandyard/jobs/scheduler"
	"sandyard/models"
)

// refusing makes the database refuse every change of rows that the table refused names.
func (r *rig) refusing() {
	r.T.Helper()
	r.SQL(`CREATE TABLE refused (id text PRIMARY KEY)`)
	r.SQL(`CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$
		BEGIN
			IF EXISTS (SELECT 1 FROM refused WHERE id = OLD.id) THEN RAISE EXCEPTION 'row % is refused', OLD.id; END IF;
			RETURN CASE WHEN TG_OP = 'DELETE' THEN OLD ELSE NEW END;
		END $$`)
	for _, table := range []string{"jobs", "sandboxes"} {
		r.SQL(fmt.Sprintf(`CREATE TRIGGER refuse BEFORE UPDATE OR DELETE ON %s FOR EACH ROW EXECUTE FUNCTION refuse()`, table))
	}
}

// TestWhatAlwaysFailsHoldsNobodyUp: a loop comes to a row that the database refuses to change before it comes to others.
func TestWhatAlwaysFailsHoldsNobodyUp(t *testing.T) {
	testenv.Long(t, "it needs many rows")
	t.Parallel()
	r := newRig(t)
	r.refusing()
	r.SQL(`INSERT INTO nodes (id, provider, engine, slots, lease_until) VALUES ('dead', 'fake', 'gone', 1, now() - interval '1 hour')`)
	r.SQL(`INSERT INTO tenants (id, name, webhook_secret) VALUES ('tenant1', '', 'whsec_x'), ('tenant2', '', 'whsec_x')`)
	type row struct{ box, job string }
	make2 := func(statement string) (stuck, behind row) {
		for i, x := range []*row{&stuck, &behind} {
			x.box, x.job = r.Create(jobs.CreateSandbox{})
			r.SQL(fmt.Sprintf(statement, x.box, x.job, 2-i)) // the stuck one is the older one
		}
		return stuck, behind
	}
	lease, recovered := make2(`UPDATE jobs SET state = 'running', attempt = 1, lease_until = now() - interval '%[3]d hours' WHERE id = '%[2]s'`)
	late, expired := make2(`UPDATE jobs SET queue_deadline = now() - interval '%[3]d hours' WHERE id = '%[2]s'`)
	before, _ := make2(`UPDATE jobs SET dispatched_at = NULL, tenant_id = 'tenant' || 3 - %[3]d WHERE id = '%[2]s'`)
	making, released := make2(`UPDATE sandboxes SET node_id = 'dead', cpus = %[3]d WHERE id = '%[1]s'`)
	held, lost := make2(`UPDATE sandboxes SET node_id = 'dead', state = 'running', cpus = %[3]d WHERE id = '%[1]s'`)
	stranded, ended := make2(`UPDATE sandboxes SET node_id = 'dead', state = 'deleted', ended_at = now() - interval '%[3]d hours' WHERE id = '%[1]s'`)
	old, forgotten := make2(`UPDATE jobs SET state = 'succeeded', finished_at = now() - interval '%[3]d hours' WHERE id = '%[2]s';
		UPDATE sandboxes SET state = 'deleted', ended_at = now() - interval '%[3]d hours' WHERE id = '%[1]s'`)
	r.SQL("DELETE FROM jobs WHERE id = $1", forgotten.job)
	r.SQL("DELETE FROM usage_facts")
	for _, id := range []string{lease.job, late.job, before.job, making.box, held.box, stranded.job, old.job} {
		r.SQL("INSERT INTO refused VALUES ($1)", id)
	}
	r.Scheduler(func(c *scheduler.Config) { c.LostAfter, c.Retention.History = time.Minute, 30*time.Minute })
	for what, ok := range map[string]func() bool{
		"a job is taken from a silent worker": func() bool { return r.Job(recovered.job).State == models.Queued },
		"a job expires in the queue":          func() bool { return r.Job(expired.job).State == models.Expired },
		"a tenant's jobs are sent":            func() bool { return r.countRows("jobs WHERE tenant_id = 'tenant2' AND dispatched_at IS NOT NULL") == 1 },
		"a create goes to another engine":     func() bool { return r.Sandbox(released.box).NodeID == nil },
		"a sandbox is lost with its engine":   func() bool { return r.Sandbox(lost.box).State == models.SandboxLost },
		"a stranded job ends":                 func() bool { return r.Job(ended.job).State.Terminal() },
		"an ended sandbox is forgotten": func() bool {
			_, err := r.Store.Sandbox(t.Context(), jobsrig.Tenant, forgotten.box)
			return err != nil
		},
	} {
		r.Eventually(what, ok)
	}
}

// TestHousekeepingWithoutRedis: nodes are left with their queues, and everything else is forgotten.
func TestHousekeepingWithoutRedis(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.SQL(`INSERT INTO nodes (id, provider, engine, slots, lease_until) VALUES ('dead', 'fake', 'gone', 1, now() - interval '1 hour')`)
	r.SQL(`INSERT INTO idempotency_keys SELECT 'default', 'key' || i, '', 'job', now() - interval '2 days' FROM generate_series(1, 2500) i`)
	r.SQL(`INSERT INTO idempotency_keys VALUES ('default', 'fresh', '', 'job')`)
	rdb := queue.NewRedis(&redis.Options{Network: "unix", Addr: filepath.Join(t.TempDir(), "nobody"), MaxRetries: -1})
	t.Cleanup(func() { r.Must(rdb.Close()) })
	queue := queue.NewQueue(rdb, r.Log)
	t.Cleanup(queue.Close)
	first := r.Scheduler(func(c *scheduler.Config) { c.Queue = queue })
	r.Eventually("old keys are forgotten", func() bool { return r.countRows("idempotency_keys") == 1 })
	if n := r.countRows("nodes"); n != 1 {
		t.Errorf("%d nodes are left while their queues are", n)
	}
	first.Stop()
	r.Scheduler()
	r.Eventually("the node is forgotten with its queues", func() bool { return r.countRows("nodes") == 0 })
}

// TestTasksThatAreThereHideNone: as many jobs as one look takes wait in Redis, where another's task has been lost.
func TestTasksThatAreThereHideNone(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	box, lost := r.Create(jobs.CreateSandbox{})
	r.SQL(`INSERT INTO tenants (id, name, webhook_secret) VALUES ('another', '', 'whsec_x')`)
	r.RDB.FlushDB(t.Context())
	r.Must(r.RDB.Set(t.Context(), "sandyard:epoch", "known", 0).Err())
	r.SQL("INSERT INTO settings VALUES ('redis_epoch', 'known')")
	r.SQL("UPDATE jobs SET dispatched_at = now() - interval '1 hour' WHERE id = $1", lost)
	r.SQL(`INSERT INTO jobs (id, tenant_id, sandbox_id, kind, state, seq, parallel, actor, args, timeout_ms, max_attempts, ready_at, dispatched_at, queue, generation)
		SELECT 'there' || i, 'another', $1, 'exec', 'queued', i, true, 'test', '{}', 1000, 1, now(), now() - interval '2 hours', 'fake', 7
		FROM generate_series(1, 1000) i`, box)
	_, err := r.RDB.Pipelined(t.Context(), func(p redis.Pipeliner) error {
		for i := range 1000 {
			p.HSet(t.Context(), fmt.Sprintf("asynq:{fake}:t:there%d:7", i+1), "state", "pending")
		}
		return nil
	})
	r.Must(err)
	r.Scheduler()
	r.Eventually("the lost task is sent again", func() bool {
		return r.RDB.HGet(t.Context(), "asynq:{fake}:t:"+lost+":2", "state").Val() == "pending"
	})
	if n := r.countRows("jobs WHERE generation <> 7 AND id <> '" + lost + "'"); n != 0 {
		t.Errorf("%d others were sent again", n)
	}
}

func (r *rig) countRows(from string) (n int) {
	r.T.Helper()
	conn, err := pgx.Connect(r.T.Context(), r.DSN)
	r.Must(err)
	defer conn.Close(context.WithoutCancel(r.T.Context()))
	r.Must(conn.QueryRow(r.T.Context(), "SELECT count(*) FROM "+from).Scan(&n))
	return n
}
