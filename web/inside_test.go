package web_test

import (
	"archive/tar"
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
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
	"sandyard/web"
)

// insideRig is a rig whose API reaches the inside of the fake provider's sandboxes through a worker's gateway.
type insideRig struct {
	*rig
	box         string        // a running sandbox
	open        *atomic.Int64 // requests that are on their way through
	stopGateway func()
}

// counted counts the requests that are on their way to the inside.
type counted struct {
	way  web.Inside
	open *atomic.Int64
}

func (c counted) Inside(w http.ResponseWriter, r *http.Request, id string, refuse func(http.ResponseWriter, *http.Request, error)) {
	c.open.Add(1)
	defer c.open.Add(-1)
	c.way.Inside(w, r, id, refuse)
}

func (c counted) Wake(ctx context.Context, id string) error { return c.way.Wake(ctx, id) }

func newInsideRig(t *testing.T, change ...func(*web.Config)) *insideRig {
	t.Helper()
	return newInsideRigOn(t, func(p *fake.Provider) providers.Provider { return p }, change...)
}

// newInsideRigOn makes a rig whose gateway sees sandboxes as within makes them of the fake provider's.
func newInsideRigOn(t *testing.T, within func(*fake.Provider) providers.Provider, change ...func(*web.Config)) *insideRig {
	t.Helper()
	return newInsideRigBy(t, within, func(*gateway.Config) {}, change...)
}

// newInsideRigBy makes a rig whose gateway is set up as the test wants it.
func newInsideRigBy(t *testing.T, within func(*fake.Provider) providers.Provider, set func(*gateway.Config), change ...func(*web.Config)) *insideRig {
	t.Helper()
	log, signer := slog.New(slog.DiscardHandler), tokens.New("secret")
	open := &atomic.Int64{}
	r := &insideRig{open: open, rig: newRig(t, append(change, func(c *web.Config) { c.Inside = counted{c.Inside, open} })...)}
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	l := must(net.Listen("tcp", "127.0.0.1:0"))(t)
	w := worker.New(worker.Config{
		Store: r.store, Redis: r.redis, Images: []string{"*"}, Provider: r.provider, Engine: "here", Slots: 8, Lease: 10 * time.Second, Grace: 5 * time.Second,
		Gateway: "http://" + l.Addr().String(), Webhooks: webhook.New(r.store, r.queue, netguard.Rules{}, log),
		Metrics: worker.NewMetrics(prometheus.NewRegistry()), Log: log,
	})
	door := gateway.Config{
		Signer: signer, Log: log, Now: r.store.Now,
		Open: func(ctx context.Context, box string) (providers.Sandbox, error) {
			if _, err := w.Enter(ctx, box); err != nil {
				return nil, err
			}
			return within(r.provider).Open(ctx, box)
		},
	}
	set(&door)
	r.stopGateway = gateway.New(door).Serve(ctx, l)
	t.Cleanup(r.stopGateway)
	check(t, w.Start(context.Background()))
	t.Cleanup(func() { w.Stop(context.Background()) })
	t.Cleanup(r.shutdown) // before what it stands on
	r.box = r.running()
	return r
}

// running makes a sandbox.
func (r *insideRig) running() string {
	r.t.Helper()
	a := r.call("POST", "/v1/sandboxes?wait=60s", "{}").want(r.t, 200)
	return a.text("sandbox.id")
}

func (r *insideRig) path(route, query string) string {
	return "/v1/sandboxes/" + r.box + route + "?" + query
}

func TestRawFiles(t *testing.T) {
	t.Parallel()
	r := newInsideRig(t)
	raw := r.path("/files/raw", "path=a/b.bin")
	large := bytes.Repeat([]byte("0123456789abcdef"), 5<<16)
	put := r.call("PUT", raw+"&mode=0600", large).want(t, 200)
	if put.text("path") != "/workspace/a/b.bin" || put.text("mode") != "0600" || put.get("size") != float64(len(large)) {
		t.Errorf("written: %s", put.raw)
	}
	got := r.call("GET", raw, nil).want(t, 200)
	if got.raw != string(large) || got.header.Get("Content-Length") != fmt.Sprint(len(large)) || got.header.Get("X-Request-Id") == "" {
		t.Errorf("%d bytes came, %v", len(got.raw), got.header)
	}
	for name, want := range map[string]string{
		"Content-Type": "application/octet-stream", "Content-Disposition": "attachment; filename=b.bin", "X-Content-Type-Options": "nosniff",
		"Accept-Ranges": "bytes", "Sandyard-Class": "", "Sandyard-Pass": "",
	} {
		if got.header.Get(name) != want {
			t.Errorf("%s is %q", name, got.header.Get(name))
		}
	}
	for asked, want := range map[string]string{"bytes=2-4": "234", "bytes=-1": "f", "bytes=16-19": "0123", fmt.Sprintf("bytes=%d-", len(large)-2): "ef"} {
		if part := r.call("GET", raw, nil, "Range", asked).want(t, 206); part.raw != want {
			t.Errorf("%s: %q", asked, part.raw)
		}
	}
	if parts := r.call("GET", raw, nil, "Range", "bytes=0-1,4-5").want(t, 206); !strings.Contains(parts.raw, "\r\n45\r\n") {
		t.Errorf("two ranges: %q", parts.raw)
	}
	if head := r.call("HEAD", raw, nil).want(t, 200); head.raw != "" || head.header.Get("Content-Length") != fmt.Sprint(len(large)) {
		t.Errorf("HEAD: %v", head.header)
	}
	tag := got.header.Get("ETag")
	r.call("GET", raw, nil, "If-None-Match", tag).want(t, 304)
	r.call("GET", raw, nil, "If-Modified-Since", got.header.Get("Last-Modified")).want(t, 304)
	r.call("GET", raw, nil, "Range", "bytes=0-0", "If-Range", `"other"`).want(t, 200)
	r.call("GET", raw, nil, "If-Match", `"other"`).problem(t, 412, "precondition_failed")
	r.call("GET", raw, nil, "Range", "bytes=9999999-").problem(t, 416, "range_not_satisfiable")
	r.call("PUT", raw, []byte{}).want(t, 200)
	if empty := r.call("GET", raw, nil).want(t, 200); empty.raw != "" || empty.header.Get("ETag") == tag {
		t.Errorf("replaced by nothing: %q %v", empty.raw, empty.header)
	}
}

func TestBodiesAreBoundedButForRawFiles(t *testing.T) {
	t.Parallel()
	const limit = 50_000
	r := newInsideRig(t, func(c *web.Config) { c.MaxBody = limit })
	large := strings.Repeat("x", 4*limit)
	for _, unknown := range []bool{false, true} {
		body := func() io.Reader {
			if unknown {
				return io.MultiReader(strings.NewReader(large)) // which is sent in chunks
			}
			return strings.NewReader(large)
		}
		r.send("PUT", r.path("/files/raw", "path=f"), body()).want(t, 200)
		if got := r.call("GET", r.path("/files/raw", "path=f"), nil).want(t, 200); got.raw != large {
			t.Errorf("%d bytes came", len(got.raw))
		}
		for _, path := range []string{"/v1/sandboxes", "/v1/sandboxes/" + r.box + "/files/write", "/v1/none"} {
			r.send("POST", path, body()).problem(t, 413, "body_too_large")
		}
		r.send("POST", "/elsewhere", body()).problem(t, 404, "route_not_found") // where nobody reads one
		r.send("POST", r.path("/files/raw", "path=f"), body()).problem(t, 413, "body_too_large")
	}
	small := io.MultiReader(strings.NewReader(`{"key": "chunked"}`))
	r.send("POST", "/v1/sandboxes", small).want(t, 202)
}

// send makes a request whose body is a stream.
func (r *insideRig) send(method, path string, body io.Reader) answer {
	r.t.Helper()
	req := must(http.NewRequest(method, r.url+path, body))(r.t)
	req.Header.Set("Authorization", "Bearer "+r.key)
	req.Header.Set("Content-Type", "application/json")
	return r.answered(req)
}

func (r *insideRig) answered(req *http.Request) answer {
	r.t.Helper()
	res, err := r.client.Do(req)
	check(r.t, err)
	defer res.Body.Close()
	text := must(io.ReadAll(res.Body))(r.t)
	a := answer{status: res.StatusCode, header: res.Header, raw: string(text)}
	_ = json.Unmarshal(text, &a.body) // what is no JSON object has no fields
	return a
}

func TestRawFilesAreRefusedAsEverywhere(t *testing.T) {
	t.Parallel()
	r := newInsideRig(t)
	r.call("PUT", r.path("/files/raw", "path=dir/f"), []byte("x")).want(t, 200)
	for _, route := range []string{"/files/raw", "/files/tree"} {
		for _, method := range []string{"GET", "PUT"} {
			ask := func(path string, headers ...string) answer { return r.call(method, path, []byte("body"), headers...) }
			ask(r.path(route, "path=f"), "Authorization", "").problem(t, 401, "unauthorized")
			ask(r.path(route, "path=f"), "Authorization", "Bearer sy_wrong").problem(t, 401, "unauthorized")
			ask("/v1/sandboxes/sb0000/files/raw?path=f").problem(t, 404, "not_found")
			ask(r.path(route, "path=../x")).problem(t, 422, "invalid_path")
			ask(r.path(route, "")).problem(t, 422, "invalid_path")
			ask(r.path(route, "path=f"), "Content-Encoding", "gzip").problem(t, 415, "unsupported_content_encoding")
		}
	}
	r.call("GET", r.path("/files/raw", "path=none"), nil).problem(t, 404, "file_not_found")
	r.call("GET", r.path("/files/raw", "path=dir"), nil).problem(t, 409, "not_a_file")
	r.call("PUT", r.path("/files/raw", "path=dir"), []byte("x")).problem(t, 409, "not_a_file")
	r.call("PUT", r.path("/files/raw", "path=f&mode=4755"), []byte("x")).problem(t, 422, "invalid_argument")
	r.call("GET", r.path("/files/tree", "path=dir/f"), nil).problem(t, 409, "not_a_directory")
	r.call("PUT", r.path("/files/tree", "path=d"), []byte("no archive")).problem(t, 422, "invalid_archive")
	r.call("DELETE", r.path("/files/raw", "path=f"), nil).problem(t, 405, "method_not_allowed")

	r.call("POST", r.path("/pause", "wait=60s"), nil).want(t, 200)
	r.call("GET", r.path("/files/raw", "path=dir/f"), nil).problem(t, 409, "sandbox_paused")
	r.call("POST", r.path("/resume", "wait=60s"), nil).want(t, 200)
	testenv.Eventually(t, "the resumed sandbox is reached", func() bool {
		return r.call("GET", r.path("/files/raw", "path=dir/f"), nil).status == 200
	})
	gone := r.running()
	r.call("DELETE", "/v1/sandboxes/"+gone+"?wait=60s", nil).want(t, 200)
	r.call("GET", "/v1/sandboxes/"+gone+"/files/raw?path=f", nil).problem(t, 410, "sandbox_ended")
	r.stopGateway()
	r.call("GET", r.path("/files/raw", "path=dir/f"), nil).problem(t, 502, "provider_unavailable")
	if r.call("PUT", r.path("/files/raw", "path=f"), bytes.Repeat([]byte("x"), 1<<20)).problem(t, 502, "provider_unavailable").header.Get("Retry-After") == "" {
		t.Error("it does not say when to try again")
	}
}

// TestUnreadBodyIsNoRequest sends what looks like a request in the body of one that is refused unread.
func TestUnreadBodyIsNoRequest(t *testing.T) {
	t.Parallel()
	r := newInsideRig(t)
	hidden := "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"
	body := strings.Repeat(hidden, 1000)
	for name, framing := range map[string]string{
		"told":   fmt.Sprintf("Content-Length: %d\r\n\r\n%s", len(body), body),
		"chunks": fmt.Sprintf("Transfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n", len(body), body),
	} {
		for _, key := range []string{"wrong", r.key} {
			conn := must(net.Dial("tcp", strings.TrimPrefix(r.url, "http://")))(t)
			check(t, conn.SetDeadline(time.Now().Add(30*time.Second)))
			_, err := fmt.Fprintf(conn, "PUT /v1/sandboxes/none/files/raw?path=f HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\n%s", key, framing)
			check(t, err)
			in := bufio.NewReader(conn)
			res, err := http.ReadResponse(in, nil)
			check(t, err)
			_, err = io.Copy(io.Discard, res.Body)
			check(t, err)
			res.Body.Close()
			rest, _ := io.ReadAll(in) // the end, however it comes
			if res.StatusCode/100 != 4 || len(rest) > 0 {
				t.Errorf("%s: %d, then %q", name, res.StatusCode, rest)
			}
			conn.Close()
		}
	}
}

func TestBrokenUploadLeavesTheOldFile(t *testing.T) {
	t.Parallel()
	r := newInsideRig(t)
	r.call("PUT", r.path("/files/raw", "path=f"), []byte("old")).want(t, 200)
	some := strings.Repeat("x", 20_000) // more than is waited for before a request counts as one
	for _, framing := range []string{
		"Content-Length: 1000000\r\n\r\n" + some, fmt.Sprintf("Transfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n", len(some), some),
	} {
		conn := must(net.Dial("tcp", strings.TrimPrefix(r.url, "http://")))(t)
		_, err := fmt.Fprintf(conn, "PUT %s HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\n%s", r.path("/files/raw", "path=f"), r.key, framing)
		check(t, err)
		testenv.Eventually(t, "the upload is under way", func() bool { return r.open.Load() > 0 })
		conn.Close()
		testenv.Eventually(t, "the upload is over", func() bool { return r.open.Load() == 0 })
	}
	if got := r.call("GET", r.path("/files/raw", "path=f"), nil).want(t, 200); got.raw != "old" {
		t.Errorf("it holds %q", got.raw)
	}
}

func TestTrees(t *testing.T) {
	t.Parallel()
	r := newInsideRig(t)
	for name, content := range map[string]string{"one": "1", "sub/two": "22"} {
		r.call("PUT", r.path("/files/raw", "path=tree/"+name), []byte(content)).want(t, 200)
	}
	plain := r.call("GET", r.path("/files/tree", "path=tree"), nil).want(t, 200)
	if plain.header.Get("Content-Type") != "application/x-tar" || plain.header.Get("Content-Disposition") != "attachment; filename=tree.tar" {
		t.Errorf("%v", plain.header)
	}
	small := r.call("GET", r.path("/files/tree", "path=tree&gzip=1"), nil).want(t, 200)
	unzipped := must(io.ReadAll(must(gzip.NewReader(strings.NewReader(small.raw)))(t)))(t)
	if sha256.Sum256(unzipped) != sha256.Sum256([]byte(plain.raw)) {
		t.Error("the compressed archive is another one")
	}
	for _, body := range []string{plain.raw, small.raw} {
		made := r.call("PUT", r.path("/files/tree", "path=copy"), body).want(t, 200)
		if made.get("files") != 2.0 || made.get("bytes") != 3.0 {
			t.Errorf("made %s", made.raw)
		}
		if got := r.call("GET", r.path("/files/raw", "path=copy/sub/two"), nil).want(t, 200); got.raw != "22" {
			t.Errorf("got %q", got.raw)
		}
	}
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	check(t, w.WriteHeader(&tar.Header{Name: "../../evil", Typeflag: tar.TypeReg}))
	check(t, w.Close())
	bad := r.call("PUT", r.path("/files/tree", "path=copy"), b.Bytes()).problem(t, 422, "invalid_archive")
	if !strings.Contains(bad.text("detail"), "'../../evil'") {
		t.Errorf("it does not name the entry: %s", bad.raw)
	}
}

func TestTransfersAreActivity(t *testing.T) {
	testenv.Long(t, "it takes many seconds")
	t.Parallel()
	r := newInsideRig(t)
	before := must(r.store.Sandbox(context.Background(), "default", r.box))(t).LastActiveAt
	body, writer := io.Pipe()
	sent := make(chan answer, 1)
	go func() { sent <- r.send("PUT", r.path("/files/raw", "path=slow"), body) }()
	check(t, func() error { _, err := writer.Write([]byte("begin ")); return err }())
	// The first touch may be that of the request's beginning; the second one is that of its being open.
	for range 2 {
		was := before
		testenv.Eventually(t, "the open upload is activity", func() bool {
			before = must(r.store.Sandbox(context.Background(), "default", r.box))(t).LastActiveAt
			return before.After(was)
		})
	}
	check(t, func() error { _, err := writer.Write([]byte("end")); return err }())
	check(t, writer.Close())
	(<-sent).want(t, 200)
	if got := r.call("GET", r.path("/files/raw", "path=slow"), nil).want(t, 200); got.raw != "begin end" {
		t.Errorf("it holds %q", got.raw)
	}
}
