package web_test

import (
	"context"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"sandyard/dev/testenv"
	"sandyard/gateway"
	"sandyard/jobs/webhook"
	"sandyard/jobs/worker"
	"sandyard/netguard"
	"sandyard/providers"
	"sandyard/providers/fake"
	"sandyard/tokens"
)

// newRigWithGateway is a rig whose worker can be asked about the inside of its sandboxes.
func newRigWithGateway(t *testing.T) *rig {
	t.Helper()
	r := newRig(t)
	r.workWithGateway(tokens.New("secret"), r.provider, "here")
	return r
}

// workWithGateway starts a worker, which is reached at the URL that it returns until stop is called.
func (r *rig) workWithGateway(signer *tokens.Signer, p providers.Provider, engine string) (url string, stop func()) {
	t := r.t
	t.Helper()
	l := must(net.Listen("tcp", "127.0.0.1:0"))(t)
	w := worker.New(worker.Config{
		Store: r.store, Redis: r.redis, Images: []string{"*"}, Provider: p, Engine: engine, Slots: 8, Lease: 10 * time.Second, Grace: time.Second,
		Gateway: "http://" + l.Addr().String(), Webhooks: webhook.New(r.store, r.queue, netguard.Rules{}, slog.New(slog.DiscardHandler)),
		Metrics: worker.NewMetrics(prometheus.NewRegistry()), Log: slog.New(slog.DiscardHandler),
	})
	door := gateway.New(gateway.Config{
		Signer: signer, Log: slog.New(slog.DiscardHandler), Now: r.store.Now, Open: w.Enter,
	}).Serve(t.Context(), l)
	check(t, w.Start(context.Background()))
	stop = sync.OnceFunc(func() {
		w.Stop(context.Background())
		door()
	})
	t.Cleanup(stop)
	return "http://" + l.Addr().String(), stop
}

// TestASandboxThatNoNodeHoldsIsReachedThroughAnyWorker: its gateway is always the same one, until that worker is gone.
func TestASandboxThatNoNodeHoldsIsReachedThroughAnyWorker(t *testing.T) {
	t.Parallel()
	signer := tokens.New("secret")
	r := newRig(t)
	cloud := func() providers.Provider {
		p := fake.New(fake.Options{State: r.provider.State()})
		t.Cleanup(func() { check(t, p.Close()) })
		return p
	}
	stops := map[string]func(){}
	for range 3 {
		url, stop := r.workWithGateway(signer, cloud(), "")
		stops[url] = stop
	}
	id := r.sandbox(map[string]any{})
	box := "/v1/sandboxes/" + id
	exec := r.call("POST", box+"/exec?wait=30s", map[string]any{"command": "fake:stdout hello; fake:input", "background": true, "stdin_open": true}).
		want(t, 200).text("job.result.exec_id")
	other, _ := r.workWithGateway(signer, r.provider, "an engine") // which has no part in it
	for len(stops) > 0 {
		if out := r.call("GET", box+"/execs/"+exec+"/output", nil).want(t, 200); out.text("data") != "hello" {
			t.Errorf("its output is %q", out.raw)
		}
		at := must(r.store.Route(t.Context(), id))(t).Gateway
		if again := must(r.store.Route(t.Context(), id))(t).Gateway; again != at || at == other || stops[at] == nil {
			t.Fatalf("it is reached at %q and then at %q", at, again)
		}
		stops[at]()
		delete(stops, at)
	}
	r.call("GET", box+"/execs/"+exec+"/output", nil).problem(t, 503, "sandbox_unreachable")
	check(t, r.provider.Delete(t.Context(), id)) // with the exec
}

// TestOutputWaitsForTheRestOfALetter: an answer that begins in the middle of what has come of a letter holds all of it.
func TestOutputWaitsForTheRestOfALetter(t *testing.T) {
	t.Parallel()
	r := newRigWithGateway(t)
	box := "/v1/sandboxes/" + r.sandbox(map[string]any{})
	exec := box + "/execs/" + r.call("POST", box+"/exec?wait=30s", map[string]any{
		"command": "fake:input", "background": true, "stdin_open": true,
	}).want(t, 200).text("job.result.exec_id")
	write := func(part string) {
		r.call("POST", exec+"/stdin?wait=30s", map[string]any{"data": part, "encoding": "base64"}).want(t, 200)
	}
	write("ww==")
	testenv.Eventually(t, "half of the letter has come", func() bool {
		return r.call("GET", exec, nil).want(t, 200).get("stdout_bytes") == 1.0
	})
	before, answers := r.provider.State().Calls(fake.OpBackground), make(chan answer, 1)
	go func() {
		a, _ := r.try("GET", exec+"/output?wait=60s", nil)
		answers <- a
	}()
	testenv.Eventually(t, "the rest is waited for", func() bool {
		return r.provider.State().Calls(fake.OpBackground) >= before+2 || len(answers) > 0
	})
	write("qQ==")
	if a := <-answers; a.text("data") != "é" || a.text("encoding") != "utf-8" || a.get("next_offset") != 2.0 {
		t.Errorf("the letter: %s", a.raw)
	}
	r.call("POST", exec+"/stdin?wait=30s", map[string]any{"eof": true}).want(t, 200)
	r.call("GET", exec+"?wait=30s", nil).want(t, 200)
}

func TestBackgroundExecs(t *testing.T) {
	t.Parallel()
	r := newRigWithGateway(t)
	box := "/v1/sandboxes/" + r.sandbox(map[string]any{})
	a := r.call("POST", box+"/exec?wait=30s", map[string]any{
		"command": "fake:stdout hello; fake:input; fake:exit 3", "background": true, "stdin_open": true,
	}).want(t, 200)
	id := a.text("job.result.exec_id")
	if a.text("job.state") != "succeeded" || id != a.text("job.id") || a.get("job.stdout") != nil {
		t.Fatalf("start: %s", a.raw)
	}
	exec := box + "/execs/" + id
	if a := r.call("GET", box+"/execs", nil).want(t, 200); !strings.Contains(a.raw, `"id":"`+id+`","running":true`) {
		t.Errorf("list: %s", a.raw)
	}
	if a := r.call("GET", exec+"?wait=0.1s", nil).want(t, 200); a.get("running") != true || a.get("exit_code") != nil {
		t.Errorf("get: %s", a.raw)
	}
	if a := r.call("GET", exec+"/output?wait=30s", nil).want(t, 200); a.text("data") != "hello" || a.get("next_offset") != 5.0 || a.get("eof") != false {
		t.Errorf("output: %s", a.raw)
	}
	// The letter comes in two pieces; the first one's bytes must not be torn.
	followed := make(chan answer, 1)
	go func() {
		a, _ := r.try("GET", exec+"/output?offset=5&wait=60s", nil)
		followed <- a
	}()
	for _, part := range []string{"YcM=", "qSE="} {
		r.call("POST", exec+"/stdin?wait=30s", map[string]any{"data": part, "encoding": "base64"}).want(t, 200)
	}
	first := <-followed
	if text := first.text("data"); first.text("encoding") != "utf-8" || !strings.HasPrefix("aé!", text) || text == "" {
		t.Errorf("followed: %s", first.raw)
	}
	if a := r.call("GET", exec+"/output?offset=6&wait=30s&max_bytes=10", nil).want(t, 200); a.text("data") != "é!" {
		t.Errorf("the rest: %s", a.raw)
	}
	waiting := r.call("POST", exec+"/wait", map[string]any{"timeout_seconds": 60}).want(t, 202).text("job.id")
	r.call("POST", exec+"/stdin?wait=30s", map[string]any{"eof": true}).want(t, 200)
	if a := r.call("GET", "/v1/jobs/"+waiting+"?wait=30s", nil).want(t, 200); a.get("result.exit_code") != 3.0 || a.text("state") != "succeeded" {
		t.Errorf("wait: %s", a.raw)
	}
	if a := r.call("GET", exec+"/output?offset=9&wait=30s", nil).want(t, 200); a.get("eof") != true || a.get("exec.exit_code") != 3.0 {
		t.Errorf("at the end: %s", a.raw)
	}
	if a := r.call("POST", exec+"/signal?wait=30s", map[string]any{"signal": "SIGTERM"}).want(t, 200); a.text("job.error.code") != "exec_ended" {
		t.Errorf("signal: %s", a.raw)
	}
	if a := r.call("DELETE", exec+"?wait=30s", nil).want(t, 200); a.text("job.state") != "succeeded" {
		t.Errorf("delete: %s", a.raw)
	}
	r.call("GET", exec, nil).problem(t, 404, "exec_not_found")
	r.call("GET", exec+"/output", nil).problem(t, 404, "exec_not_found")
	if a := r.call("GET", box+"/execs", nil).want(t, 200); a.raw != `{"execs":[]}`+"\n" && a.raw != `{"execs":[]}` {
		t.Errorf("list: %s", a.raw)
	}
	r.call("GET", box+"/execs/nothing", nil).problem(t, 422, "invalid_request")
	r.call("GET", exec+"/output?wait=1h", nil).problem(t, 422, "invalid_request")
	r.call("GET", "/v1/sandboxes/sbnone/execs", nil).problem(t, 404, "not_found")
	r.call("POST", box+"/pause?wait=30s", nil).want(t, 200)
	r.call("GET", box+"/execs", nil).problem(t, 409, "sandbox_paused")
	r.call("DELETE", box+"?wait=30s", nil).want(t, 200)
	r.call("GET", box+"/execs", nil).problem(t, 410, "sandbox_ended")
}

func TestExecsOfOthersAndWithoutGateway(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	id := r.sandbox(map[string]any{})
	r.call("GET", "/v1/sandboxes/"+id+"/execs", nil).problem(t, 409, "sandbox_not_running")
	r.work()
	testenv.Eventually(t, "the sandbox runs", func() bool { return r.call("GET", "/v1/sandboxes/"+id, nil).text("state") == "running" })
	r.call("GET", "/v1/sandboxes/"+id+"/execs", nil).problem(t, 503, "sandbox_unreachable")
}

// TestExecsThatHaveNotBegun are queued, and what is done with them waits for their start.
func TestExecsThatHaveNotBegun(t *testing.T) {
	t.Parallel()
	r := newRigWithGateway(t)
	box := "/v1/sandboxes/" + r.call("POST", "/v1/sandboxes?wait=60s", object{}).want(t, 200).text("sandbox.id")
	ahead := r.call("POST", box+"/exec", object{"command": "fake:sleep 1h"}).want(t, 202).text("job.id")
	id := r.call("POST", box+"/exec", object{"command": "fake:input; fake:exit 3", "background": true, "stdin_open": true}).want(t, 202).text("job.id")
	exec := box + "/execs/" + id
	if a := r.call("GET", exec, nil).want(t, 200); a.get("queued") != true || a.get("running") != false || a.text("id") != id {
		t.Errorf("an exec that has not begun: %s", a.raw)
	}
	wait := r.call("POST", exec+"/wait", object{}).want(t, 202).text("job.id")
	stdin := r.call("POST", exec+"/stdin", object{"data": "x", "eof": true}).want(t, 202).text("job.id")
	short := r.call("POST", exec+"/wait?wait=60s", object{"timeout_seconds": 0.1}).want(t, 200)
	if short.text("job.state") != "timed_out" || short.text("job.error.code") != "timeout" {
		t.Errorf("a short wait: %s", short.raw)
	}
	for _, job := range []string{wait, stdin} {
		testenv.Eventually(t, "the job has looked for the exec", func() bool { return r.call("GET", "/v1/jobs/"+job, nil).get("attempt").(float64) > 0 })
	}
	r.call("POST", "/v1/jobs/"+ahead+"/cancel?wait=60s", nil).want(t, 200)
	if a := r.call("GET", "/v1/jobs/"+stdin+"?wait=60s", nil).want(t, 200); a.text("state") != "succeeded" {
		t.Errorf("the input: %s", a.raw)
	}
	if a := r.call("GET", "/v1/jobs/"+wait+"?wait=60s", nil).want(t, 200); a.text("state") != "succeeded" || a.get("result.exit_code") != 3.0 {
		t.Errorf("the wait: %s", a.raw)
	}
}
