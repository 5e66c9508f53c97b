package web_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"sandyard/dev/testenv"
	"sandyard/jobs"
	"sandyard/models"
)

// begins calls a tool whose command does not end by itself, and returns when that runs: how to give the call up, and
// where its answer comes.
func (k talk) begins(r *rig, args object) (job models.Job, cancel func(), answer <-chan said) {
	k.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	came := make(chan said, 1)
	go func() {
		s, _ := k.try(ctx, "shell_exec", args)
		came <- s
	}()
	k.t.Cleanup(cancel)
	return r.runs("exec"), cancel, came
}

// runs waits for the one job of a kind that runs.
func (r *rig) runs(kind string) (job models.Job) {
	r.t.Helper()
	testenv.Eventually(r.t, "a job runs", func() bool {
		list := must(r.store.Jobs(context.Background(), "default", models.JobFilter{Kind: kind, State: models.Running, Limit: 2}))(r.t)
		if len(list) == 1 {
			job = list[0]
		}
		return len(list) == 1
	})
	return job
}

// cancelled waits until a job is cancelled.
func (r *rig) cancelled(job string) {
	r.t.Helper()
	testenv.Eventually(r.t, "the job is cancelled", func() bool {
		return must(r.store.Job(context.Background(), "default", job))(r.t).State == models.Cancelled
	})
}

// goesOn checks that nobody has cancelled a job, and then does so.
func (r *rig) goesOn(job string) {
	r.t.Helper()
	if j := must(r.store.Job(context.Background(), "default", job))(r.t); j.State != models.Running || j.CancelRequestedAt != nil {
		r.t.Errorf("the job is %s, its cancel was requested at %v", j.State, j.CancelRequestedAt)
	}
	r.call("POST", "/v1/jobs/"+job+"/cancel", nil).want(r.t, 200)
	r.cancelled(job)
}

func TestMCPLongCommandIsHandedOver(t *testing.T) {
	t.Parallel()
	r := newInsideRig(t)
	k := r.talk("?session=long")
	s := k.ok("shell_exec", object{"command": "fake:stdout begun; fake:sleep 1h", "wait": 0.2})
	if s.fields["running"] != true || s.fields["exit_code"] != nil || !strings.Contains(s.text, "Call shell_wait with exec_id "+s.str("exec_id")) {
		t.Fatalf("a command that goes on: %s %v", s.text, s.fields)
	}
	got, at := s.str("stdout"), s.str("cursor")
	testenv.Eventually(t, "its output comes", func() bool { // another client, which has only the ids
		s := r.talk("?session=long").ok("shell_wait", object{"exec_id": s.str("exec_id"), "cursor": at, "seconds": 0.1})
		got, at = got+s.str("stdout"), s.str("cursor")
		return got == "begun"
	})
	if s := k.ok("shell_wait", object{"exec_id": s.str("exec_id"), "cursor": at, "seconds": 0.1}); s.str("stdout") != "" || s.fields["running"] != true {
		t.Errorf("behind the last byte: %v", s.fields)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel() // of a shell_wait, which is not the command's call
	_, _ = k.try(ctx, "shell_wait", object{"exec_id": s.str("exec_id")})
	for id := range 5 { // also of the call that was handed over, whatever its id was
		notice := fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":%d}}`, id)
		r.call("POST", "/mcp?session=long", notice, "Mcp-Session-Id", k.session.ID()).want(t, 202)
	}
	r.goesOn(s.str("exec_id"))
	k.refused("shell_wait", object{"exec_id": s.str("exec_id")}, "cancelled", "")
}

func TestMCPCancelledCallKillsItsCommand(t *testing.T) {
	t.Parallel()
	r := newInsideRig(t)
	job, cancel, _ := r.talk("").begins(r.rig, object{"command": "fake:sleep 1h"})
	cancel()
	r.cancelled(job.ID)
}

// TestMCPNoticeCancelsACallOfAnotherConnection sends the notice alone, as it reaches another process than the call's.
func TestMCPNoticeCancelsACallOfAnotherConnection(t *testing.T) {
	t.Parallel()
	r := newInsideRig(t)
	answered := make(chan string, 1)
	go func() {
		a, _ := r.try("POST", "/mcp", `{"jsonrpc":"2.0","id":"seven","method":"tools/call","params":{"name":"shell_exec","arguments":{"command":"fake:sleep 1h"}}}`,
			"Mcp-Session-Id", "mcps_mine", "Accept", "application/json, text/event-stream")
		answered <- a.raw
	}()
	job := r.runs("exec")
	notice := `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"seven"}}`
	r.post("mcps_another", notice).want(t, 202)
	if j := must(r.store.Job(t.Context(), "default", job.ID))(t); j.CancelRequestedAt != nil {
		t.Error("another session's notice cancelled the call")
	}
	r.post("mcps_mine", notice).want(t, 202)
	r.cancelled(job.ID)
	if raw := <-answered; !strings.Contains(raw, `"isError":true`) || !strings.Contains(raw, "cancelled") {
		t.Errorf("the cancelled call was answered %s", raw)
	}
}

func TestMCPVanishedClientsCommandIsKilled(t *testing.T) {
	t.Parallel()
	r := newInsideRig(t)
	body := `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"shell_exec","arguments":{"command":"fake:sleep 1h"}}}`
	ctx, vanish := context.WithCancel(t.Context())
	req := must(http.NewRequestWithContext(ctx, http.MethodPost, r.url+"/mcp?session=a", strings.NewReader(body)))(t)
	req.Header.Set("X-API-Key", r.key)
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json, text/event-stream")
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		if res, err := r.client.Do(req); err == nil {
			for buf := make([]byte, 1<<10); err == nil; {
				_, err = res.Body.Read(buf)
			}
			res.Body.Close()
		}
	}()
	job := r.runs("exec")
	vanish()
	<-gone
	r.cancelled(job.ID)
	r.talk("?session=a").ok("shell_exec", object{"command": "fake:exit 0"})
}

func TestMCPServerThatEndsHandsOver(t *testing.T) {
	t.Parallel()
	r := newInsideRig(t)
	job, _, answer := r.talk("").begins(r.rig, object{"command": "fake:sleep 1h"})
	r.shutdown()
	if s := <-answer; s.fields["running"] != true || s.str("exec_id") != job.ID {
		t.Errorf("the call of a server that ends was answered %v %q %v", s.failed, s.text, s.fields)
	}
	if j := must(r.store.Job(t.Context(), "default", job.ID))(t); j.State != models.Running || j.CancelRequestedAt != nil {
		t.Errorf("its job is %s", j.State)
	}
	must(jobs.NewClient(r.store, r.queue, jobs.Catalog{}, slog.New(slog.DiscardHandler)).Cancel(t.Context(), "default", job.ID, "test"))(t)
	r.cancelled(job.ID)
}

func TestMCPSendsProgress(t *testing.T) {
	t.Parallel()
	r := newInsideRig(t)
	told := make(chan *mcp.ProgressNotificationParams, 100)
	k := r.talkAs(r.key, "", &mcp.ClientOptions{ProgressNotificationHandler: func(_ context.Context, req *mcp.ProgressNotificationClientRequest) {
		told <- req.Params
	}})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		params := &mcp.CallToolParams{Name: "shell_exec", Arguments: object{"command": "fake:sleep 1h"}}
		params.SetProgressToken("mine")
		_, _ = k.session.CallTool(ctx, params)
	}()
	if p := <-told; p.ProgressToken != "mine" || p.Progress <= 0 || !strings.Contains(p.Message, "running") {
		t.Errorf("progress: %+v", p)
	}
	job := r.runs("exec")
	cancel()
	<-ended
	r.cancelled(job.ID)
}
