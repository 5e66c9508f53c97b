package proxy_test

import (
	"bufio"
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"sandyard/guest/proxy"
	"sandyard/guest/tunnel"
)

// TestAServerMayAnswerBeforeAllOfARequestHasCome: a program that still sends what it began to send loses none of it, and
// gets the whole answer.
func TestAServerMayAnswerBeforeAllOfARequestHasCome(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c := http.NewResponseController(w)
		if err := c.EnableFullDuplex(); err != nil {
			t.Error(err)
		}
		w.WriteHeader(http.StatusOK)
		buf := make([]byte, 32<<10)
		for err := c.Flush(); err == nil; err = c.Flush() {
			n, end := r.Body.Read(buf)
			_, _ = w.Write(buf[:n]) // the program sees what arrived
			if end != nil {
				return
			}
		}
	}))
	defer server.Close()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- proxy.New(straight, slog.New(slog.DiscardHandler)).Serve(l) }()
	defer func() {
		_ = l.Close()
		if err := <-served; err != nil {
			t.Error(err)
		}
	}()
	transport := &http.Transport{Proxy: http.ProxyURL(&url.URL{Scheme: "http", Host: l.Addr().String()})}
	defer transport.CloseIdleConnections()
	body, send := io.Pipe()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	context.AfterFunc(ctx, func() { _ = send.CloseWithError(ctx.Err()) }) // RoundTrip waits for it
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, strings.Replace(server.URL, "127.0.0.1", "server.test", 1), body)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := transport.RoundTrip(request) // it comes with nothing sent but the headers
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	echo := bufio.NewReader(answer.Body)
	for _, line := range []string{"one\n", strings.Repeat("two", 100_000) + "\n", "three\n"} {
		if _, err := io.WriteString(send, line); err != nil {
			t.Fatalf("send %.10q: %v", line, err)
		}
		if got, err := echo.ReadString('\n'); err != nil || got != line {
			t.Fatalf("of %d bytes %d came back: %v", len(line), len(got), err)
		}
	}
	_ = send.Close()
	if rest, err := io.ReadAll(echo); err != nil || len(rest) != 0 {
		t.Errorf("at the end there came %q, %v", rest, err)
	}
}

// straight connects to the port of the machine that a target names.
func straight(ctx context.Context, target string) (*tunnel.Conn, error) {
	_, port, err := net.SplitHostPort(target)
	if err != nil {
		return nil, err
	}
	ours, theirs := net.Pipe()
	go func() { // ends with the connection
		if _, err := tunnel.Target(theirs); err != nil {
			_ = theirs.Close()
			return
		}
		out, err := (&net.Dialer{}).DialContext(ctx, "tcp", net.JoinHostPort("127.0.0.1", port))
		if err != nil {
			_ = theirs.Close()
			return
		}
		conn, err := tunnel.Accept(theirs)
		if err != nil {
			_ = out.Close()
			return
		}
		go func() {
			_, _ = io.Copy(out, conn)
			_ = out.(*net.TCPConn).CloseWrite()
		}()
		_, _ = io.Copy(conn, out)
		_ = conn.Close()
		_ = out.Close()
	}()
	return tunnel.Ask(ours, target)
}
