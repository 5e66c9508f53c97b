package proxy

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httputil"
	"strings"
	"time"

	"sandyard/duplex"
	"sandyard/guest/tunnel"
)

const (
	// maxPhrase is the longest reason in a status line, in bytes.
	maxPhrase = 250
	// farewell is how long it may take to tell a refused program why.
	farewell = time.Second
)

// VerdictHeader of an answer that is the proxy's own says why: denied, unreachable or unavailable.
const VerdictHeader = "Sandyard-Egress"

func (s *Server) serveHTTP(w http.ResponseWriter, r *http.Request) {
	switch {
	case r.Method == http.MethodConnect:
		s.connect(w, r)
	case r.URL.Scheme == "http" && r.URL.Host != "":
		s.forward().ServeHTTP(w, r)
	case r.URL.Scheme == "https":
		http.Error(w, "this proxy supports https only through CONNECT", http.StatusBadRequest)
	default:
		http.Error(w, "this is the sandbox's egress proxy; use it through HTTP_PROXY and HTTPS_PROXY", http.StatusBadRequest)
	}
}

// forward passes plain HTTP requests on. Where they go is the URL's host, which is also the Host that they carry.
func (s *Server) forward() http.Handler {
	return &httputil.ReverseProxy{
		Rewrite:   func(p *httputil.ProxyRequest) { p.Out.Header.Del("Proxy-Authorization") },
		Transport: s.transport, FlushInterval: -1,
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, err error) { refuse(w, err) },
		ErrorLog:     slog.NewLogLogger(s.log.Handler(), slog.LevelDebug),
	}
}

func (s *Server) connect(w http.ResponseWriter, r *http.Request) {
	t, err := s.dial(r.Context(), r.Host)
	if err != nil {
		refuseTunnel(w, err)
		return
	}
	raw, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		_ = t.Close()
		refuse(w, err)
		return
	}
	c, ok := duplex.Underlying(raw).(*counted)
	if !ok {
		_ = t.Close()
		_ = raw.Close()
		return
	}
	if _, err := io.WriteString(c.Conn, "HTTP/1.1 200 Connection established\r\n\r\n"); err != nil {
		_ = t.Close()
		_ = c.Close()
		return
	}
	early := make([]byte, buffered.Reader.Buffered())
	_, _ = buffered.Read(early) // what is buffered does not fail
	s.join(c, t, early)
}

// refuse tells the program why there is no connection.
func refuse(w http.ResponseWriter, err error) {
	status, verdict, message := explain(err)
	w.Header().Set(VerdictHeader, verdict)
	http.Error(w, message, status)
}

// refuseTunnel says it in the status line, too: of an answer to CONNECT most clients show nothing else.
func refuseTunnel(w http.ResponseWriter, err error) {
	raw, _, hijackErr := http.NewResponseController(w).Hijack()
	if hijackErr != nil {
		refuse(w, err)
		return
	}
	defer raw.Close()
	status, verdict, message := explain(err)
	_ = raw.SetDeadline(time.Now().Add(farewell))
	duplex.LingerAfter(raw) // a close before the program's last word would be a reset
	_, _ = fmt.Fprintf(
		raw,
		"HTTP/1.1 %d %s\r\n%s: %s\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: %d\r\n"+
			"Connection: close\r\n\r\n%s\n",
		status,
		phrase(message),
		VerdictHeader,
		verdict,
		len(message)+1,
		message,
	)
}

// phrase makes one line of a message.
func phrase(message string) string {
	line := strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' {
			return ' '
		}
		return r
	}, message)
	return line[:min(len(line), maxPhrase)]
}

func explain(err error) (status int, verdict, message string) {
	status, verdict = http.StatusBadGateway, "unreachable"
	refused, ok := errors.AsType[*tunnel.RefusedError](err)
	if !ok {
		return status, verdict, err.Error()
	}
	switch refused.Answer {
	case tunnel.Denied:
		status, verdict = http.StatusForbidden, "denied"
	case tunnel.Unavailable:
		status, verdict = http.StatusServiceUnavailable, "unavailable"
	case tunnel.Open, tunnel.Unreachable:
	}
	return status, verdict, refused.Message
}
