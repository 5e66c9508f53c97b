package web_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"sandyard/app"
	"sandyard/dev/testenv"
)

// mostMemory is what an API process may take at most, whatever it is asked. The process is told to stay far below 512 MB.
const mostMemory = raceMemory * 448 << 20

// childVariable makes the test's program an API process: address, database and Redis.
const childVariable = "SANDYARD_TEST_API"

// serveAsChild is an API process with its default configuration.
func serveAsChild(where string) error {
	var c app.API
	fields := strings.Split(where, "\n")
	c.Addr, c.DatabaseURL, c.RedisURL = fields[0], fields[1], fields[2]
	c.DatabaseConn, c.Window, c.MaxBody, c.Domain, c.Provider, c.Template = 20, 256, 16<<20, "localhost:8090", "docker", "python"
	c.Templates = map[string]string{"python": "sandyard/python:default"}
	return app.RunAPI(context.Background(), c, slog.New(slog.NewTextHandler(io.Discard, nil)))
}

// process is an API process of its own, whose memory can be told apart from that of other tests.
type process struct {
	*rig
	pid int
}

// newProcess starts an API process on the database and the Redis of a rig. Calls go to it.
func newProcess(t *testing.T) *process {
	t.Helper()
	r := newRig(t)
	l := must(net.Listen("tcp", "127.0.0.1:0"))(t)
	addr := l.Addr().String()
	check(t, l.Close())
	url := "redis://" + r.redis.Addr
	if r.redis.Network == "unix" {
		url = "unix://" + r.redis.Addr
	}
	if r.redis.Network == "unix" {
		url += "?db=" + strconv.Itoa(r.redis.DB)
	} else {
		url += "/" + strconv.Itoa(r.redis.DB)
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), childVariable+"="+addr+"\n"+r.dsn+"\n"+url)
	cmd.Stderr = os.Stderr
	check(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	r.url = "http://" + addr
	p := &process{rig: r, pid: cmd.Process.Pid}
	p.answers(t)
	return p
}

// answers waits until the process does.
func (p *process) answers(t *testing.T) {
	t.Helper()
	look := time.NewTicker(20 * time.Millisecond)
	defer look.Stop()
	for deadline := time.Now().Add(30 * time.Second); ; <-look.C {
		if a, err := p.try("GET", "/healthz", nil); err == nil && a.status == http.StatusOK {
			return
		} else if time.Now().After(deadline) {
			t.Fatal("the API process does not answer:", err)
		}
	}
}

// peak is the most memory that the process has taken so far.
func (p *process) peak(t *testing.T) int {
	t.Helper()
	status := must(os.ReadFile(fmt.Sprintf("/proc/%d/status", p.pid)))(t)
	found := regexp.MustCompile(`VmHWM:\s+(\d+) kB`).FindSubmatch(status)
	if found == nil {
		t.Fatalf("no peak in %s", status)
	}
	return must(strconv.Atoi(string(found[1])))(t) << 10
}

// bounded fails where the process has taken too much.
func (p *process) bounded(t *testing.T) {
	t.Helper()
	peak := p.peak(t)
	t.Logf("peak %d MiB", peak>>20)
	if peak > mostMemory {
		t.Errorf("the API took %d MiB, at most %d MiB are bearable", peak>>20, mostMemory>>20)
	}
}

// atOnce makes n calls at once and returns how often each status came back.
func (p *process) atOnce(t *testing.T, n int, call func(i int) (answer, error)) map[int]int {
	t.Helper()
	var mu sync.Mutex
	var wg sync.WaitGroup
	statuses := map[int]int{}
	for i := range n {
		wg.Go(func() {
			a, err := call(i)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				t.Errorf("call %d: %v", i, err)
			}
			if len(a.raw) > 64<<10 && a.status >= 400 {
				t.Errorf("an error document of %d bytes", len(a.raw))
			}
			statuses[a.status]++
		})
	}
	wg.Wait()
	return statuses
}

// gzipped is size bytes of zeros, in members of 1 MiB that stand behind each other.
func gzipped(t *testing.T, size int) []byte {
	t.Helper()
	var member bytes.Buffer
	w := gzip.NewWriter(&member)
	must(w.Write(make([]byte, 1<<20)))(t)
	check(t, w.Close())
	return bytes.Repeat(member.Bytes(), size>>20)
}

// TestCompressedBodiesAreRefused on all routes that take one, and are decompressed nowhere.
func TestCompressedBodiesAreRefused(t *testing.T) {
	t.Parallel()
	p := newProcess(t)
	bomb := gzipped(t, 1<<30)
	for _, route := range []string{
		"POST /sandboxes", "POST /v2/sandboxes", "POST /sandboxes/x/connect", "POST /v2/sandboxes/x/connect", "POST /sandboxes/x/pause",
		"POST /sandboxes/x/resume", "POST /sandboxes/x/timeout", "PUT /sandboxes/x/network", "POST /sandboxes/x/refreshes",
		"POST /sandboxes/x/snapshots", "DELETE /sandboxes/x", "POST /templates", "POST /volumes",
		"POST /v1/sandboxes", "POST /v1/jobs", "POST /v1/run", "GET /v1/jobs", "POST /monitor/api/queues/x:pause",
	} {
		method, path, _ := strings.Cut(route, " ")
		for _, coding := range []string{"gzip", "br", "deflate", "zstd", "gzip, br", "identity, gzip", "x-gzip"} {
			if a := p.call(method, path, bomb, "Content-Encoding", coding); a.status != http.StatusUnsupportedMediaType {
				t.Errorf("%s with %s is answered %d: %.200s", route, coding, a.status, a.raw)
			}
		}
	}
	p.bounded(t)
}

// TestWrongBodiesCostLittle sends what is wrong eight million times over, to each of the two APIs.
func TestWrongBodiesCostLittle(t *testing.T) {
	testenv.Long(t, "it measures memory")
	t.Parallel()
	p := newProcess(t)
	const size = 15 << 20
	names := func(value string) string {
		var b strings.Builder
		for i := 0; b.Len() < size; i++ {
			fmt.Fprintf(&b, `"k%d":%s,`, i, value)
		}
		return b.String()
	}
	for what, body := range map[string]string{
		"wrong items":      `{"argv":[` + strings.Repeat("0,", size/2) + `0]}`,
		"wrong objects":    `{"argv":[` + strings.Repeat("{},", size/3) + `0]}`,
		"unknown names":    `{` + names("0") + `"argv":[]}`,
		"a map's values":   `{"command":"x","env":{` + names("0") + `"a":""}}`,
		"a map's texts":    `{"command":"x","env":{` + names(`""`) + `"a":""}}`,
		"deep":             `{"argv":` + strings.Repeat("[", 9000) + strings.Repeat("]", 9000) + `}`,
		"a long name":      `{"` + strings.Repeat("\x7f", size) + `":0}`,
		"a long map name":  `{"command":"x","env":{"` + strings.Repeat("<", size) + `":0}}`,
		"a long map text":  `{"command":"x","env":{"` + strings.Repeat("<", size/2) + `":"x"}}`,
		"a long enum":      `{"command":"x","stdin":"a","stdin_encoding":"` + strings.Repeat("<", size) + `"}`,
		"a long label":     `{"labels":{"` + strings.Repeat("<", size) + `":"x"}}`,
		"escaped controls": `{"command":"` + strings.Repeat(`\u0001`, size/6) + `","timeout_seconds":-1}`,
	} {
		for _, path := range []string{"/v1/sandboxes/sb01234567890123456789012345/exec", "/v1/sandboxes", "/v1/jobs", "/sandboxes"} {
			a := p.call("POST", path, body)
			if a.status < 400 || a.status >= 500 {
				t.Errorf("%s at %s is answered %d: %.300s", what, path, a.status, a.raw)
			}
			if len(a.raw) > 64<<10 {
				t.Errorf("%s at %s is answered with %d bytes", what, path, len(a.raw))
			}
			if list, _ := a.get("errors").([]any); len(list) > 20 {
				t.Errorf("%s at %s is answered with %d errors", what, path, len(list))
			}
		}
	}
	p.bounded(t)
}

// TestManyBodiesAtOnce: two hundred of the largest, of which some are carried out and the others are told to come again.
func TestManyBodiesAtOnce(t *testing.T) {
	testenv.Long(t, "it measures memory")
	t.Parallel()
	p := newProcess(t)
	id := p.call("POST", "/v1/sandboxes", map[string]any{}).want(t, 202).text("sandbox.id")
	body := `{"path":"f","content":"` + strings.Repeat("x", 15<<20) + `"}`
	statuses := p.atOnce(t, 200, func(int) (answer, error) {
		return p.try("POST", "/v1/sandboxes/"+id+"/files/write?wait=1s", body)
	})
	t.Log("answers:", statuses)
	if statuses[202] == 0 || statuses[202]+statuses[503] != 200 {
		t.Errorf("answers %v, want 202 and 503 with a Retry-After", statuses)
	}
	p.bounded(t)
	p.call("POST", "/v1/sandboxes/"+id+"/files/write", body).want(t, 202)
}
