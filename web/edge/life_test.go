package edge_test

import (
	"context"
	"database/sql"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"sandyard/dev/testenv"
	"sandyard/gateway"
	"sandyard/jobs"
	"sandyard/jobs/kind"
	"sandyard/jobs/scheduler"
	"sandyard/jobs/webhook"
	"sandyard/models"
	"sandyard/netguard"
)

// TestTrafficResumes: a hundred requests to a paused sandbox are one resume, and so is a command.
func TestTrafficResumes(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	id := r.create(jobs.CreateSandbox{AutoResume: true, Foreign: jobs.Foreign{Public: true}})
	r.change(id, &kind.Pause{}, models.SandboxPaused)
	r.send(r.to(id, gateway.GuestPort, "GET", "/health")).want(t, 502, "The sandbox is paused")
	r.resumes(id, 0)
	var all sync.WaitGroup
	for range 100 {
		req := r.to(id, 8000, "GET", "/")
		all.Go(func() {
			res, err := r.client.Do(req)
			if err != nil {
				t.Error(err)
				return
			}
			defer res.Body.Close()
			if res.StatusCode != http.StatusOK {
				t.Errorf("answered %s, %s", res.Status, res.Header.Get(gateway.ReasonHeader))
			}
		})
	}
	all.Wait()
	r.resumes(id, 1)

	r.change(id, &kind.Pause{}, models.SandboxPaused)
	if j := r.finish(id, &kind.Exec{Command: "fake:stdout hello"}); string(j.Stdout) != "hello" {
		t.Errorf("the command wrote %q", j.Stdout)
	}
	r.resumes(id, 2)
	r.change(id, &kind.Pause{}, models.SandboxPaused)
	r.finish(id, &kind.Write{Path: "a", Content: "b"})
	r.resumes(id, 3)
	r.change(id, &kind.Delete{}, models.SandboxDeleted)
}

// TestPausedStaysPaused: without auto_resume a command fails and says why.
func TestPausedStaysPaused(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	id := r.sandbox(jobs.Foreign{Public: true})
	r.change(id, &kind.Pause{}, models.SandboxPaused)
	done, err := r.jobs.Submit(t.Context(), id, &kind.Exec{Command: "fake:stdout hello"}, asTest())
	check(t, err)
	var j models.Job
	r.eventuallyTrue("the command has ended", func() bool {
		j, err = r.store.Job(t.Context(), "default", done.Jobs[0].ID)
		check(t, err)
		return j.State.Terminal()
	})
	if j.State != models.Failed || j.Error == nil || j.Error.Code != "sandbox_paused" {
		t.Errorf("it ended %s, %+v", j.State, j.Error)
	}
	r.resumes(id, 0)
}

func (r *rig) resumes(id string, want int) {
	r.t.Helper()
	list, err := r.store.Jobs(r.t.Context(), "default", models.JobFilter{Sandbox: id, Kind: models.KindResume, Limit: 100})
	check(r.t, err)
	if len(list) != want {
		r.t.Errorf("there were %d resumes, want %d", len(list), want)
	}
}

// TestTrafficKeepsASandbox: an open stream is use, also where the idle timeout is short.
func TestTrafficKeepsASandbox(t *testing.T) {
	testenv.Long(t, "it takes many seconds")
	t.Parallel()
	r := newRig(t)
	scheduler := scheduler.New(scheduler.Config{
		Store: r.store, Client: r.jobs, Queue: r.queue, Webhooks: webhook.New(r.store, r.queue, netguard.Rules{}, r.log), Steady: time.Second, Log: r.log,
	})
	wish := jobs.CreateSandbox{IdleTimeoutSeconds: 10, Foreign: jobs.Foreign{Public: true}}
	used, unused := r.create(wish), r.create(wish)
	_, answers := r.socket(used, "")
	scheduler.Start(t.Context())
	defer scheduler.Stop()
	r.await(unused, models.SandboxDeleted)
	box, err := r.store.Sandbox(t.Context(), "default", used)
	check(t, err)
	if box.State != models.SandboxRunning {
		t.Errorf("the used sandbox is %s", box.State)
	}
	if answers.Buffered() > 0 {
		t.Error("the stream said something unasked")
	}
}

// TestOneRequestIsUseOfASandboxThatIsBeingChanged: who was changing it need not have counted as use.
func TestOneRequestIsUseOfASandboxThatIsBeingChanged(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	id := r.create(jobs.CreateSandbox{Foreign: jobs.Foreign{Public: true}})
	db, err := sql.Open("pgx", r.dsn)
	check(t, err)
	t.Cleanup(func() { _ = db.Close() })
	_, err = db.ExecContext(t.Context(), "UPDATE sandboxes SET last_active_at = last_active_at - interval '1 h' WHERE id = $1", id)
	check(t, err)
	change, err := db.BeginTx(t.Context(), nil)
	check(t, err)
	_, err = change.ExecContext(t.Context(), "SELECT FROM sandboxes WHERE id = $1 FOR UPDATE", id)
	check(t, err)
	res, err := r.client.Do(r.to(id, 8000, "GET", "/"))
	check(t, err)
	check(t, res.Body.Close())
	r.until("its use could not be written down", func() bool { return r.asked.touches.Load() > 0 })
	check(t, change.Rollback())
	r.until("it is written down", func() bool {
		var recent bool
		check(t, db.QueryRowContext(t.Context(), "SELECT last_active_at > now() - interval '10 min' FROM sandboxes WHERE id = $1", id).Scan(&recent))
		return recent
	})
}

// until waits for a condition that nothing tells of.
func (r *rig) until(what string, ok func() bool) {
	r.t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(time.Minute); !ok(); <-tick.C {
		if time.Now().After(deadline) {
			r.t.Fatalf("it never came to pass that %s", what)
		}
	}
}

// TestSilentWorkerIsGivenUp: its machine takes what is sent and its lease is over. Nobody waits for it for ever, whether it
// never answers or falls silent in the middle of an answer, for a port or for files.
func TestSilentWorkerIsGivenUp(t *testing.T) {
	testenv.Long(t, "it takes many seconds")
	t.Parallel()
	r := newIdleRig(t)
	mute, begins := r.silent("nmute", ""), r.silent("nbegins", "HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\nbegun")
	var all sync.WaitGroup
	for name, ask := range map[string]func(id string) *http.Request{
		"port": func(id string) *http.Request { return r.to(id, 8000, "GET", "/") }, "read": r.within("GET"), "write": r.within("PUT"),
	} {
		all.Go(func() {
			res, err := r.client.Do(ask(mute))
			if err != nil {
				t.Errorf("%s: %v", name, err)
				return
			}
			defer res.Body.Close()
			body, err := io.ReadAll(res.Body)
			if res.StatusCode != http.StatusBadGateway || !strings.Contains(string(body), "not answer") {
				t.Errorf("%s is answered %s %q, %v", name, res.Status, body, err)
			}
			if name == "port" && res.Header.Get(gateway.ReasonHeader) != gateway.Unreachable {
				t.Errorf("the reason is %q", res.Header.Get(gateway.ReasonHeader))
			}
		})
		all.Go(func() {
			res, err := r.client.Do(ask(begins))
			if err != nil {
				t.Errorf("begun %s: %v", name, err)
				return
			}
			defer res.Body.Close()
			if body, err := io.ReadAll(res.Body); res.StatusCode != http.StatusOK || string(body) != "begun" || err == nil {
				t.Errorf("begun %s is answered %s %q, %v", name, res.Status, body, err)
			}
		})
	}
	all.Wait()
}

// silent returns a sandbox whose worker has gone after the first words of an answer.
func (r *rig) silent(node, words string) string {
	r.t.Helper()
	l := listen(r.t)
	r.t.Cleanup(func() { l.Close() })
	go swallow(l, words)
	_, err := r.store.Register(r.t.Context(), models.Node{ID: node, Provider: "fake", Gateway: "http://" + l.Addr().String()}, time.Second)
	check(r.t, err)
	done, err := r.jobs.Create(r.t.Context(), jobs.CreateSandbox{Foreign: jobs.Foreign{Public: true}}, asTest())
	check(r.t, err)
	r.made(done.Jobs[0].ID, node)
	return done.Sandbox.ID
}

// within makes requests for a file of a sandbox, as the API's own listener passes them on.
func (r *rig) within(method string) func(id string) *http.Request {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		r.edge.Inside(w, q, q.Header.Get("Sandbox"), func(w http.ResponseWriter, q *http.Request, err error) {
			if q.Context().Err() != nil {
				r.t.Errorf("a request that is to be answered has ended: %v", q.Context().Err())
			}
			http.Error(w, err.Error(), http.StatusBadGateway)
		})
	}))
	r.t.Cleanup(server.Close)
	return func(id string) *http.Request {
		req, err := http.NewRequestWithContext(r.t.Context(), method, server.URL+"/files/raw?path=a", http.NoBody)
		check(r.t, err)
		if method == "PUT" {
			req.Body, req.ContentLength = io.NopCloser(strings.NewReader("text")), 4
		}
		req.Header.Set("Sandbox", id)
		return req
	}
}

// made carries a create out in a node's name.
func (r *rig) made(job, node string) {
	r.t.Helper()
	ctx := context.Background()
	j, err := r.store.Claim(ctx, job, node, time.Minute)
	check(r.t, err)
	_, err = r.store.BeginCreate(ctx, j, models.Holder{Node: node, Provider: "fake"})
	check(r.t, err)
	_, err = r.store.Finish(ctx, models.Outcome{
		AttemptRef: models.AttemptRef{ID: j.ID, Attempt: j.Attempt}, SandboxID: j.SandboxID, Kind: j.Kind, State: models.Succeeded,
		Sandbox: models.Transition{To: models.SandboxRunning},
	})
	check(r.t, err)
}

// swallow takes every connection and says no more than these words.
func swallow(l net.Listener, words string) {
	var open []net.Conn
	defer func() {
		for _, c := range open {
			c.Close()
		}
	}()
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		open = append(open, c)
		if words != "" { // once the request's first bytes are there
			go func() {
				_, _ = c.Read(make([]byte, 1))
				_, _ = io.WriteString(c, words)
			}()
		}
	}
}
