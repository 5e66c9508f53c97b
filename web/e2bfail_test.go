package web_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"sandyard/dev/faultproxy"
	"sandyard/dev/testdb"
	"sandyard/dev/testenv"
	"sandyard/models"
	"sandyard/providers"
	"sandyard/providers/fake"
	"sandyard/tokens"
	"sandyard/web"
)

// hasty makes E2B's routes wait for a job no longer than that.
func hasty(patience time.Duration) func(*web.Config) {
	return func(c *web.Config) {
		c.Address, c.E2BPatience = tokens.Address{Scheme: "http", Domain: "sandboxes.example"}, patience
	}
}

// TestE2BTimeouts: what a body leaves out is as the version of the route says.
func TestE2BTimeouts(t *testing.T) {
	t.Parallel()
	r, _ := newE2B(t)
	base := map[string]any{"templateID": "base"}
	old := r.call("POST", "/sandboxes", base).want(t, 201).text("sandboxID")
	r.endsIn(old, 15)
	id := r.call("POST", "/v2/sandboxes", base).want(t, 201).text("sandboxID")
	r.endsIn(id, 300)
	path := "/sandboxes/" + id
	r.call("POST", path+"/timeout", map[string]any{"timeout": 60}).want(t, 204)
	r.endsIn(id, 60)
	r.call("POST", "/v2"+path+"/connect", nil).want(t, 200)
	r.endsIn(id, 300)

	for _, body := range []any{nil, map[string]any{}, map[string]any{"timeout": -1}} {
		r.call("POST", path+"/timeout", body).refused(t, 400, "timeout")
		r.call("POST", path+"/connect", body).refused(t, 400, "timeout")
	}
	r.call("POST", "/v2"+path+"/connect", map[string]any{"timeout": -1}).refused(t, 400, "timeout")
	r.call("POST", path+"/refreshes", map[string]any{"duration": -1}).refused(t, 400, "duration")
	r.call("POST", path+"/refreshes", map[string]any{"duration": 3601}).refused(t, 400, "duration")
	r.endsIn(id, 300)

	r.call("POST", path+"/timeout", map[string]any{"timeout": 900}).want(t, 204)
	r.call("POST", path+"/pause", nil).want(t, 204)
	r.call("POST", path+"/refreshes", map[string]any{"duration": 1200}).refused(t, 404, "")
	r.call("POST", "/v2"+path+"/connect", map[string]any{"memory": false}).refused(t, 400, "without memory")
	r.call("POST", path+"/resume", map[string]any{"memory": false}).refused(t, 400, "without memory")
	r.call("POST", path+"/resume", map[string]any{"autoPause": true}).refused(t, 400, "autoPause")
	r.call("POST", "/v2"+path+"/connect", map[string]any{}).want(t, 201)
	r.endsIn(id, 300) // the clock of a paused sandbox starts with its resume
	r.call("POST", "/v2"+path+"/connect", map[string]any{"memory": false}).want(t, 200)
	r.call("POST", path+"/pause", map[string]any{"requireHealthyGuest": true}).refused(t, 400, "requireHealthyGuest")
	r.call("POST", path+"/pause", map[string]any{"memory": false}).refused(t, 400, "without memory")
	r.call("POST", path+"/pause", nil).want(t, 204)
	r.call("POST", path+"/resume", nil).want(t, 201)
	r.endsIn(id, 15)
	for _, what := range []string{"snapshots", "fork"} {
		r.call("POST", path+"/"+what, map[string]any{}).refused(t, 501, what)
	}
}

// TestE2BNobodyTakesTimeFromAnother: of many who ask at once how long a sandbox is to live, whoever asks for most gets it.
func TestE2BNobodyTakesTimeFromAnother(t *testing.T) {
	t.Parallel()
	r, _ := newE2B(t)
	made := r.call("POST", "/v2/sandboxes", map[string]any{"templateID": "base", "timeout": 30}).want(t, 201)
	id, path := made.text("sandboxID"), "/sandboxes/"+made.text("sandboxID")
	const n = 12
	all := func(ask func(i int) answer) {
		var asking sync.WaitGroup
		for i := range n {
			asking.Go(func() {
				if a := ask(i); a.status/100 != 2 {
					t.Errorf("answered %d %s", a.status, a.raw)
				}
			})
		}
		asking.Wait()
	}
	ask := func(path, field string, seconds int) answer {
		a, err := r.try("POST", path, map[string]any{field: seconds})
		if err != nil {
			t.Error(err)
		}
		return a
	}
	all(func(i int) answer { return ask(path+"/refreshes", "duration", 100*(1+i*5%n)) })
	r.endsIn(id, 1200)
	all(func(i int) answer { return ask("/v2"+path+"/connect", "timeout", 200*(1+i*5%n)) })
	r.endsIn(id, 2400)
	r.call("POST", path+"/pause", nil).want(t, 204)
	all(func(i int) answer { return ask("/v2"+path+"/connect", "timeout", 50*(1+i*5%n)) })
	r.endsIn(id, 600)

	later := func(seconds int) {
		r.call("POST", "/v1/sandboxes/"+id+"/timeout?wait=60s", map[string]any{"timeout_seconds": seconds, "only_later": true}).want(t, 200)
	}
	later(60)
	r.endsIn(id, 600)
	later(700)
	r.endsIn(id, 700)
}

// TestE2BResumesAFrozenJob: a pause waits for no job of the sandbox, and those that it freezes can only end when it goes on.
func TestE2BResumesAFrozenJob(t *testing.T) {
	t.Parallel()
	r, _ := newE2B(t)
	id := r.call("POST", "/v2/sandboxes", map[string]any{"templateID": "base"}).want(t, 201).text("sandboxID")
	job := r.call("POST", "/v1/sandboxes/"+id+"/exec", map[string]any{"command": "fake:sleep 10m", "timeout_seconds": 3600}).want(t, 202).text("job.id")
	testenv.Eventually(t, "the command runs", func() bool { return r.call("GET", "/v1/jobs/"+job, nil).text("state") != "queued" })
	r.call("POST", "/sandboxes/"+id+"/pause", nil).want(t, 204)
	r.call("POST", "/v2/sandboxes/"+id+"/connect", nil).want(t, 201)
	r.call("DELETE", "/sandboxes/"+id, nil).want(t, 204)
}

// TestE2BEvents: what is done here is told like everything else, with who did it.
func TestE2BEvents(t *testing.T) {
	t.Parallel()
	r, _ := newE2B(t)
	id := r.call("POST", "/v2/sandboxes", map[string]any{"templateID": "base"}).want(t, 201).text("sandboxID")
	r.call("POST", "/sandboxes/"+id+"/pause", nil).want(t, 204)
	r.call("POST", "/v2/sandboxes/"+id+"/connect", nil).want(t, 201)
	r.call("DELETE", "/sandboxes/"+id, nil).want(t, 204)
	states := []string{"sandbox.deleted", "sandbox.deleting", "sandbox.running", "sandbox.paused", "sandbox.running", "sandbox.creating"}
	got := slices.DeleteFunc(r.eventNames("/v1/sandboxes/"+id+"/events"), func(name string) bool { return !slices.Contains(states, name) })
	if !slices.Equal(got, states) {
		t.Errorf("told were %v, want %v", got, states)
	}
	a := r.call("GET", "/v1/sandboxes/"+id+"/events?limit=100", nil).want(t, 200)
	list, _ := a.get("events").([]any)
	asked := map[string]any{}
	for _, item := range list {
		if e, _ := item.(map[string]any); e["event"] == "job.queued" {
			detail, _ := e["detail"].(map[string]any)
			asked[fmt.Sprint(detail["kind"])] = e["actor"]
		}
	}
	for _, kind := range []string{"create", "pause", "resume", "delete"} {
		if actor := fmt.Sprint(asked[kind]); !strings.HasPrefix(actor, "key_") {
			t.Errorf("%s was asked for by %q: %s", kind, actor, a.raw)
		}
	}
}

// TestE2BIdempotency: what is sent again under its key is not done again, unless it had failed.
func TestE2BIdempotency(t *testing.T) {
	t.Parallel()
	r, _ := newE2B(t)
	create := func(key string, timeout int) answer {
		return r.call("POST", "/v2/sandboxes", map[string]any{"templateID": "base", "timeout": timeout}, "Idempotency-Key", key)
	}
	first := create("one", 300).want(t, 201).text("sandboxID")
	if again := create("one", 300).want(t, 201).text("sandboxID"); again != first {
		t.Errorf("first %s, then %s", first, again)
	}
	a := create("one", 301)
	a.refused(t, 400, "different request")
	if a.text("error_code") != "idempotency_request_mismatch" {
		t.Errorf("refused with %s", a.raw)
	}
	create(strings.Repeat("k", 256), 300).refused(t, 400, "Idempotency-Key")
	if rows := r.rows(); rows != "1 sandboxes, 1 jobs" {
		t.Errorf("written down: %s", rows)
	}

	failures := 2
	r.provider.State().Inject(fake.Fault{Op: fake.OpCreate, Times: failures, Err: providers.ErrImageMissing})
	for range failures {
		create("two", 300).refused(t, 500, "")
	}
	second := create("two", 300).want(t, 201).text("sandboxID")
	if again := create("two", 300).want(t, 201).text("sandboxID"); again != second {
		t.Errorf("first %s, then %s", second, again)
	}

	path := "/sandboxes/" + second
	pause := func() { r.call("POST", path+"/pause", nil, "Idempotency-Key", "three").want(t, 204) }
	pause()
	r.call("POST", "/v2"+path+"/connect", nil, "Idempotency-Key", "four").want(t, 201)
	pause() // which was done before
	if state := r.call("GET", path, nil).want(t, 200).text("state"); state != "running" {
		t.Errorf("it is %s", state)
	}
}

// TestE2BFailedCreates: every failure has a name that clients know, and says when to come again.
func TestE2BFailedCreates(t *testing.T) {
	t.Parallel()
	r, _ := newE2B(t)
	for _, c := range []struct {
		fault error
		times int // that make the platform give up
		want  int
		code  string
		again string
	}{
		{providers.RateLimited.Errorf("too many"), 6, 503, "sandbox_capacity_unavailable", "1"},
		{providers.ErrImageMissing, 1, 500, "sandbox_create_failed", ""},
		{providers.ErrNotFound, 1, 500, "sandbox_create_failed", ""},
		{providers.Invalid.Errorf("bad wish"), 1, 400, "invalid_argument", ""},
	} {
		r.provider.State().Inject(fake.Fault{Op: fake.OpCreate, Times: c.times, Err: c.fault})
		a := r.call("POST", "/v2/sandboxes", map[string]any{"templateID": "base"})
		a.refused(t, c.want, "")
		if a.text("error_code") != c.code || a.header.Get("Retry-After") != c.again {
			t.Errorf("answered %q %s, want %+v", a.header.Get("Retry-After"), a.raw, c)
		}
		r.call("POST", "/v2/sandboxes", map[string]any{"templateID": "base"}).want(t, 201)
	}
}

// TestE2BCreateThatNobodyCarriesOut: it is answered in time, and does not go on behind the client's back.
func TestE2BCreateThatNobodyCarriesOut(t *testing.T) {
	t.Parallel()
	r := newRig(t, hasty(200*time.Millisecond))
	late := func(headers ...string) answer {
		a := r.call("POST", "/v2/sandboxes", map[string]any{"templateID": "base"}, headers...)
		a.refused(t, 504, "not ended in time")
		if a.text("error_code") != "sandbox_placement_timeout" || a.header.Get("Retry-After") == "" {
			t.Errorf("answered %v %s", a.header, a.raw)
		}
		return a
	}
	if a := late(); a.header.Get("Should-Retry") != "false" {
		t.Errorf("clients would make another one: %v", a.header)
	}
	boxes := must(r.store.Sandboxes(t.Context(), "default", models.SandboxFilter{Limit: 10}))(t)
	if len(boxes) != 1 || !boxes[0].Ended() {
		t.Errorf("left: %+v", boxes)
	}
	for range 2 {
		if a := late("Idempotency-Key", "k"); a.header.Get("Should-Retry") != "" {
			t.Errorf("clients would not ask again: %v", a.header)
		}
	}
	if rows := r.rows(); rows != "2 sandboxes, 3 jobs" {
		t.Errorf("written down: %s", rows)
	}
}

// TestE2BCreateExpires: one that no worker has begun in time is no fault of the server.
func TestE2BCreateExpires(t *testing.T) {
	t.Parallel()
	r := newRig(t, hasty(time.Minute))
	answers := make(chan answer, 1)
	go func() {
		a, err := r.try("POST", "/v2/sandboxes", map[string]any{"templateID": "base"})
		if err != nil {
			t.Error(err)
		}
		answers <- a
	}()
	ctx := context.Background()
	var waiting []models.Job
	testenv.Eventually(t, "the create waits", func() bool {
		waiting = must(r.store.Jobs(ctx, "default", models.JobFilter{State: models.Queued, Limit: 1}))(t)
		return len(waiting) == 1
	})
	if waiting[0].QueueDeadline == nil {
		t.Fatal("it has no deadline")
	}
	conn := must(pgx.Connect(ctx, r.dsn))(t)
	defer conn.Close(ctx)
	must(conn.Exec(ctx, "UPDATE jobs SET queue_deadline = now() - interval '1 s'"))(t)
	must(r.store.Expire(ctx, waiting[0]))(t)
	a := <-answers
	a.refused(t, 504, "deadline")
	if a.text("error_code") != "sandbox_placement_timeout" {
		t.Errorf("answered %s", a.raw)
	}
}

// TestE2BUnknownOutcome: a client that repeats requests by itself is kept from making a second sandbox.
func TestE2BUnknownOutcome(t *testing.T) {
	testenv.Long(t, "it takes many seconds")
	t.Parallel()
	proxy, dsn := faultproxy.Postgres(t, testdb.New(t))
	r := newRigOn(t, dsn, hasty(0))
	var broken atomic.Bool
	proxy.On(func(c faultproxy.Call) faultproxy.Fault {
		switch {
		case broken.Load():
			return faultproxy.CutBefore
		case strings.HasPrefix(c.Text, `INSERT INTO "sandboxes"`) && strings.HasSuffix(strings.ToLower(c.Text), "commit"):
			broken.Store(true)
			return faultproxy.CutAfter
		}
		return faultproxy.None
	})
	a := r.call("POST", "/v2/sandboxes", map[string]any{"templateID": "base"})
	proxy.On(nil)
	a.refused(t, 503, "")
	if a.text("error_code") != "idempotency_outcome_unknown" || a.header.Get("Retry-After") == "" || a.header.Get("Should-Retry") != "false" {
		t.Errorf("answered %v %s", a.header, a.raw)
	}
	if rows := r.rows(); rows != "1 sandboxes, 1 jobs" {
		t.Errorf("written down: %s", rows)
	}
}
