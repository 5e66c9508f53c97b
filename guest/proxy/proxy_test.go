package proxy_test

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"sandyard/dev/testenv"
	"sandyard/guest/proxy"
	"sandyard/guest/tunnel"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m, testenv.Lasting()...) }

// falls notes what net/http logs of a handler that fell.
type falls struct {
	slog.Handler

	text atomic.Pointer[string]
}

func (f *falls) Enabled(context.Context, slog.Level) bool { return true }

func (f *falls) Handle(_ context.Context, r slog.Record) error {
	if strings.Contains(r.Message, "panic") {
		f.text.Store(&r.Message)
	}
	return nil
}

// worker answers those who ask for connections: every other destination is refused, and of the others comes back what was
// said to them.
type worker struct{ asked atomic.Pointer[string] }

func (w *worker) dial(_ context.Context, target string) (*tunnel.Conn, error) {
	w.asked.Store(&target)
	if len(target)%2 == 0 {
		return nil, &tunnel.RefusedError{Answer: tunnel.Answer(1 + len(target)%5), Message: "no way to\r\n" + target}
	}
	ours, theirs := net.Pipe()
	go func() { // ends with the connection
		if _, err := tunnel.Target(theirs); err != nil {
			_ = theirs.Close()
			return
		}
		conn, err := tunnel.Accept(theirs)
		if err != nil {
			return
		}
		said, _ := io.ReadAll(conn)
		_, _ = conn.Write(said)
		_ = conn.CloseWrite()
		_ = conn.Close()
	}()
	return tunnel.Ask(ours, target)
}

// FuzzProgram says to the proxy what a program in the sandbox may say: it answers in the program's language, or not at all,
// comes to an end, and asks for no destination that is longer than what was said.
func FuzzProgram(f *testing.F) {
	for _, said := range []string{
		"", "\x05", "\x05\x01\x00", "\x05\x01\x00\x05\x01\x00\x03\x07example\x01\xbb", "\x05\x01\x00\x05\x01\x00\x03\x08example1\x01\xbbhello",
		"\x05\x01\x00\x05\x01\x00\x01\x7f\x00\x00\x01\x00\x50", "\x05\x02\x01\x02", "\x05\xff\x00", "\x05\x01\x00\x05\x02\x00\x01\x01\x02\x03\x04\x00\x50",
		"\x05\x01\x00\x04\x01\x00\x04\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x01\x00\x50", "\x05\x01\x00\x05\x01\x00\x09", "\x04\x01\x00\x50",
		"CONNECT example:443 HTTP/1.1\r\nHost: example:443\r\n\r\nhello", "CONNECT one.example:443 HTTP/1.1\r\n\r\n", "CONNECT * HTTP/1.1\r\nHost: \r\n\r\n",
		"GET http://example/ HTTP/1.1\r\nHost: example\r\n\r\n", "GET http://one.example/ HTTP/1.1\r\nHost: two\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n",
		"GET / HTTP/1.1\r\nHost: x\r\n\r\nGET https://x/ HTTP/1.1\r\nHost: x\r\n\r\n", "POST http://a:0/ HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
		"GET http://[::1%25x]:99999/ HTTP/1.0\r\n\r\n", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "\x16\x03\x01\x00\xa5",
	} {
		f.Add([]byte(said))
	}
	log, w := &falls{}, &worker{}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		f.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- proxy.New(w.dial, slog.New(log)).Serve(l) }()
	f.Cleanup(func() {
		_ = l.Close()
		if err := <-served; err != nil {
			f.Error(err)
		}
	})
	f.Fuzz(func(t *testing.T, said []byte) {
		w.asked.Store(nil)
		checkAnswer(t, said, speak(t, l.Addr().String(), said))
		if target := w.asked.Load(); target != nil && len(*target) > len(said)+len("[]:65535")+32 {
			t.Errorf("asked for %d bytes: %q", len(*target), *target)
		}
		if fallen := log.text.Load(); fallen != nil {
			t.Error(*fallen)
		}
	})
}

// speak says all of it and reads until the end.
func speak(t *testing.T, address string, said []byte) []byte {
	t.Helper()
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(30 * time.Second))
	_, _ = conn.Write(said) // the proxy may have had enough
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.CloseWrite()
	}
	answer, err := io.ReadAll(io.LimitReader(conn, 10<<20))
	if timeout, ok := err.(net.Error); ok && timeout.Timeout() { //nolint:errorlint // of a connection it is bare
		t.Errorf("no end after %q: %q", said, answer)
	}
	return answer
}

func checkAnswer(t *testing.T, said, answer []byte) {
	t.Helper()
	switch {
	case len(answer) == 0:
	case len(said) == 0:
		t.Errorf("an answer to nothing: %q", answer)
	case said[0] == 5:
		if answer[0] != 5 || len(answer) > 2 && len(answer) < 12 {
			t.Errorf("SOCKS is answered by %x", answer)
		}
	default:
		reply, err := http.ReadResponse(bufio.NewReader(bytes.NewReader(answer)), nil)
		if err != nil {
			t.Errorf("%q is answered by %q: %v", said, answer, err)
			return
		}
		_ = reply.Body.Close()
	}
}
