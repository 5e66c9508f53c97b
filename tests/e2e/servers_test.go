package e2e_test

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"sandyard/dev"
	"sandyard/dev/testenv"
)

func TestRedisForgetsEverything(t *testing.T) {
	t.Parallel()
	const running, waiting = 10, 100
	r := newRig(t, "LEASE", "2m") // the worker is stopped for a while, so that the others wait in Redis
	var homes []string
	for range running {
		homes = append(homes, r.created(object{"memory_mb": 64}).ID)
	}
	var all []job
	for _, box := range homes {
		all = append(all, r.start(box, "echo first >> log; until [ -e go ]; do sleep 0.2; done", object{"parallel": true}))
	}
	testenv.Eventually(t, "ten jobs run", func() bool { return r.count("running") == running })
	r.worker.Freeze()
	t.Cleanup(func() { r.worker.Signal(syscall.SIGCONT) }) // before it is asked to end
	for n := range waiting {                               // half of them in the sandbox's order, half beside it
		all = append(all, r.start(homes[n%running], fmt.Sprintf("echo %d >> log", n), object{"parallel": n%20 < running}))
	}
	if n, m := r.count("queued"), r.count("running"); n != waiting || m != running {
		t.Fatalf("%d jobs wait and %d run, want %d and %d", n, m, waiting, running)
	}
	flush(t, r.settings["REDIS_URL"])
	if m := r.count("running"); m != running {
		t.Fatalf("%d jobs run at the loss, want %d", m, running)
	}
	r.worker.Signal(syscall.SIGCONT)
	for _, box := range homes {
		url := r.url() + "/v1/sandboxes/" + box + "/files/raw?path=go" // takes no slot
		testenv.Eventually(t, "the sandbox has the file", func() bool {
			//nolint:bodyclose // closed at the end of the test
			res := r.transfer(http.MethodPut, url, http.NoBody, 0)
			// A worker that stood still for long has lost its connection, and learns of it by the first call.
			if res.StatusCode != http.StatusOK && res.StatusCode != http.StatusBadGateway {
				t.Fatalf("let %s go: %s", box, res.Status)
			}
			return res.StatusCode == http.StatusOK
		})
	}
	for _, j := range all {
		if j = r.end(j).succeeded(t); j.Attempt != 1 {
			t.Errorf("started again: %s", j)
		}
	}
	for i, box := range homes {
		want := []string{"first"}
		for n := i; n < waiting; n += running {
			want = append(want, fmt.Sprint(n))
		}
		got := strings.Fields(r.file(box, "read", object{"path": "log"}).succeeded(t).Content)
		slices.Sort(got)
		slices.Sort(want)
		if !slices.Equal(got, want) {
			t.Errorf("a sandbox's commands ran as %v, want each of %v once", got, want)
		}
	}
	r.clean()
}

func flush(t *testing.T, url string) {
	t.Helper()
	opts, err := redis.ParseURL(url)
	if err != nil {
		t.Fatal(err)
	}
	rdb := redis.NewClient(opts)
	defer rdb.Close()
	if err := rdb.FlushAll(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
}

func TestRedisGoesAndComes(t *testing.T) {
	testenv.Long(t, "its verdict hangs on the clock")
	t.Parallel()
	dir := serverDir(t)
	server := startRedis(t, dir)
	r := newRig(t, "REDIS_URL", server.URL())
	box := r.created(object{}).ID
	check(t, server.Stop())
	began := time.Now()
	exec := r.start(box, "echo ran >> log; echo ran")
	young := r.submit("/v1/sandboxes", object{})
	if took := time.Since(began); took > 2*time.Second {
		t.Errorf("two submissions without Redis took %v", took)
	} else {
		t.Logf("two submissions without Redis took %v", took)
	}
	if j := r.job(exec.ID); j.State != "queued" {
		t.Errorf("without Redis: %s", j)
	}
	r.call("GET", "/readyz", nil).want(t, 503)
	server = startRedis(t, dir)
	t.Cleanup(func() { check(t, server.Stop()) })
	if j := r.end(exec).succeeded(t); j.Stdout != "ran\n" || j.Attempt != 1 {
		t.Errorf("the exec submitted without Redis: %s", j)
	}
	r.end(young.Job).succeeded(t)
	if j := r.file(box, "read", object{"path": "log"}); j.Content != "ran\n" {
		t.Errorf("the command left %q", j.Content)
	}
	testenv.Eventually(t, "ready again", func() bool { return r.call("GET", "/readyz", nil).status == 200 })
	r.clean()
}

func TestPostgreSQLGoesAndComes(t *testing.T) {
	testenv.Long(t, "it takes many seconds")
	t.Parallel()
	dir := serverDir(t)
	server := startPostgres(t, dir)
	r := newRig(t, "DATABASE_URL", server.DSN())
	box := r.created(object{}).ID
	slow := r.start(box, "echo begun >> log; sleep 2; echo done")
	testenv.Eventually(t, "the command runs", func() bool {
		return r.end(r.submit("/v1/sandboxes/"+box+"/files/read", object{"path": "log", "parallel": true}).Job).Content == "begun\n"
	})
	check(t, server.Stop())
	down := time.Now()
	for path, body := range map[string]any{
		"/v1/sandboxes": object{}, "/v1/sandboxes/" + box + "/exec": object{"command": "true"}, "/v1/jobs/" + slow.ID + "/cancel": nil,
	} {
		r.call("POST", path, body).problem(t, 503, "database_unavailable")
	}
	r.call("GET", "/v1/jobs/"+slow.ID, nil).problem(t, 503, "database_unavailable")
	r.call("GET", "/readyz", nil).want(t, 503)
	r.call("GET", "/healthz", nil).want(t, 200)
	testenv.Eventually(t, "a lease is over, so the worker has let go of its job", func() bool { return time.Since(down) > lease+lease/3 })
	server = startPostgres(t, dir)
	t.Cleanup(func() { check(t, server.Stop()) })
	testenv.Eventually(t, "ready again", func() bool { return r.call("GET", "/readyz", nil).status == 200 })
	if j := r.end(slow).succeeded(t); j.Stdout != "done\n" {
		t.Errorf("the command that ran meanwhile: %s", j)
	}
	if j := r.exec(box, "cat log"); j.Stdout != "begun\n" {
		t.Errorf("afterwards: %s", j)
	}
	r.each(func(p *process) {
		if p.Ended() {
			t.Errorf("%s ended with its database: %v", p.Name, p.Err())
		}
	})
	r.clean()
}

// serverDir makes a directory for a server that is stopped and started again. Servers that run as another user must
// be able to enter it.
func serverDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "sandyard-e2e-")
	check(t, err)
	t.Cleanup(func() { check(t, os.RemoveAll(dir)) })
	check(t, os.Chmod(dir, 0o755))
	return dir
}

func startRedis(t *testing.T, dir string) *dev.Redis {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	server, err := dev.StartRedis(ctx, filepath.Join(dir, "redis"), dev.Options{})
	check(t, err)
	return server
}

func startPostgres(t *testing.T, dir string) *dev.Postgres {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	server, err := dev.StartPostgres(ctx, filepath.Join(dir, "postgres"), dev.Options{})
	check(t, err)
	return server
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
