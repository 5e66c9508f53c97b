package web_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"sandyard/dev/testenv"
	"sandyard/gateway"
	"sandyard/models"
	"sandyard/providers"
	"sandyard/providers/fake"
	"sandyard/web"
)

// talking gives the fake provider's sandboxes terminals that are open and say nothing.
type talking struct{ *fake.Provider }

type talkingBox struct{ closedBox }

func (p talking) Open(ctx context.Context, id string) (providers.Sandbox, error) {
	box, err := p.Provider.Open(ctx, id)
	return talkingBox{closedBox{Sandbox: box}}, err
}

// Exec implements providers.Background.
func (talkingBox) Exec(_ context.Context, name string, _ time.Duration) (providers.Exec, error) {
	return providers.Exec{ID: name, Running: true, Terminal: true, Pid: 7}, nil
}

// Tail implements providers.Terminals.
func (talkingBox) Tail(ctx context.Context, _ string, _ int64) (providers.Tail, error) {
	r, w := io.Pipe()
	context.AfterFunc(ctx, func() { _ = w.CloseWithError(ctx.Err()) })
	return providers.Tail{ReadCloser: struct {
		io.Reader
		io.Closer
	}{r, w}}, nil
}

func talkingRig(t *testing.T, set func(*gateway.Config), change ...func(*web.Config)) *insideRig {
	t.Helper()
	return newInsideRigBy(t, func(p *fake.Provider) providers.Provider { return talking{p} }, set, change...)
}

// terminal opens a terminal at an API, and reads no further than its answer.
func (r *insideRig) terminal(url, key string) (net.Conn, *bufio.Reader) {
	r.t.Helper()
	conn := must(net.Dial("tcp", strings.TrimPrefix(url, "http://")))(r.t)
	r.t.Cleanup(func() { _ = conn.Close() })
	check(r.t, conn.SetDeadline(time.Now().Add(time.Minute)))
	_, err := fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"+
		"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n", r.path("/terminal", "name=main"), key)
	check(r.t, err)
	in := bufio.NewReader(conn)
	res, err := http.ReadResponse(in, nil)
	check(r.t, err)
	defer res.Body.Close() // of which there is nothing: the connection goes on
	if res.StatusCode != http.StatusSwitchingProtocols {
		r.t.Fatalf("the terminal's handshake was answered %s", res.Status)
	}
	return conn, in
}

// isCut reads what is left of a connection to its end.
func isCut(t *testing.T, conn net.Conn) {
	t.Helper()
	if _, err := io.Copy(io.Discard, conn); err != nil && strings.Contains(err.Error(), "timeout") {
		t.Errorf("the connection was not ended: %v", err)
	}
}

func TestRevokedKeyEndsItsStreams(t *testing.T) {
	t.Parallel()
	r := talkingRig(t, func(*gateway.Config) {})
	ctx := context.Background()
	key := must(r.store.CreateKey(ctx, "default", "short-lived", []string{models.ScopeSandboxes}))(t)
	first, _ := r.terminal(r.url, key)
	other, _ := r.terminal(r.url, r.key)
	body, writer := io.Pipe()
	sent := make(chan error, 1)
	go func() {
		req, err := http.NewRequest("PUT", r.url+r.path("/files/raw", "path=f"), body)
		if err == nil {
			req.Header.Set("Authorization", "Bearer "+key)
			var res *http.Response
			if res, err = r.client.Do(req); err == nil {
				err = fmt.Errorf("answered %s", res.Status)
				res.Body.Close()
			}
		}
		sent <- err
	}()
	check(t, func() error { _, err := writer.Write([]byte("begin")); return err }())
	testenv.Eventually(t, "all three are on their way", func() bool { return r.open.Load() == 3 })
	check(t, r.store.RevokeKey(ctx, "default", key)) // as another process does it: this one is not told
	isCut(t, first)
	testenv.Eventually(t, "only the other key's terminal is open", func() bool { return r.open.Load() == 1 })
	check(t, writer.CloseWithError(io.ErrUnexpectedEOF)) // Go's client waits for the body, whatever became of the connection
	if err := <-sent; err == nil || strings.Contains(err.Error(), "answered 200") {
		t.Errorf("the upload ended as %v", err)
	}
	check(t, other.SetReadDeadline(time.Now().Add(10*time.Millisecond)))
	if _, err := io.Copy(io.Discard, other); err == nil || !strings.Contains(err.Error(), "timeout") {
		t.Errorf("the other key's terminal: %v", err)
	}
	if err := r.store.RevokeKey(ctx, "default", "sy_unknown"); err == nil {
		t.Error("a key that there is not was revoked")
	}
}

// TestSilentTerminalIsCutOff has a client that is gone without a word: it neither reads nor answers, and no end of its
// connection comes.
func TestSilentTerminalIsCutOff(t *testing.T) {
	t.Parallel()
	r := talkingRig(t, func(c *gateway.Config) { c.TerminalPing, c.TerminalSilence = 20*time.Millisecond, 300*time.Millisecond })
	conn, _ := r.terminal(r.url, r.key)
	testenv.Eventually(t, "the silent client's connection is given up", func() bool { return r.open.Load() == 0 })
	isCut(t, conn)
}

// TestQuietTerminalStays is the other side of it: who only answers to pings stays.
func TestQuietTerminalStays(t *testing.T) {
	t.Parallel()
	const pings = 40
	r := talkingRig(t, func(c *gateway.Config) { c.TerminalPing, c.TerminalSilence = 20*time.Millisecond, 20*time.Second })
	conn, in := r.terminal(r.url, r.key)
	for seen := 0; seen < pings; {
		head := [2]byte{}
		check(t, func() error { _, err := io.ReadFull(in, head[:]); return err }())
		payload := make([]byte, head[1]&0x7f) // short ones have no longer length
		check(t, func() error { _, err := io.ReadFull(in, payload); return err }())
		if head[0]&0xf != 9 {
			continue
		}
		seen++
		pong := append([]byte{0x8a, 0x80 | head[1], 0, 0, 0, 0}, payload...) // masked with nothing
		check(t, func() error { _, err := conn.Write(pong); return err }())
	}
	if r.open.Load() != 1 {
		t.Error("a client that answers was cut off")
	}
}

func TestQuestionsWakeThePausedSandbox(t *testing.T) {
	t.Parallel()
	r := newInsideRig(t)
	r.box = r.call("POST", "/v1/sandboxes?wait=60s", object{"auto_resume": true}).want(t, 200).text("sandbox.id")
	id := r.call("POST", r.path("/exec", "wait=60s"), object{"command": "fake:stdout hello; fake:input", "background": true, "stdin_open": true}).want(t, 200).text("job.id")
	for _, route := range []string{"/execs", "/execs/" + id, "/execs/" + id + "/output"} {
		r.call("POST", r.path("/pause", "wait=60s"), nil).want(t, 200)
		if a := r.call("GET", r.path(route, ""), nil).want(t, 200); !strings.Contains(a.raw, id) {
			t.Errorf("%s says %s", route, a.raw)
		}
		if a := r.call("GET", "/v1/sandboxes/"+r.box, nil).want(t, 200); a.text("state") != string(models.SandboxRunning) {
			t.Errorf("after %s the sandbox is %s", route, a.raw)
		}
	}
	r.call("DELETE", r.path("/execs/"+id, "wait=60s"), nil).want(t, 200)
	r.box = r.running()
	r.call("POST", r.path("/pause", "wait=60s"), nil).want(t, 200)
	r.call("GET", r.path("/execs", ""), nil).problem(t, 409, "sandbox_paused")
	r.call("GET", r.path("/code/contexts", ""), nil).problem(t, 409, "sandbox_paused")
	if a := r.call("GET", "/v1/sandboxes/"+r.box, nil).want(t, 200); a.text("state") != string(models.SandboxPaused) {
		t.Errorf("a question has woken what is to stay paused: %s", a.raw)
	}
}
