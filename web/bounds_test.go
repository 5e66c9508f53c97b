package web_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"sandyard/dev/testdb"
	"sandyard/dev/testenv"
	"sandyard/models"
	"sandyard/web"
)

// end writes down that a job has ended with so many bytes of output on each stream.
func (r *rig) end(t *testing.T, job string, bytes int) {
	t.Helper()
	conn := must(pgx.Connect(t.Context(), r.dsn))(t)
	defer func() { _ = conn.Close(context.WithoutCancel(t.Context())) }()
	must(conn.Exec(t.Context(), `UPDATE jobs SET state = 'succeeded', attempt = 1, started_at = now(), finished_at = now(), ready_at = NULL,
		result = '{"exit_code": 0, "timed_out": false, "oom_killed": false, "stdout_bytes": 1, "stderr_bytes": 1,
			"stdout_truncated": false, "stderr_truncated": false, "duration_ms": 1}', stdout = decode(repeat('01', $2), 'hex'), stderr = decode(repeat('02', $2), 'hex') WHERE id = $1`, job, bytes))(t)
}

// TestLargeOutputsAreBounded: twenty clients ask for a job, and twenty wait for one, that has written 16 MiB of what JSON
// makes six times as long.
func TestLargeOutputsAreBounded(t *testing.T) {
	testenv.Long(t, "it measures memory")
	t.Parallel()
	p := newProcess(t)
	id := p.call("POST", "/v1/sandboxes", map[string]any{}).want(t, 202).text("sandbox.id")
	exec := func() string {
		return p.call("POST", "/v1/sandboxes/"+id+"/exec", map[string]any{"command": "x"}).want(t, 202).text("job.id")
	}
	ended, waited := exec(), exec()
	p.end(t, ended, 8<<20)
	one := p.call("GET", "/v1/jobs/"+ended, nil).want(t, 200)
	if one.text("stdout_encoding") != "base64" || len(one.raw) > 24<<20 {
		t.Errorf("%d bytes, stdout as %s", len(one.raw), one.text("stdout_encoding"))
	}
	if state := p.call("GET", "/v1/jobs/"+ended+"?fields=state,result", nil).want(t, 200); state.text("state") != "succeeded" || state.get("result.exit_code") != 0.0 {
		t.Errorf("state alone: %.300s", state.raw)
	}
	if list := p.call("GET", "/v1/jobs", nil).want(t, 200); len(list.raw) > 1<<20 {
		t.Errorf("a list of %d bytes", len(list.raw))
	}
	var asking sync.WaitGroup
	asking.Go(func() {
		p.oneOf(t, p.atOnce(t, 20, func(int) (answer, error) { return p.status("/v1/jobs/" + waited + "?wait=60s") }), 200, 503)
	})
	p.oneOf(t, p.atOnce(t, 20, func(int) (answer, error) { return p.status("/v1/jobs/" + ended) }), 200, 503)
	p.end(t, waited, 8<<20) // no notice is sent: the clients find it in a common look
	asking.Wait()
	p.bounded(t)
}

// status is the answer to a GET without its body, which is read and dropped.
func (p *process) status(path string) (answer, error) {
	req, err := http.NewRequest(http.MethodGet, p.url+path, nil)
	if err != nil {
		return answer{}, err
	}
	req.Header.Set("Authorization", "Bearer "+p.key)
	res, err := p.client.Do(req)
	if err != nil {
		return answer{}, err
	}
	defer res.Body.Close()
	_, err = io.Copy(io.Discard, res.Body)
	return answer{status: res.StatusCode}, err
}

// oneOf fails where other statuses came back, or none of the first.
func (p *process) oneOf(t *testing.T, got map[int]int, well, busy int) {
	t.Helper()
	t.Log("answers:", got)
	for status := range got {
		if got[well] == 0 || status != well && status != busy {
			t.Errorf("answers %v, want some %d and otherwise %d", got, well, busy)
		}
	}
}

// TestWaitsAreCounted per tenant.
func TestWaitsAreCounted(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(c *web.Config) { c.TenantWaits, c.TenantStreams = 2, 1 })
	job := r.call("POST", "/v1/sandboxes", map[string]any{}).want(t, 202).text("job.id")
	var waiting sync.WaitGroup
	for range 2 {
		waiting.Go(func() {
			for r.call("GET", "/v1/jobs/"+job+"?wait=60s", nil).status == http.StatusTooManyRequests {
				continue // it has met one of the looks below
			}
		})
	}
	var refused answer
	for deadline := time.Now().Add(20 * time.Second); refused.status != http.StatusTooManyRequests; {
		if refused = r.call("GET", "/v1/jobs/"+job+"?wait=10ms", nil); time.Now().After(deadline) {
			t.Fatal("a third wait is let in:", refused.raw)
		}
	}
	refused.problem(t, 429, "limit_reached")
	if refused.text("limit") != "tenant_waits" || refused.get("max") != 2.0 || refused.header.Get("Retry-After") == "" {
		t.Errorf("refused with %s", refused.raw)
	}
	r.call("POST", "/v1/sandboxes?wait=1s", map[string]any{}).problem(t, 429, "limit_reached")
	r.call("GET", "/v1/jobs/"+job, nil).want(t, 200)
	r.call("POST", "/v1/jobs/"+job+"/cancel", nil).want(t, 200)
	waiting.Wait()
	r.call("GET", "/v1/jobs/"+job+"?wait=10ms", nil).want(t, 200)
}

// TestPagesOfSandboxesAreSmall, whatever their labels: a page ends early, and the next one goes on there.
func TestPagesOfSandboxesAreSmall(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	labels := map[string]string{}
	for i := range 64 {
		labels[fmt.Sprintf("%062d", i)] = strings.Repeat("x", 256)
	}
	const all = 60
	for range all {
		r.call("POST", "/v1/sandboxes", map[string]any{"labels": labels}).want(t, 202)
	}
	seen := 0
	for cursor := ""; ; {
		path := "/v1/sandboxes?limit=100"
		if cursor != "" {
			path += "&cursor=" + cursor
		}
		page := r.call("GET", path, nil).want(t, 200)
		list, _ := page.get("sandboxes").([]any)
		if seen += len(list); len(page.raw) > 1<<20 || len(list) == 0 {
			t.Fatalf("%d sandboxes in a page of %d bytes", len(list), len(page.raw))
		}
		if cursor = page.text("next_cursor"); cursor == "" {
			break
		}
	}
	if seen != all {
		t.Errorf("%d sandboxes on all pages, want %d", seen, all)
	}
}

// TestAmbiguousRequestsEndTheirConnection: nothing behind them is answered.
func TestAmbiguousRequestsEndTheirConnection(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	const next = "0\r\n\r\nGET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"
	for what, head := range map[string]string{
		"both":              "POST /v1/jobs HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n",
		"blank":             "POST /v1/jobs HTTP/1.1\r\nHost: x\r\nTransfer-Encoding : chunked\r\nContent-Length: 5\r\n\r\n",
		"two codings":       "POST /v1/jobs HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: identity\r\nTransfer-Encoding: chunked\r\n\r\n",
		"identity":          "POST /v1/jobs HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: identity\r\nContent-Length: 5\r\n\r\n",
		"two lengths":       "POST /v1/jobs HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nContent-Length: 5\r\n\r\n",
		"two hosts":         "POST /v1/jobs HTTP/1.1\r\nHost: x\r\nHost: y\r\nContent-Length: 5\r\n\r\n",
		"another version":   "POST /v1/jobs HTTP/2.0\r\nHost: x\r\nContent-Length: 5\r\n\r\n",
		"on a public route": "GET /healthz HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n",
	} {
		if all := r.answers(t, head+next); len(all) != 1 || all[0] != "400 true" {
			t.Errorf("%s: answers %v, want one 400 that ends the connection", what, all)
		}
	}
}

func TestUsageOfImpossibleTimes(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	for _, query := range []string{
		"to=9999-12-31T23:59:59Z", "from=0001-01-01T00:00:00Z", "from=0001-01-01T00:00:00Z&to=0001-01-02T00:00:00Z", "to=0001-01-01T00:00:00Z",
		"from=1999-12-31T23:00:00Z", "from=soon",
	} {
		r.call("GET", "/v1/usage?"+query, nil).problem(t, 422, "invalid_request")
	}
	r.call("GET", "/v1/usage?from=2026-01-01T00:00:00Z&to=2026-02-01T00:00:00Z", nil).want(t, 200)
}

// TestUnknownKeysShareLookups: callers without a key take one connection to PostgreSQL, and a text of another form none.
func TestUnknownKeysShareLookups(t *testing.T) {
	t.Parallel()
	var lookups atomic.Int64
	dsn := testdb.New(t)
	r := newRigOn(t, dsn, func(c *web.Config) {
		c.Store = must(models.Open(t.Context(), dsn, 8, models.Limits{Window: 64}, func(_ context.Context, what string, do func() error) error {
			if strings.Contains(what, "api_keys") {
				lookups.Add(1)
			}
			return do()
		}))(t)
		t.Cleanup(func() { c.Store.Close() })
	})
	var wg sync.WaitGroup
	for i := range 400 {
		wg.Go(func() {
			r.call("GET", "/v1/jobs", nil, "Authorization", fmt.Sprintf("Bearer sy_%040x", i%200)).problem(t, 401, "unauthorized")
			r.call("GET", "/v1/jobs", nil, "Authorization", fmt.Sprintf("Bearer sy_%d", i)).problem(t, 401, "unauthorized")
		})
	}
	wg.Wait()
	if n := lookups.Swap(0); n == 0 || n > 200 {
		t.Errorf("%d look-ups for 200 unknown keys", n)
	}
	for i := range 200 {
		r.call("GET", "/v1/jobs", nil, "Authorization", fmt.Sprintf("Bearer sy_%040x", i)).problem(t, 401, "unauthorized")
	}
	if n := lookups.Load(); n > 0 {
		t.Errorf("%d look-ups for keys that are known to be none", n)
	}
}
