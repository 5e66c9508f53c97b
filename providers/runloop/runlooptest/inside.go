package runlooptest

import (
	"context"
	"crypto/rand"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"slices"
	"strconv"
	"strings"
	"time"

	"sandyard/providers"
	"sandyard/providers/remote/remotetest"
)

const (
	commandWait  = 25 // seconds that a caller may wait for a command
	mostOutput   = 16 << 20
	maxDisk      = 64 << 20
	killPatience = 10 * time.Second
	tunnelHost   = "tunnel.localhost"
	tunnelToken  = "X-Runloop-Tunnel-Authorization"
)

// execution is a command that was started. The server's mutex guards it.
type execution struct {
	id, status string
	result     providers.Result
}

// open returns the inside of a devbox that runs. Else it answers.
func (s *Server) open(w http.ResponseWriter, r *http.Request, b *devbox) (providers.Sandbox, bool) {
	if !s.is(b, running) {
		fail(w, http.StatusBadRequest, "Devbox is not running")
		return nil, false
	}
	box, err := s.inner.Open(r.Context(), s.innerOf(b))
	if err != nil {
		refuse(w, err)
	}
	return box, err == nil
}

// refuse tells what the inner provider does not do.
func refuse(w http.ResponseWriter, err error) {
	e := providers.AsError(err)
	status := http.StatusBadRequest
	switch {
	case e.Class == providers.FileNotFound:
		status = http.StatusNotFound
	case e.Retryable():
		status = http.StatusInternalServerError
	}
	fail(w, status, e.Message)
}

func (s *Server) execute(w http.ResponseWriter, r *http.Request, b *devbox) {
	ask := read[struct {
		Command   string  `json:"command"`
		CommandID string  `json:"command_id"`
		Seconds   *int    `json:"optimistic_timeout"`
		Shell     *string `json:"shell_name"`
	}](r)
	s.mu.Lock()
	e, runs := b.executions[ask.CommandID], b.status == running
	if runs && e == nil && ask.Shell == nil {
		e = &execution{id: "exec_" + rand.Text(), status: running}
		b.executions[ask.CommandID], b.executions[e.id] = e, e
		s.work.Go(func() { s.run(b, e, ask.Command) })
	}
	s.mu.Unlock()
	switch {
	case ask.Shell != nil:
		fail(w, http.StatusBadRequest, "The stand-in has no shells that last")
	case !runs:
		fail(w, http.StatusBadRequest, "Devbox is not running")
	default:
		s.await(r.Context(), b, seconds(ask.Seconds, commandWait), func() bool { return e.status != running })
		s.tellExecution(w, r, b, e)
	}
}

// run is one command from its start to its end. One that ends with its sandbox counts as killed.
func (s *Server) run(b *devbox, e *execution, command string) {
	result := providers.Result{ExitCode: 128 + 9}
	box, err := s.inner.Open(s.life, s.innerOf(b))
	if err == nil {
		var r providers.Result
		r, err = box.Run(s.life, providers.Command{Name: newName(), Shell: command, MaxOutput: mostOutput})
		if err == nil {
			result = r
		}
	}
	if err != nil && s.life.Err() == nil {
		s.t.Logf("devbox %s: a command ends by %v", b.id, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	e.result, e.status = result, "completed"
	b.tell()
}

func newName() string { return strings.ToLower(rand.Text()) }

// endProcesses leaves a devbox with nothing but its files.
func (s *Server) endProcesses(ctx context.Context, b *devbox) {
	ctx, stop := context.WithTimeout(ctx, killPatience)
	defer stop()
	idle := func() bool {
		for _, e := range b.executions {
			if e.status == running {
				return false
			}
		}
		return true
	}
	for done := false; !done && ctx.Err() == nil; { // again for a command that was just about to start
		if box, err := s.inner.Open(ctx, s.innerOf(b)); err == nil {
			_, _ = box.Run(ctx, providers.Command{Name: newName(), Shell: "kill -9 -1"})
		}
		done = s.await(ctx, b, time.Second, idle)
	}
}

func (s *Server) waitForCommand(w http.ResponseWriter, r *http.Request, b *devbox) {
	ask := read[wish](r)
	s.mu.Lock()
	e := b.executions[r.PathValue("execution_id")]
	s.mu.Unlock()
	if e == nil {
		fail(w, http.StatusNotFound, "Execution not found")
		return
	}
	met := func() bool { return slices.Contains(ask.Statuses, e.status) }
	if s.await(r.Context(), b, seconds(ask.Seconds, commandWait), met) {
		s.tellExecution(w, r, b, e)
		return
	}
	tellTimeout(w)
}

// tellExecution answers with the last lines of what a command has written, once it has ended.
func (s *Server) tellExecution(w http.ResponseWriter, r *http.Request, b *devbox, e *execution) {
	n, err := strconv.Atoi(r.URL.Query().Get("last_n"))
	if err != nil {
		n = 100
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	v := doc{"devbox_id": b.id, "execution_id": e.id, "status": e.status}
	if e.status != running {
		v["exit_status"] = e.result.ExitCode
		v["stdout"], v["stdout_truncated"] = lastLines(e.result.Stdout, e.result.StdoutBytes, n)
		v["stderr"], v["stderr_truncated"] = lastLines(e.result.Stderr, e.result.StderrBytes, n)
	}
	remotetest.Tell(w, http.StatusOK, v)
}

// lastLines returns the last n lines of what was kept of written bytes, and whether something is missing. Each byte
// that is not UTF-8 becomes U+FFFD.
func lastLines(kept []byte, written int64, n int) (text string, cut bool) {
	text = string(kept)
	from := len(text)
	for ; n > 0 && from > 0; n-- {
		from = strings.LastIndexByte(text[:from-1], '\n') + 1
	}
	return string([]rune(text[from:])), from > 0 || written > int64(len(kept))
}

func (s *Server) upload(w http.ResponseWriter, r *http.Request, b *devbox) {
	box, ok := s.open(w, r, b)
	if !ok {
		return
	}
	if err := saveForm(r, box); err != nil {
		refuse(w, err)
		return
	}
	remotetest.Tell(w, http.StatusOK, doc{})
}

// saveForm saves the file of a form at the path of the form, which comes first.
func saveForm(r *http.Request, box providers.Sandbox) error {
	form, err := r.MultipartReader()
	if err != nil {
		return err
	}
	path, saved := "", false
	save := func(from io.Reader) error {
		saved = true
		_, err := box.SaveFile(r.Context(), path, from, -1, 0)
		return err
	}
	for {
		part, err := form.NextPart()
		switch {
		case errors.Is(err, io.EOF) && !saved && path != "":
			return save(strings.NewReader(""))
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		case part.FormName() == "path":
			var text []byte
			text, err = io.ReadAll(part)
			path = string(text)
		case part.FormName() == "file" && path != "":
			err = save(part)
		default:
			err = providers.Invalid.Errorf("the form has %q out of place", part.FormName())
		}
		if err != nil {
			return err
		}
	}
}

func (s *Server) download(w http.ResponseWriter, r *http.Request, b *devbox) {
	box, ok := s.open(w, r, b)
	if !ok {
		return
	}
	file, err := box.OpenFile(r.Context(), read[struct{ Path string }](r).Path, 0, -1)
	if err != nil {
		refuse(w, err)
		return
	}
	defer file.Close()
	w.Header().Set("Content-Type", "application/octet-stream")
	if _, err := io.Copy(w, file); err != nil {
		panic(http.ErrAbortHandler) // the rest is missing
	}
}

func newTunnel(ask doc) doc {
	v := wanted(ask, doc{"auth_mode": "open", "http_keep_alive": true, "wake_on_http": false})
	v["create_time_ms"], v["tunnel_key"] = now(), newName()
	if v["auth_mode"] == "authenticated" {
		v["auth_token"] = rand.Text()
	}
	return v
}

func (s *Server) enableTunnel(w http.ResponseWriter, r *http.Request, b *devbox) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if b.status != running {
		fail(w, http.StatusBadRequest, "Devbox is not running")
		return
	}
	if b.tunnel == nil {
		b.tunnel = newTunnel(read[doc](r))
	}
	remotetest.Tell(w, http.StatusOK, b.tunnel)
}

// tunnelOf reads the host of a tunnel.
func tunnelOf(host string) (port, key string, ok bool) {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	label, ok := strings.CutSuffix(host, "."+tunnelHost)
	port, key, _ = strings.Cut(label, "-")
	return port, key, ok
}

// tunnel answers a request to a port of a devbox.
func (s *Server) tunnel(w http.ResponseWriter, r *http.Request, key string) {
	b := s.find(func(b *devbox) bool { return b.tunnel["tunnel_key"] == key })
	if b == nil {
		fail(w, http.StatusNotFound, "no tunnel")
		return
	}
	if token, ok := b.tunnel["auth_token"].(string); ok && r.Header.Get(tunnelToken) != "Bearer "+token {
		fail(w, http.StatusUnauthorized, "unauthorized")
		return
	}
	_ = http.NewResponseController(w).EnableFullDuplex() // HTTP/2 is so already
	s.tunnels.ServeHTTP(w, r)
}

func (s *Server) newTunnels() *httputil.ReverseProxy {
	return &httputil.ReverseProxy{
		Rewrite: func(p *httputil.ProxyRequest) {
			port, key, _ := tunnelOf(p.In.Host)
			p.Out.URL.Scheme, p.Out.URL.Host, p.Out.URL.RawQuery = "http", net.JoinHostPort(key, port), p.In.URL.RawQuery
			p.Out.Header.Del(tunnelToken)
		},
		Transport:     &http.Transport{DialContext: s.dial, DisableKeepAlives: true, DisableCompression: true},
		FlushInterval: -1,
		ErrorLog:      slog.NewLogLogger(slog.DiscardHandler, slog.LevelError),
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, _ error) {
			fail(w, http.StatusBadGateway, "no server")
		},
	}
}

// dial connects to a port of the devbox whose tunnel has the key.
func (s *Server) dial(ctx context.Context, _, addr string) (net.Conn, error) {
	key, text, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, err
	}
	port, err := strconv.ParseUint(text, 10, 16)
	b := s.find(func(b *devbox) bool { return b.tunnel["tunnel_key"] == key && b.status == running })
	if err != nil || b == nil {
		return nil, errors.Join(err, providers.ErrNotFound)
	}
	box, err := s.inner.Open(ctx, s.innerOf(b))
	if err != nil {
		return nil, err
	}
	dialer, ok := box.(interface {
		DialPort(ctx context.Context, port uint16) (net.Conn, error)
	})
	if !ok {
		return nil, providers.NotSupported.Errorf("the inner provider reaches no ports")
	}
	return dialer.DialPort(ctx, uint16(port))
}
