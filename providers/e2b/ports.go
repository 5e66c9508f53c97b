package e2b

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"strconv"
	"strings"
	"sync"

	"sandyard/providers"
)

const trafficHeader = "E2b-Traffic-Access-Token"

// DialPort connects to an HTTP server on a port of the sandbox: requests and upgrades alone, for the backend has no
// other way to a port. What the connection carries goes to the sandbox's host there, with the token of its ports. A
// port on which nobody
// listens is providers.Invalid.
func (s *sandbox) DialPort(ctx context.Context, port uint16) (net.Conn, error) {
	if err := s.listens(ctx, port); err != nil {
		return nil, err
	}
	token, err := s.trafficToken(ctx)
	if err != nil {
		return nil, err
	}
	ours, theirs := net.Pipe()
	v := &visit{conn: theirs, gone: make(chan struct{})}
	proxy := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) { s.toPort(r, port, token) }, Transport: s.p.transport, FlushInterval: -1,
		ModifyResponse: fromPort, ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelError),
		ErrorHandler: func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) }, // the connection ends
	}
	srv := &http.Server{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_ = http.NewResponseController(w).EnableFullDuplex() // HTTP/1.1 always can
			proxy.ServeHTTP(w, r)
		}),
		ConnState:         v.state,
		ErrorLog:          slog.NewLogLogger(slog.DiscardHandler, slog.LevelError),
		ReadHeaderTimeout: 0, // the connection is the gateway's own
		MaxHeaderBytes:    maxHeaders,
	}
	go func() { _ = srv.Serve(v) }() // until the one connection ends
	return ours, nil
}

// toPort turns a request to the host of the sandbox's port.
func (s *sandbox) toPort(r *httputil.ProxyRequest, port uint16, token string) {
	to := s.address(port)
	r.Out.URL.Scheme, r.Out.URL.Host, r.Out.Host = to.Scheme, to.Host, to.Host
	r.Out.URL.Path, r.Out.URL.RawPath = to.Path+r.In.URL.Path, ""
	if r.In.URL.RawPath != "" {
		r.Out.URL.RawPath = to.EscapedPath() + r.In.URL.EscapedPath()
	}
	r.Out.URL.RawQuery = r.In.URL.RawQuery
	for name := range r.Out.Header {
		if strings.HasPrefix(name, "E2b-") {
			r.Out.Header.Del(name)
		}
	}
	for _, name := range []string{"X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto"} {
		if values := r.In.Header[name]; len(values) > 0 {
			r.Out.Header[name] = values
		}
	}
	if r.Out.Header.Get("X-Forwarded-Host") == "" { // the one that the caller means
		r.Out.Header.Set("X-Forwarded-Host", r.In.Host)
	}
	if s.p.data != nil {
		r.Out.Header.Set("E2b-Sandbox-Id", s.backend)
		r.Out.Header.Set("E2b-Sandbox-Port", strconv.Itoa(int(port)))
	}
	if token != "" {
		r.Out.Header.Set(trafficHeader, token)
	}
}

var errNoServer = errors.New("the backend did not reach the port")

// fromPort ends the connection where the backend itself has answered, and not the sandbox's program.
func fromPort(res *http.Response) error {
	if res.StatusCode != http.StatusBadGateway && res.StatusCode != http.StatusForbidden {
		return nil
	}
	text, err := io.ReadAll(io.LimitReader(res.Body, maxErrorBody))
	if err != nil {
		return err
	}
	if bytes.Contains(text, []byte(`"sandboxId"`)) {
		return errNoServer
	}
	rest := res.Body
	res.Body = struct {
		io.Reader
		io.Closer
	}{io.MultiReader(bytes.NewReader(text), rest), rest}
	return nil
}

// listens asks the sandbox's kernel, which disturbs no program, whether one listens on a port.
func (s *sandbox) listens(ctx context.Context, port uint16) error {
	text := fmt.Sprintf(
		"cat /proc/net/tcp /proc/net/tcp6 2>/dev/null | grep -q '^ *[0-9]*: [0-9A-F]*:%04X [0-9A-F]*:0000 0A ' "+
			"&& echo yes || echo no",
		port,
	)
	out, err := s.Script(ctx, "", text, 100)
	if err != nil {
		return err
	}
	if strings.TrimSpace(string(out)) != "yes" {
		return providers.Errorf(providers.Invalid, "no program in the sandbox listens on port %d", port)
	}
	return nil
}

// trafficToken is the token of the sandbox's ports; empty = they need none. Only the answer to create and connect tells
// it. Of a
// sandbox that runs connect changes no more than its timeout, which may become longer.
func (s *sandbox) trafficToken(ctx context.Context) (string, error) {
	if known, ok := s.p.refs.get(s.id); ok && known.id == s.backend && known.traffic != "" {
		return known.traffic, nil
	}
	a, err := s.p.apiConnect(ctx, s.backend)
	if err != nil || a.Traffic == nil {
		return "", err
	}
	if len(*a.Traffic) > maxSecret || strings.ContainsFunc(*a.Traffic, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return "", errNotE2B
	}
	s.p.refs.set(s.id, ref{id: s.backend, traffic: *a.Traffic})
	return *a.Traffic, nil
}

// visit is the listener of one connection.
type visit struct {
	conn  net.Conn
	taken sync.Once
	gone  chan struct{}
	over  sync.Once
}

func (v *visit) Accept() (net.Conn, error) {
	var first net.Conn
	v.taken.Do(func() { first = v.conn })
	if first != nil {
		return first, nil
	}
	<-v.gone
	return nil, net.ErrClosed
}

func (v *visit) Close() error {
	v.over.Do(func() { close(v.gone) })
	return nil
}

func (v *visit) Addr() net.Addr { return v.conn.LocalAddr() }

// state hears that the connection has ended, or became one of a protocol that is not HTTP, whose handler goes on.
func (v *visit) state(_ net.Conn, s http.ConnState) {
	if s == http.StateClosed || s == http.StateHijacked {
		_ = v.Close()
	}
}

var _ net.Listener = (*visit)(nil)
