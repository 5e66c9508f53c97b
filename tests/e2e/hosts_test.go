package e2e_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"sandyard/dev/testenv"

	"golang.org/x/sys/unix"
)

// TestTheAPIAndTheWorkerAreOnDifferentHosts runs them in two network namespaces with one cable between them, which is
// cut and mended. The servers are reached over the file system, so only what API and worker say to each other crosses.
func TestTheAPIAndTheWorkerAreOnDifferentHosts(t *testing.T) {
	testenv.Long(t, "it takes many seconds")
	t.Parallel()
	a, b := joinedHosts(t)
	r := prepare(t, "LISTEN_ADDR", a.addr+":8080", "EDGE_ADDR", a.addr+":8090", "EDGE_DOMAIN", "yard.test:8090",
		"GATEWAY_ADDR", b.addr+":8082", "GATEWAY_URL", "http://"+b.addr+":8082")
	r.hosts = map[string]*host{"api": a, "worker": b, "scheduler": b}
	r.http.Transport = &http.Transport{DisableKeepAlives: true, DialContext: a.dial}
	r.startAll()
	box := r.created(object{}).ID
	r.fileCrosses(box)
	page := r.serveInside(box)
	stream := page.open("/stream")
	b.cable("down")
	if _, err := io.Copy(io.Discard, stream); err == nil || errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a stream whose cable was cut ended with %v", err)
	}
	if status, reason := page.get("/"); status < 500 || reason != "gateway_unreachable" {
		t.Errorf("over the cut cable a page answers %d, reason %q", status, reason)
	}
	r.call("GET", "/v1/sandboxes/"+box+"/files/raw?path=large", nil).want(t, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout)
	r.exec(box, "true").succeeded(t) // a job does not go this way
	b.cable("up")
	testenv.Eventually(t, "the page is back", func() bool {
		status, _ := page.get("/")
		return status == http.StatusOK
	})
	r.clean()
}

// fileCrosses sends a file into the sandbox and gets it back.
func (r *rig) fileCrosses(box string) {
	r.t.Helper()
	data := bytes.Repeat([]byte(rand.Text()), 200_000)
	at := r.url() + "/v1/sandboxes/" + box + "/files/raw?path=large"
	up := r.transfer(http.MethodPut, at, bytes.NewReader(data), int64(len(data))) //nolint:bodyclose // closed at the end of the test
	down := r.transfer(http.MethodGet, at, nil, 0)                                //nolint:bodyclose // closed at the end of the test
	got, err := io.ReadAll(down.Body)
	if up.StatusCode != http.StatusOK || err != nil || !bytes.Equal(got, data) {
		r.t.Fatalf("of %d bytes sent (%s), %d came back: %v", len(data), up.Status, len(got), err)
	}
}

// page is a server inside a sandbox, as the edge shows it.
type page struct {
	t    *testing.T
	url  *url.URL
	http *http.Client
}

const pageProgram = `
import http.server, time
class H(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200); self.end_headers()
        while self.path == "/stream":
            self.wfile.write(b"more\n"); time.sleep(0.05)
        self.wfile.write(b"hello")
http.server.ThreadingHTTPServer(("127.0.0.1", 8000), H).serve_forever()
`

// serveInside starts a server in the sandbox and waits until it answers at the URL of its port.
func (r *rig) serveInside(box string) page {
	r.t.Helper()
	r.file(box, "write", object{"path": "page.py", "content": pageProgram}).succeeded(r.t)
	r.exec(box, "python3 page.py", object{"background": true}).succeeded(r.t)
	var opened struct {
		Job struct{ Result struct{ URL string } }
	}
	decode(r.t, r.call("POST", "/v1/sandboxes/"+box+"/ports?wait=60s", object{"port": 8000}).want(r.t, 200).raw, &opened)
	at, err := url.Parse(opened.Job.Result.URL)
	if err != nil || at.Host == "" {
		r.t.Fatalf("no URL: %+v %v", opened, err)
	}
	edge := r.settings["EDGE_ADDR"]
	p := page{t: r.t.(*testing.T), url: at, http: &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
			return r.hosts["api"].dial(ctx, network, edge)
		},
	}}}
	testenv.Eventually(r.t, "the page answers", func() bool {
		status, _ := p.get("/")
		return status == http.StatusOK
	})
	return p
}

func (p page) do(path string) *http.Response {
	p.t.Helper()
	at := *p.url
	at.Path = path
	ctx, cancel := context.WithTimeout(p.t.Context(), time.Minute)
	p.t.Cleanup(cancel)
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, at.String(), nil)
	if err != nil {
		p.t.Fatal(err)
	}
	res, err := p.http.Do(req)
	if err != nil {
		p.t.Fatalf("get %s: %v", path, err)
	}
	p.t.Cleanup(func() { res.Body.Close() })
	return res
}

func (p page) get(path string) (status int, reason string) {
	p.t.Helper()
	res := p.do(path) //nolint:bodyclose // closed at the end of the test
	return res.StatusCode, res.Header.Get("Sandyard-Reason")
}

// open returns an answer of which a part has come.
func (p page) open(path string) io.Reader {
	p.t.Helper()
	res := p.do(path) //nolint:bodyclose // closed at the end of the test
	if _, err := io.ReadFull(res.Body, make([]byte, 20)); err != nil {
		p.t.Fatalf("read %s: %v", path, err)
	}
	return res.Body
}

// host is a network namespace.
type host struct {
	t    *testing.T
	addr string
	link string // its end of the cable
	pid  int    // of a process that keeps it
}

// joinedHosts makes two hosts with one cable between them, and no way to anywhere else.
func joinedHosts(t *testing.T) (a, b *host) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("skipped: only root can make network namespaces")
	}
	a, b = newHost(t, "10.77.0.1", "toworker"), newHost(t, "10.77.0.2", "toapi")
	a.ip("link", "add", a.link, "type", "veth", "peer", "name", b.link, "netns", fmt.Sprint(b.pid))
	for _, h := range []*host{a, b} {
		h.ip("addr", "add", h.addr+"/24", "dev", h.link)
		h.ip("link", "set", "lo", "up")
		h.cable("up")
	}
	return a, b
}

// newHost makes a namespace that lasts as long as the test.
func newHost(t *testing.T, addr, link string) *host {
	t.Helper()
	keeper := exec.Command("cat")
	keeper.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNET}
	open, err := keeper.StdinPipe() // it ends with this process, however that ends
	if err == nil {
		err = keeper.Start()
	}
	if err != nil {
		t.Fatalf("make a network namespace: %v", err)
	}
	t.Cleanup(func() {
		open.Close()
		_ = keeper.Wait()
	})
	return &host{t: t, addr: addr, link: link, pid: keeper.Process.Pid}
}

func (h *host) namespace() string { return fmt.Sprintf("/proc/%d/ns/net", h.pid) }

// command runs a program on the host.
func (h *host) command(name string, args ...string) *exec.Cmd {
	return exec.Command("nsenter", append([]string{"--net=" + h.namespace(), "--", name}, args...)...)
}

func (h *host) ip(args ...string) {
	h.t.Helper()
	if out, err := h.command("ip", args...).CombinedOutput(); err != nil {
		h.t.Fatalf("ip %s: %v: %s", strings.Join(args, " "), err, out)
	}
}

// cable turns the host's end of the cable up or down. What is sent over a cable with an end down is lost.
func (h *host) cable(state string) {
	h.t.Helper()
	h.ip("link", "set", h.link, state)
}

// dial connects from the host. A socket stays in the namespace in which it was made.
func (h *host) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	runtime.LockOSThread()
	home, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		return nil, err
	}
	defer home.Close()
	there, err := os.Open(h.namespace())
	if err != nil {
		return nil, err
	}
	defer there.Close()
	if err := unix.Setns(int(there.Fd()), unix.CLONE_NEWNET); err != nil {
		return nil, err
	}
	conn, err := new(net.Dialer).DialContext(ctx, network, addr)
	if back := unix.Setns(int(home.Fd()), unix.CLONE_NEWNET); back != nil {
		panic(back) // the thread cannot be let go: children die with it
	}
	runtime.UnlockOSThread()
	return conn, err
}
