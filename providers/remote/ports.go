package remote

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
	"net/url"
	"strings"

	"sandyard/duplex"
	"sandyard/providers"
)

// Door is where requests to a port of a sandbox go.
type Door struct {
	Transport http.RoundTripper
	To        *url.URL
	// Rewrite completes the headers of a request, which hold none of the vendor's own yet.
	Rewrite func(http.Header)
	// Own says whether a header's name, as Go writes it, is the vendor's: a caller's is not passed on.
	Own func(name string) bool
	// Marks stand in the short texts with which the backend itself says that it does not let a request in or does not
	// reach the program. The connection ends then.
	Marks []string
}

// Dial returns a connection for HTTP: requests and upgrades alone, for the backend has no other way to a port. The
// connection ends where the backend does not reach the program.
func (d Door) Dial() net.Conn {
	ours, theirs := net.Pipe()
	visit := duplex.NewHandover(theirs.LocalAddr())
	proxy := &httputil.ReverseProxy{
		Rewrite: d.rewrite, Transport: d.Transport, FlushInterval: -1,
		ModifyResponse: d.check, ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelError),
		ErrorHandler: func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) }, // the connection ends
	}
	srv := &http.Server{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_ = http.NewResponseController(w).EnableFullDuplex() // HTTP/1.1 always can
			proxy.ServeHTTP(w, r)
		}),
		// The connection has ended, or became one of a protocol that is not HTTP, whose handler goes on.
		ConnState: func(_ net.Conn, s http.ConnState) {
			if s == http.StateClosed || s == http.StateHijacked {
				_ = visit.Close()
			}
		},
		ErrorLog:          slog.NewLogLogger(slog.DiscardHandler, slog.LevelError),
		ReadHeaderTimeout: 0, // the connection is the gateway's own
		MaxHeaderBytes:    maxHeaders,
	}
	go func() { _ = srv.Serve(visit) }() // until the one connection ends
	visit.Hand(theirs)
	return ours
}

func (d Door) rewrite(r *httputil.ProxyRequest) {
	r.Out.URL.Scheme, r.Out.URL.Host, r.Out.Host = d.To.Scheme, d.To.Host, d.To.Host
	r.Out.URL.Path, r.Out.URL.RawPath = d.To.Path+r.In.URL.Path, ""
	if r.In.URL.RawPath != "" {
		r.Out.URL.RawPath = d.To.EscapedPath() + r.In.URL.EscapedPath()
	}
	r.Out.URL.RawQuery = r.In.URL.RawQuery
	for name := range r.Out.Header {
		if d.Own(name) {
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
	d.Rewrite(r.Out.Header)
}

var errNoServer = errors.New("the backend did not reach the port")

// check ends the connection where the backend itself has answered and not the sandbox's program.
func (d Door) check(res *http.Response) error {
	switch res.StatusCode {
	case http.StatusBadGateway, http.StatusForbidden, http.StatusUnauthorized:
	default:
		return nil
	}
	text, err := io.ReadAll(io.LimitReader(res.Body, maxErrorBody))
	if err != nil {
		return err
	}
	for _, mark := range d.Marks {
		if bytes.Contains(text, []byte(mark)) {
			return errNoServer
		}
	}
	rest := res.Body
	res.Body = struct {
		io.Reader
		io.Closer
	}{io.MultiReader(bytes.NewReader(text), rest), rest}
	return nil
}

// Listens asks the sandbox's kernel, which disturbs no program, whether one listens on a port.
func (f *Files) Listens(ctx context.Context, port uint16) error {
	text := fmt.Sprintf(
		"cat /proc/net/tcp /proc/net/tcp6 2>/dev/null | grep -q '^ *[0-9]*: [0-9A-F]*:%04X [0-9A-F]*:0000 0A ' "+
			"&& echo yes || echo no",
		port,
	)
	out, err := f.box.Script(ctx, "", text, 100)
	if err != nil {
		return err
	}
	if strings.TrimSpace(string(out)) != "yes" {
		return providers.Invalid.Errorf("no program in the sandbox listens on port %d", port)
	}
	return nil
}
