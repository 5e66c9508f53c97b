package e2e_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"sandyard/dev/testenv"

	"github.com/coder/websocket"
)

// TestTerminal types into terminals through all processes, while they are killed and while nobody reads.
func TestTerminal(t *testing.T) {
	t.Parallel()
	t.Run("docker", func(t *testing.T) {
		t.Parallel()
		r := newRig(t)
		r.terminals(t)
		r.terminalsEnd(t)
	})
	t.Run("local", func(t *testing.T) {
		t.Parallel()
		newRig(t, "SANDBOX_PROVIDER", "local", "LOCAL_DIR", localDir(t)).terminals(t)
	})
}

// localDir is a data directory of the local provider that holds the default image.
func localDir(t *testing.T) string {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("skipped: the local provider needs root here")
	}
	dir := t.TempDir()
	images, err := filepath.Abs("../../.sandyard/local/images")
	check(t, err)
	check(t, os.Symlink(images, filepath.Join(dir, "images")))
	if _, err := os.Stat(filepath.Join(images, url.QueryEscape(image))); err != nil {
		t.Fatalf("no image; run make tree first: %v", err)
	}
	return dir
}

// terminals uses those of one sandbox.
func (r *rig) terminals(t *testing.T) {
	t.Helper()
	box := r.created(object{}).ID
	s := r.terminal(box, url.Values{"name": {"main"}, "cols": {"100"}, "rows": {"30"}, "command": {"kept=this PS1='> ' exec bash --norc"}})
	if s.ready.Joined || s.ready.Offset != 0 || s.ready.ExecID != "term_main" || s.ready.Terminal != "main" || s.ready.Pid == 0 {
		t.Errorf("ready: %+v", s.ready)
	}
	s.until("> ")
	s.typeIn("stty size\r")
	s.until("30 100\r\n> ")
	s.say(`{"type":"resize","cols":120,"rows":40}`)
	s.typeIn("stty size\r")
	s.until("40 120\r\n> ")
	s.typeIn("printf '%s|' 'h\xc3") // a letter in two messages
	s.typeIn("\xa9llo \xe2\x86")
	s.typeIn("\x92'\r")
	s.until("héllo →|> ")
	s.typeIn("echo be''gun; cat\r")
	s.until("begun\r\n")
	s.typeIn("line\r")
	s.until("line\r\nline\r\n")
	s.typeIn("\x03")
	s.until("> ")
	s.typeIn("echo \"co\"de $?\r")
	s.until("code 130\r\n> ")
	for _, text := range []string{"nonsense", `{"type":"dance"}`, `{"type":"resize","cols":0,"rows":5}`, `{"type":"resize","cols":5,"rows":5000}`} {
		s.say(text)
		if m := s.message("error"); m.Code != "invalid_argument" || m.Detail == "" {
			t.Errorf("to %s it says %+v", text, m)
		}
	}
	s = r.comesBack(t, box, s)
	idle := r.keepsAwake(t)
	r.slowReader(t, box)
	r.pastes(t, box)
	idle()
	s.typeIn("exit 7\r")
	if m := s.message("exit"); m.ExitCode == nil || *m.ExitCode != 7 {
		t.Errorf("the end: %+v", m)
	}
	s.closed(websocket.StatusNormalClosure)
	rest := r.terminal(box, url.Values{"name": {"main"}, "offset": {fmt.Sprint(s.at - 8)}})
	rest.until("exit\r\n") // what bash says
	rest.closed(websocket.StatusNormalClosure)
	fresh := r.terminal(box, url.Values{"name": {"main"}})
	if fresh.ready.Joined || fresh.ready.Pid == s.ready.Pid {
		t.Errorf("after its end the name opens %+v", fresh.ready)
	}
	r.remove(box)
	fresh.closed(4404)
}

// comesBack loses the connection, and then the worker.
func (r *rig) comesBack(t *testing.T, box string, s *screen) *screen {
	t.Helper()
	s.typeIn("echo re\"play\"\r")
	s.until("replay\r\n> ")
	_ = s.conn.CloseNow()
	again := r.terminal(box, url.Values{"name": {"main"}})
	if !again.ready.Joined || again.ready.Pid != s.ready.Pid || again.ready.Offset != 0 {
		t.Errorf("joined: %+v", again.ready)
	}
	again.until("replay\r\n> ")
	part := r.terminal(box, url.Values{"name": {"main"}, "offset": {fmt.Sprint(s.at - 10)}})
	if got := part.until("> "); got != "replay\r\n> " || part.ready.Offset != s.at-10 {
		t.Errorf("from byte %d on it shows %q, %+v", s.at-10, got, part.ready)
	}
	_ = part.conn.CloseNow()

	r.worker.Kill()
	if code := again.end(); code != -1 { // nobody was left to say why
		t.Errorf("with the worker the connection ended with code %d", code)
	}
	r.startWorker()
	var next *screen
	testenv.Eventually(t, "the terminal is there again", func() bool {
		var err error
		next, _, err = r.dial(box, url.Values{"name": {"main"}, "offset": {fmt.Sprint(again.at)}})
		return err == nil
	})
	if next.ready.Pid != s.ready.Pid || next.ready.Offset != again.at {
		t.Errorf("through the next worker: %+v", next.ready)
	}
	next.typeIn("echo still $kept\r")
	next.until("still this\r\n> ")
	return next
}

// keepsAwake opens a terminal of a sandbox that nothing else uses. The function it returns sees that this is what keeps
// the sandbox.
func (r *rig) keepsAwake(t *testing.T) func() {
	t.Helper()
	const idle = 6 * time.Second
	box := r.created(object{"idle_timeout_seconds": idle.Seconds()})
	s := r.terminal(box.ID, nil)
	return func() {
		testenv.Eventually(t, "the sandbox was used for longer than it may be idle", func() bool {
			b := r.sandbox(box.ID)
			if b.State != "running" {
				t.Fatalf("with a terminal open: %+v", b)
			}
			return b.LastActiveAt.Sub(box.LastActiveAt) > idle*3/2
		})
		_ = s.conn.CloseNow()
		testenv.Eventually(t, "without it the sandbox is idle", func() bool { return r.sandbox(box.ID).State == "deleted" })
		if b := r.sandbox(box.ID); b.EndReason != "idle" {
			t.Errorf("it ended as %+v", b)
		}
	}
}

// slowReader reads late. The command waits for it, and it gets every byte.
func (r *rig) slowReader(t *testing.T, box string) {
	t.Helper()
	const size = 32 << 20
	s := r.terminal(box, url.Values{"name": {"slow"}, "command": {fmt.Sprintf("stty -echo -onlcr; read go; head -c %d /dev/zero | tr '\\0' x; printf THE-END", size)}})
	s.typeIn("\r")
	var before int64 = -1
	testenv.Eventually(t, "the command waits", func() bool {
		var e struct {
			Running     bool
			StdoutBytes int64 `json:"stdout_bytes"`
		}
		decode(t, r.call("GET", "/v1/sandboxes/"+box+"/execs/term_slow?wait=1s", nil).want(t, 200).raw, &e)
		if !e.Running || e.StdoutBytes > 4<<20 {
			t.Fatalf("nobody reads, and it stands so: %+v", e)
		}
		waits := e.StdoutBytes == before && e.StdoutBytes > 0
		before = e.StdoutBytes
		return waits
	})
	got := s.until("THE-END")
	if n := strings.Count(got, "x"); n != size {
		t.Errorf("%d bytes came, not %d", n, size)
	}
	s.closed(websocket.StatusNormalClosure)
	t.Logf("%d KiB were written while nobody read; the API's peak is %d KiB, the worker's %d KiB", before>>10, peak(t, r.api)>>10, peak(t, r.worker)>>10)
	if used := max(peak(t, r.api)>>10, peak(t, r.worker)>>10); used > 100<<10 {
		t.Errorf("for a client that does not read a process took %d KiB", used)
	}
}

// pastes sends much more at once than fits anywhere on the way, while all of it comes back.
func (r *rig) pastes(t *testing.T, box string) {
	t.Helper()
	const line, lines = "0123456789abcdef0123456789abcdef", 16 << 10
	s := r.terminal(box, url.Values{"name": {"paste"}, "command": {fmt.Sprintf("stty -echo; echo rea''dy; head -n %d; echo THE-END", lines)}})
	s.until("ready\r\n")
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	sent := make(chan error, 1)
	go func() {
		var err error
		for n := 0; n < lines && err == nil; n += lines / 16 { // of 32 KiB each
			err = s.conn.Write(ctx, websocket.MessageBinary, []byte(strings.Repeat(line+"\r", lines/16)))
		}
		sent <- err
	}()
	if n := strings.Count(s.until("THE-END"), line+"\r\n"); n != lines {
		t.Errorf("%d lines came back, not %d", n, lines)
	}
	check(t, <-sent)
	s.closed(websocket.StatusNormalClosure)
}

// terminalsEnd checks how open terminals end with their sandbox, and who is let in.
func (r *rig) terminalsEnd(t *testing.T) {
	t.Helper()
	box := r.created(object{}).ID
	s := r.terminal(box, nil)
	path := "/v1/sandboxes/" + box
	if a := r.call("GET", path+"/execs", nil).want(t, 200); !strings.Contains(a.raw, `"term_`+s.ready.Terminal+`"`) || !strings.Contains(a.raw, `"terminal":true`) {
		t.Errorf("the list: %s", a.raw)
	}
	r.call("DELETE", path+"/execs/"+s.ready.ExecID+"?wait=60s", nil).want(t, 200)
	if code := s.end(); code != websocket.StatusNormalClosure && code != 4410 {
		t.Errorf("deleted, it ended with code %d", code)
	}

	s = r.terminal(box, nil)
	r.end(r.submit(path+"/pause", object{}).Job).succeeded(t)
	s.closed(4409)
	_, res, err := r.dial(box, nil)
	if err == nil || res.status != http.StatusConflict || res.header.Get("Content-Type") != "application/problem+json" {
		t.Errorf("to a paused sandbox: %v, %+v", err, res)
	}
	r.remove(box)
	_, res, err = r.dial(box, nil)
	if err == nil || res.status != http.StatusGone {
		t.Errorf("to a deleted sandbox: %v, %+v", err, res)
	}

	box = r.created(object{"auto_resume": true}).ID
	path = "/v1/sandboxes/" + box
	var ticket struct{ Ticket, Name, Path string }
	decode(t, r.call("POST", path+"/terminal/tickets", object{"name": "mine", "origin": "https://App.example"}).want(t, 201).raw, &ticket)
	r.end(r.submit(path+"/pause", object{}).Job).succeeded(t)
	browser := &rig{caller: &caller{t: t, url: r.url, http: r.http}}
	s, res, err = browser.dial(box, nil, "Origin", "https://app.example", "Sec-WebSocket-Protocol", "sandyard.terminal, sandyard.ticket."+ticket.Ticket)
	if err != nil || s.ready.Terminal != "mine" || res.header.Get("Sec-WebSocket-Protocol") != "sandyard.terminal" {
		t.Fatalf("with a ticket: %v, %+v", err, res)
	}
	s.typeIn("echo to\"kens\": $TERM $((6*7))\r")
	s.until("tokens: xterm-256color 42\r\n")
	if raw := r.call("GET", path+"/files/raw?path=.", nil); raw.status != 409 { // awake: it is the file that is none
		t.Errorf("raw: %d %s", raw.status, raw.raw)
	}
	r.worker.Stop()
	s.closed(websocket.StatusGoingAway)
	r.startWorker()
	r.clean()
}

// screen is a connection to a terminal, and what it has shown.
type screen struct {
	t     testing.TB
	conn  *websocket.Conn
	ready terminalMessage
	at    int64 // offset behind what has come
	seen  []byte
	said  []terminalMessage
}

// refusal is what the handshake was answered with, also where it was not refused.
type refusal struct {
	status int
	header http.Header
}

type terminalMessage struct {
	Type, Terminal, Signal, Code, Detail string
	ExecID                               string `json:"exec_id"`
	Pid                                  int
	Joined                               bool
	Offset                               int64
	ExitCode                             *int `json:"exit_code"`
}

// terminal opens one, or joins it.
func (r *rig) terminal(box string, query url.Values) *screen {
	r.t.Helper()
	s, res, err := r.dial(box, query)
	if err != nil {
		r.t.Fatalf("open a terminal: %v, %+v", err, res)
	}
	return s
}

// dial tries to, with headers as name, value, …
func (r *rig) dial(box string, query url.Values, headers ...string) (*screen, refusal, error) {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), time.Minute)
	defer cancel()
	header := http.Header{}
	if r.key != "" {
		header.Set("Authorization", "Bearer "+r.key)
	}
	for i := 0; i+1 < len(headers); i += 2 {
		header.Set(headers[i], headers[i+1])
	}
	options := &websocket.DialOptions{HTTPClient: &http.Client{Transport: r.http.Transport}, HTTPHeader: header}
	if protocols := header.Get("Sec-WebSocket-Protocol"); protocols != "" {
		header.Del("Sec-WebSocket-Protocol")
		options.Subprotocols = strings.Split(protocols, ", ")
	}
	conn, res, err := websocket.Dial(ctx, r.url()+"/v1/sandboxes/"+box+"/terminal?"+query.Encode(), options) //nolint:bodyclose // the library does
	var answer refusal
	if res != nil {
		answer = refusal{res.StatusCode, res.Header}
	}
	if err != nil {
		return nil, answer, err
	}
	conn.SetReadLimit(-1)
	r.t.Cleanup(func() { _ = conn.CloseNow() })
	s := &screen{t: r.t, conn: conn}
	s.ready = s.message("ready")
	s.at = s.ready.Offset
	return s, answer, nil
}

// read takes the next message, or says with what code the connection has ended; -1 = with none.
func (s *screen) read() (open bool, code websocket.StatusCode) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), 2*time.Minute)
	defer cancel()
	kind, b, err := s.conn.Read(ctx)
	if ctx.Err() != nil {
		s.t.Fatalf("the terminal has nothing more to show than %.500q", s.seen[max(0, len(s.seen)-500):])
	}
	if err != nil {
		return false, websocket.CloseStatus(err)
	}
	if kind == websocket.MessageText {
		var m terminalMessage
		check(s.t, json.Unmarshal(b, &m))
		s.said = append(s.said, m)
		return true, 0
	}
	s.seen, s.at = append(s.seen, b...), s.at+int64(len(b))
	return true, 0
}

// until reads until text is shown, and takes what there is up to it.
func (s *screen) until(text string) string {
	s.t.Helper()
	for looked := 0; ; {
		if before, _, ok := strings.Cut(string(s.seen[looked:]), text); ok {
			n := looked + len(before) + len(text)
			got := string(s.seen[:n])
			s.seen = s.seen[n:]
			return got
		}
		looked = max(0, len(s.seen)-len(text))
		if open, code := s.read(); !open {
			s.t.Fatalf("it ended with code %d and no %q in %.500q", code, text, s.seen[max(0, len(s.seen)-500):])
		}
	}
}

// message reads until one of the type has come.
func (s *screen) message(kind string) terminalMessage {
	s.t.Helper()
	for {
		for i, m := range s.said {
			if m.Type == kind {
				s.said = s.said[i+1:]
				return m
			}
		}
		if open, code := s.read(); !open {
			s.t.Fatalf("it ended with code %d and without %s: %+v", code, kind, s.said)
		}
	}
}

// end reads to the end.
func (s *screen) end() websocket.StatusCode {
	s.t.Helper()
	for {
		if open, code := s.read(); !open {
			return code
		}
	}
}

func (s *screen) closed(want websocket.StatusCode) {
	s.t.Helper()
	if code := s.end(); code != want {
		s.t.Errorf("it ended with code %d, want %d; it had said %+v", code, want, s.said)
	}
}

func (s *screen) typeIn(text string) { s.t.Helper(); s.write(websocket.MessageBinary, text) }

func (s *screen) say(text string) { s.t.Helper(); s.write(websocket.MessageText, text) }

func (s *screen) write(kind websocket.MessageType, text string) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), time.Minute)
	defer cancel()
	if err := s.conn.Write(ctx, kind, []byte(text)); err != nil {
		s.t.Fatalf("send %q: %v", text, err)
	}
}
