package e2e_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"sandyard/dev/testenv"

	"github.com/coder/websocket"
)

// wakingProgram answers each request with how many there were, which only its memory knows, and echoes the messages of a
// WebSocket with that before them.
const wakingProgram = `
import base64, hashlib, http.server, os
asked = 0
class H(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_GET(self):
        global asked
        asked += 1
        if self.headers.get("Upgrade", "").lower() == "websocket":
            return self.socket()
        self.answer(str(asked).encode())
    def do_POST(self):
        self.answer(self.rfile.read(int(self.headers["Content-Length"]))[::-1])
    def answer(self, body):
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def socket(self):
        key = self.headers["Sec-WebSocket-Key"] + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
        self.send_response(101)
        for name, value in (("Upgrade", "websocket"), ("Connection", "Upgrade"), ("Sec-WebSocket-Accept", base64.b64encode(hashlib.sha1(key.encode()).digest()).decode())):
            self.send_header(name, value)
        self.end_headers()
        self.close_connection = True
        while True:
            head = self.rfile.read(2)
            if len(head) < 2 or head[0] & 15 == 8:
                return
            mask = self.rfile.read(4)
            text = bytes(b ^ mask[i % 4] for i, b in enumerate(self.rfile.read(head[1] & 127)))
            said = str(asked).encode() + b" " + text
            self.wfile.write(bytes([0x81, len(said)]) + said)
http.server.ThreadingHTTPServer(("127.0.0.1", 8000), H).serve_forever()
`

// preview is the port 8000 of a sandbox at its URL.
type preview struct {
	t    *testing.T
	url  *url.URL // with the token
	http *http.Client
}

// previewOf starts the program in the sandbox and opens its port.
func (r *rig) previewOf(t *testing.T, box string) preview {
	t.Helper()
	r.file(box, "write", object{"path": "page.py", "content": wakingProgram}).succeeded(t)
	r.exec(box, "python3 page.py", object{"background": true}).succeeded(t)
	var opened struct {
		Job struct{ Result struct{ URL string } }
	}
	decode(t, r.call("POST", "/v1/sandboxes/"+box+"/ports?wait=60s", object{"port": 8000}).want(t, 200).raw, &opened)
	at, err := url.Parse(opened.Job.Result.URL)
	if err != nil || at.Host == "" {
		t.Fatalf("no URL: %+v %v", opened, err)
	}
	var edge struct{ Addr string }
	decode(t, "{"+r.api.Line(&r.api.Stderr, `"msg":"edge listens",`), &edge)
	p := preview{t: t, url: at, http: &http.Client{Timeout: time.Minute, Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, network, edge.Addr)
		},
	}}}
	testenv.Eventually(t, "the page answers", func() bool { return p.get().status == http.StatusOK })
	return p
}

func (p preview) get() answer { return p.send(http.MethodGet, "") }

func (p preview) send(method, body string) answer {
	p.t.Helper()
	req, err := http.NewRequestWithContext(p.t.Context(), method, p.url.String(), strings.NewReader(body))
	if err != nil {
		p.t.Fatal(err)
	}
	res, err := p.http.Do(req)
	if err != nil {
		p.t.Fatalf("%s a preview: %v", method, err)
	}
	defer res.Body.Close()
	raw, err := io.ReadAll(res.Body)
	if err != nil {
		p.t.Fatalf("%s a preview: %v", method, err)
	}
	return answer{method + " a preview", res.StatusCode, res.Header, string(raw)}
}

// asked is what the program says of how often it was asked.
func (p preview) asked() int {
	p.t.Helper()
	n, err := strconv.Atoi(p.get().want(p.t, http.StatusOK).raw)
	if err != nil {
		p.t.Fatal(err)
	}
	return n
}

// socket opens a WebSocket.
func (p preview) socket() (*websocket.Conn, *http.Response, error) {
	ctx, cancel := context.WithTimeout(p.t.Context(), time.Minute)
	defer cancel()
	conn, res, err := websocket.Dial(ctx, p.url.String(), &websocket.DialOptions{HTTPClient: &http.Client{Transport: p.http.Transport}})
	if err == nil {
		p.t.Cleanup(func() { _ = conn.CloseNow() })
	}
	return conn, res, err
}

// TestPreviewsWakeSandboxes comes to the ports of paused sandboxes from outside, by HTTP and WebSocket: where traffic may
// resume them, they go on with the memory that they had, and where it may not, the answer says so.
func TestPreviewsWakeSandboxes(t *testing.T) {
	testenv.Long(t, "it takes many seconds")
	t.Parallel()
	r := newRig(t, "EDGE_DOMAIN", "yard.test")
	wakes, sleeps := r.created(object{"auto_resume": true}).ID, r.created(object{}).ID
	pause := func(box string) {
		t.Helper()
		r.end(r.submit("/v1/sandboxes/"+box+"/pause", object{}).Job).succeeded(t)
	}
	page, deaf := r.previewOf(t, wakes), r.previewOf(t, sleeps)
	before := page.asked()

	pause(wakes)
	if after := page.asked(); after != before+1 {
		t.Errorf("it had been asked %d times, and now says %d", before, after)
	}
	pause(wakes)
	if got := page.send(http.MethodPost, "not lost").want(t, 200).raw; got != "tsol ton" {
		t.Errorf("what was sent to wake it came as %q", got)
	}
	pause(wakes)
	conn, _, err := page.socket() //nolint:bodyclose // the library does
	if err != nil {
		t.Fatalf("a WebSocket to a paused sandbox: %v", err)
	}
	if said, want := echo(t, conn, "hello"), strconv.Itoa(before+2)+" hello"; said != want {
		t.Errorf("the WebSocket said %q, want %q", said, want)
	}
	r.resumes(t, wakes, 3)

	pause(sleeps)
	for name, res := range map[string]answer{"get": deaf.get(), "post": deaf.send(http.MethodPost, "x")} {
		if res.status != http.StatusBadGateway || res.header.Get("Sandyard-Reason") != "sandbox_paused" || !strings.Contains(res.raw, "resume it first") {
			t.Errorf("%s: %d %s", name, res.status, res.raw)
		}
	}
	_, res, err := deaf.socket() //nolint:bodyclose // the library does
	if err == nil || res == nil || res.StatusCode != http.StatusBadGateway || res.Header.Get("Sandyard-Reason") != "sandbox_paused" {
		t.Errorf("a WebSocket to one that stays paused: %v %+v", err, res)
	}
	r.resumes(t, sleeps, 0)
	r.end(r.submit("/v1/sandboxes/"+sleeps+"/resume", object{}).Job).succeeded(t)
	testenv.Eventually(t, "it answers again", func() bool { return deaf.get().status == http.StatusOK })
	r.clean()
}

// resumes looks how many there were, by whoever asked.
func (r *rig) resumes(t *testing.T, box string, want int) {
	t.Helper()
	var list struct{ Jobs []job }
	decode(t, r.call("GET", "/v1/jobs?kind=resume&sandbox_id="+box, nil).want(t, 200).raw, &list)
	if len(list.Jobs) != want {
		t.Errorf("there were %d resumes, want %d: %v", len(list.Jobs), want, list.Jobs)
	}
}

// echo sends a message and returns what comes back.
func echo(t *testing.T, conn *websocket.Conn, text string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := conn.Write(ctx, websocket.MessageText, []byte(text)); err != nil {
		t.Fatal(err)
	}
	_, got, err := conn.Read(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return string(got)
}
