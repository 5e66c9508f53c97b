package web_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"sandyard/dev/faultproxy"
	"sandyard/dev/testdb"
	"sandyard/dev/testenv"
)

func (r *rig) sql(statement string, args ...any) {
	r.t.Helper()
	conn := must(pgx.Connect(context.Background(), r.dsn))(r.t)
	defer conn.Close(context.Background())
	must(conn.Exec(context.Background(), statement, args...))(r.t)
}

func TestIdempotencyKey(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	first := r.call("POST", "/v1/sandboxes", `{"labels":{"a":"b"}}`, "Idempotency-Key", "k1").want(t, 202)
	again := r.call("POST", "/v1/sandboxes?wait=0", `{"labels":{"a":"b"}}`, "Idempotency-Key", "k1").want(t, 200)
	if again.header.Get("Idempotent-Replayed") != "true" || first.header.Get("Idempotent-Replayed") != "" ||
		again.text("job.id") != first.text("job.id") || again.text("sandbox.id") != first.text("sandbox.id") {
		t.Errorf("not replayed: %s then %s", first.raw, again.raw)
	}
	r.call("POST", "/v1/sandboxes", `{"labels":{"a":"c"}}`, "Idempotency-Key", "k1").problem(t, 422, "idempotency_key_reused")
	exec := "/v1/sandboxes/" + first.text("sandbox.id") + "/exec"
	r.call("POST", exec, `{"labels":{"a":"b"}}`, "Idempotency-Key", "k1").problem(t, 422, "invalid_request")
	r.call("POST", exec, `{"command":"x"}`, "Idempotency-Key", "k1").problem(t, 422, "idempotency_key_reused")
	run := `{"command":"x","files":[{"path":"a"}]}`
	ran := r.call("POST", "/v1/run?wait=0", run, "Idempotency-Key", "k2").want(t, 202)
	if again := r.call("POST", "/v1/run?wait=0", run, "Idempotency-Key", "k2").want(t, 200); again.text("job.id") != ran.text("job.id") || again.text("job.kind") != "exec" {
		t.Errorf("a run is not replayed: %s", again.raw)
	}
	if rows := r.rows(); rows != "2 sandboxes, 5 jobs" {
		t.Errorf("written down: %s", rows)
	}
}

func TestOneKeyAtOnce(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	var calls sync.WaitGroup
	for range 16 {
		calls.Go(func() {
			a, err := r.try("POST", "/v1/sandboxes", `{}`, "Idempotency-Key", "same")
			if err != nil || a.status != 200 && a.status != 202 {
				t.Errorf("%v %s", err, a.raw)
			}
		})
	}
	calls.Wait()
	if rows := r.rows(); rows != "1 sandboxes, 1 jobs" {
		t.Errorf("written down: %s", rows)
	}
}

func TestCreateFindsTheLiveSandboxOfAKey(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	first := r.call("POST", "/v1/sandboxes", `{"key":"thread-1"}`).want(t, 202)
	again := r.call("POST", "/v1/sandboxes", `{"key":"thread-1"}`).want(t, 200)
	if again.get("existing") != true || again.text("sandbox.id") != first.text("sandbox.id") || again.text("job.id") != first.text("job.id") {
		t.Errorf("not found again: %s", again.raw)
	}
	if first.get("existing") != nil {
		t.Errorf("the first one is called existing: %s", first.raw)
	}
}

func TestWaitEndsWithTheJob(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	created := r.call("POST", "/v1/sandboxes", `{}`).want(t, 202)
	waited := make(chan answer, 1)
	go func() {
		a, err := r.try("GET", "/v1/jobs/"+created.text("job.id")+"?wait=60s", nil)
		if err != nil {
			t.Error(err)
		}
		waited <- a
	}()
	r.work()
	if a := (<-waited).want(t, 200); a.text("state") != "succeeded" {
		t.Errorf("unexpected end: %s", a.raw)
	}
	exec := r.call("POST", "/v1/sandboxes/"+created.text("sandbox.id")+"/exec?wait=60", `{"command":"fake:sleep 50ms; fake:exit 4"}`).want(t, 200)
	if exec.get("job.result.exit_code") != 4.0 || exec.text("sandbox.state") != "running" || exec.get("job.timings.run_ms").(float64) < 50 {
		t.Errorf("unexpected end: %s", exec.raw)
	}
}

func TestWaitIsOverBeforeTheJob(t *testing.T) {
	t.Parallel()
	r := newRig(t) // no worker
	began := time.Now()
	a := r.call("POST", "/v1/sandboxes?wait=200ms", `{}`).want(t, 202)
	if took := time.Since(began); took < 200*time.Millisecond || a.text("job.state") != "queued" {
		t.Errorf("after %s: %s", took, a.raw)
	}
	if a := r.call("GET", "/v1/jobs/"+a.text("job.id")+"?wait=0.1", nil).want(t, 200); a.text("state") != "queued" {
		t.Errorf("unexpected answer: %s", a.raw)
	}
}

func TestLostClientDoesNotCancel(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.work()
	id := r.sandbox(map[string]any{})
	r.client.Timeout = 100 * time.Millisecond
	if a, err := r.try("POST", "/v1/sandboxes/"+id+"/exec?wait=1s", `{"command":"fake:sleep 500ms"}`); err == nil {
		t.Fatalf("the client has not gone: %s", a.raw)
	}
	r.client.Timeout = 0
	testenv.Eventually(t, "the command ends", func() bool {
		list, _ := r.call("GET", "/v1/jobs?kind=exec&state=succeeded", nil).get("jobs").([]any)
		return len(list) == 1
	})
}

func TestShutdownEndsWaits(t *testing.T) {
	testenv.Long(t, "its verdict hangs on the clock")
	t.Parallel()
	r := newRig(t)
	a := r.call("POST", "/v1/sandboxes", `{}`)
	began := time.Now()
	waited := make(chan answer, 1)
	go func() {
		a, err := r.try("GET", "/v1/jobs/"+a.text("job.id")+"?wait=100s", nil)
		if err != nil {
			t.Error(err)
		}
		waited <- a
	}()
	r.eventuallyInFlight()
	r.shutdown()
	if a := (<-waited).want(t, 200); a.text("state") != "queued" {
		t.Errorf("unexpected answer: %s", a.raw)
	}
	if took := time.Since(began); took > 15*time.Second {
		t.Errorf("it took %s", took)
	}
}

// eventuallyInFlight waits until a client waits for a job, which shows in the database: the wait begins with a look at
// the job.
func (r *rig) eventuallyInFlight() {
	r.t.Helper()
	conn := must(pgx.Connect(context.Background(), r.dsn))(r.t)
	defer conn.Close(context.Background())
	testenv.Eventually(r.t, "a client waits", func() bool {
		var n int
		check(r.t, conn.QueryRow(context.Background(), `SELECT count(*) FROM pg_stat_activity
			WHERE datname = current_database() AND query LIKE 'SELECT id, tenant_id, sandbox_id, kind%'`).Scan(&n))
		return n > 0
	})
}

func TestLimits(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.sql("UPDATE tenants SET max_sandboxes = 1, max_queued = 2")
	id := r.sandbox(map[string]any{})
	a := r.call("POST", "/v1/sandboxes", `{}`).problem(t, 429, "limit_reached")
	if a.text("limit") != "max_sandboxes" || a.get("used") != 1.0 || a.get("max") != 1.0 || a.header.Get("Retry-After") == "" ||
		fmt.Sprint(a.get("retry_after")) != a.header.Get("Retry-After") {
		t.Errorf("the limit is not told: %v %s", a.header, a.raw)
	}
	ended := r.call("POST", "/v1/sandboxes/"+id+"/exec", `{"command":"x"}`).want(t, 202).text("job.id")
	r.call("POST", "/v1/jobs/"+ended+"/cancel", nil).want(t, 200)
	testenv.Eventually(t, "the queue is full", func() bool { // a refusal may still count the job that was cancelled
		r.call("POST", "/v1/sandboxes/"+id+"/exec", `{"command":"x"}`)
		return r.number(t, "SELECT count(*) FROM jobs WHERE state = 'queued'") == 2
	})
	r.call("POST", "/v1/jobs/"+ended+"/retry", nil).problem(t, 429, "limit_reached")
	full := r.call("POST", "/v1/sandboxes/"+id+"/exec", `{"command":"x"}`).problem(t, 429, "limit_reached")
	if full.header.Get("Retry-After") == "" || full.text("limit") != "max_queued" {
		t.Errorf("no Retry-After: %v", full.header)
	}
	r.call("DELETE", "/v1/sandboxes/"+id, nil).want(t, 202)
}

func TestEndedSandboxIsGone(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.work()
	id := r.call("POST", "/v1/sandboxes?wait=20s", `{}`).want(t, 200).text("sandbox.id")
	r.call("DELETE", "/v1/sandboxes/"+id+"?wait=20s&force=true", nil).want(t, 200)
	a := r.call("POST", "/v1/sandboxes/"+id+"/exec", `{"command":"x"}`).problem(t, 410, "sandbox_ended")
	if a.text("state") != "deleted" || a.text("end_reason") != "deleted" || a.text("ended_at") == "" {
		t.Errorf("the end is not told: %s", a.raw)
	}
	box := r.call("GET", "/v1/sandboxes/"+id, nil).want(t, 200)
	if box.text("end_reason") != "deleted" || box.text("end_actor") == "" {
		t.Errorf("unexpected sandbox: %s", box.raw)
	}
	r.call("DELETE", "/v1/sandboxes/"+id, nil).want(t, 200)
}

func TestDatabaseDown(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	id := r.sandbox(map[string]any{})
	r.lockOut()
	for _, c := range [][3]string{
		{"GET", "/v1/sandboxes/" + id}, {"GET", "/v1/jobs"}, {"POST", "/v1/jobs/job_00000000000000000000000000/cancel"}, {"GET", "/v1/webhooks/secret"},
	} {
		a := r.call(c[0], c[1], nil).problem(t, 503, "database_unavailable")
		if a.header.Get("Retry-After") == "" {
			t.Errorf("%v: no Retry-After", c)
		}
	}
	a := r.call("GET", "/readyz", nil).want(t, 503)
	if a.text("postgresql") != "down" || a.text("redis") != "ok" {
		t.Errorf("unexpected readiness: %s", a.raw)
	}
	r.call("POST", "/v1/sandboxes", `{}`).problem(t, 503, "database_unavailable")
	r.call("GET", "/healthz", nil).want(t, 200)
}

// TestDatabaseBreaksOffASubmission: what was accepted is told so, and what nobody can know, too.
func TestDatabaseBreaksOffASubmission(t *testing.T) {
	testenv.Long(t, "it takes many seconds")
	t.Parallel()
	proxy, dsn := faultproxy.Postgres(t, testdb.New(t))
	r := newRigOn(t, dsn)
	var left atomic.Int64
	var after faultproxy.Fault // of the calls behind the one that broke
	proxy.On(func(c faultproxy.Call) faultproxy.Fault {
		switch {
		case left.Load() == 0:
			return faultproxy.None
		case !strings.HasSuffix(strings.ToLower(c.Text), "commit"):
			return faultproxy.None
		case left.Add(-1) == 0 && after != faultproxy.None:
			proxy.On(func(faultproxy.Call) faultproxy.Fault { return after })
		}
		return faultproxy.CutAfter
	})
	for i := range 3 {
		left.Store(1)
		r.call("POST", "/v1/sandboxes", `{}`).want(t, 202)
		if rows := r.rows(); rows != fmt.Sprintf("%d sandboxes, %d jobs", i+1, i+1) {
			t.Errorf("written down: %s", rows)
		}
	}
	after = faultproxy.CutBefore
	left.Store(1)
	a := r.call("POST", "/v1/sandboxes", `{}`, "Idempotency-Key", "k").problem(t, 503, "outcome_unknown")
	if a.header.Get("Retry-After") == "" || !strings.Contains(a.text("detail"), "Idempotency-Key") {
		t.Errorf("the answer does not help: %s", a.raw)
	}
	proxy.On(nil)
	again := r.call("POST", "/v1/sandboxes", `{}`, "Idempotency-Key", "k").want(t, 200)
	if again.header.Get("Idempotent-Replayed") != "true" {
		t.Errorf("the key was not taken: %s", again.raw)
	}
	if rows := r.rows(); rows != "4 sandboxes, 4 jobs" {
		t.Errorf("written down: %s", rows)
	}
}

// lockOut makes the rig's database refuse everybody.
func (r *rig) lockOut() {
	r.t.Helper()
	ctx := context.Background()
	config := must(pgx.ParseConfig(r.dsn))(r.t)
	name := config.Database
	config.Database = "postgres"
	conn := must(pgx.ConnectConfig(ctx, config))(r.t)
	defer conn.Close(ctx)
	must(conn.Exec(ctx, "ALTER DATABASE "+name+" WITH ALLOW_CONNECTIONS false"))(r.t)
	must(conn.Exec(ctx, "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE datname = $1", name))(r.t)
}

func TestRedisDown(t *testing.T) {
	testenv.Long(t, "its verdict hangs on the clock")
	t.Parallel()
	r := newRig(t)
	r.rdb.ShutdownNoSave(t.Context())
	testenv.Eventually(t, "readiness tells", func() bool {
		a := r.call("GET", "/readyz", nil)
		return a.status == 503 && a.text("redis") == "down" && a.text("postgresql") == "ok"
	})
	began := time.Now()
	r.call("POST", "/v1/sandboxes", `{}`).want(t, 202)
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("a submission took %s", took)
	}
	if rows := r.rows(); rows != "1 sandboxes, 1 jobs" {
		t.Errorf("written down: %s", rows)
	}
}
