// Package runlooptest stands in Runloop's place: the part of its API that the provider runloop uses, over the sandboxes
// of another provider. Tests of the provider speak with it, and so does Runloop's own client.
package runlooptest

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"sandyard/providers"
	"sandyard/providers/remote/remotetest"
)

// Options fit one server.
type Options struct {
	Image       string            // of devboxes without a blueprint
	Blueprints  map[string]string // image by name or id of the blueprint
	WorkDir     string            // the home directory; empty = /home/user
	Disk        []string          // directories that outlive a suspend; empty = none does
	MaxDevboxes int               // which have not ended; 0 = no limit
}

// Server is an http.Handler that answers as Runloop does, and holds itself and its callers to the vendor's document.
// It ends with its test, and its devboxes with it.
type Server struct {
	URL       string // of the API, over HTTP/1.1 or HTTP/2 without TLS
	TunnelURL string // of no port; before its host a port has "{port}-{tunnel_key}."
	Addr      string // where both are: the names of tunnels need not resolve
	Key       string // the bearer token that the API wants

	t        testing.TB
	inner    providers.Provider
	o        Options
	document remotetest.Document
	routes   *http.ServeMux
	tunnels  *httputil.ReverseProxy
	work     sync.WaitGroup // requests, and what they leave behind
	life     context.Context

	mu       sync.Mutex
	closed   bool
	boxes    []*devbox
	policies []doc
}

// New starts a server whose devboxes are sandboxes of inner. Inner is to be closed after the test's own clean-up.
func New(t testing.TB, inner providers.Provider, o Options) *Server {
	t.Helper()
	o.WorkDir = cmp.Or(o.WorkDir, "/home/user")
	file, err := documentFile()
	if err != nil {
		t.Fatal(err)
	}
	document, err := remotetest.Load(file)
	if err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	life, end := context.WithCancel(context.Background())
	s := &Server{Key: "ak_" + rand.Text(), t: t, inner: inner, o: o, document: document, life: life}
	s.routes, s.tunnels = s.newRoutes(), s.newTunnels()
	t.Cleanup(s.start(end))
	return s
}

// documentFile finds the vendor's document from the directory of any test.
func documentFile() (string, error) {
	dir, err := os.Getwd()
	for ; err == nil && dir != filepath.Dir(dir); dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return filepath.Join(dir, "providers/runloop/testdata/operations.yaml"), nil
		}
	}
	return "", errors.Join(err, fs.ErrNotExist)
}

// start listens, and returns what ends all that was begun.
func (s *Server) start(end context.CancelFunc) (stop func()) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		s.t.Fatal(err)
	}
	s.Addr = l.Addr().String()
	_, port, _ := net.SplitHostPort(s.Addr)
	s.URL, s.TunnelURL = "http://"+s.Addr, "http://"+tunnelHost+":"+port
	srv := &http.Server{
		Handler: s, Protocols: new(http.Protocols), ReadHeaderTimeout: time.Minute,
		BaseContext: func(net.Listener) context.Context { return s.life },
		ConnState: func(c net.Conn, state http.ConnState) {
			if state == http.StateHijacked { // an upgrade, which the server does not end
				context.AfterFunc(s.life, func() { _ = c.Close() })
			}
		},
		ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelError),
	}
	srv.Protocols.SetHTTP1(true)
	srv.Protocols.SetUnencryptedHTTP2(true) // the vendor's client speaks nothing else
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = srv.Serve(l)
	}()
	return func() {
		s.mu.Lock()
		s.closed = true
		s.mu.Unlock()
		end()
		_ = srv.Close()
		<-served
		s.work.Wait()
		ctx, stop := context.WithTimeout(context.Background(), time.Minute)
		defer stop()
		for _, b := range s.boxes {
			s.work.Go(func() { s.remove(ctx, b) })
		}
		s.work.Wait()
	}
}

// enter counts a request, unless the server has ended.
func (s *Server) enter() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed {
		s.work.Add(1)
	}
	return !s.closed
}

// ServeHTTP implements http.Handler, for the API and for tunnels.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !s.enter() {
		panic(http.ErrAbortHandler)
	}
	defer s.work.Done()
	if _, key, ok := tunnelOf(r.Host); ok {
		s.tunnel(w, r, key)
		return
	}
	if r.Header.Get("Authorization") != "Bearer "+s.Key {
		fail(w, http.StatusUnauthorized, "Invalid API key")
		return
	}
	operation := s.document.Operation(r)
	if strings.HasSuffix(operation, "/upload_file") {
		s.routes.ServeHTTP(w, r) // a stream: the handler looks at it
		return
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	if err := s.document.Request(r, body); err != nil {
		s.t.Errorf("not as Runloop's document has it: %s %s %.1000s: %v", r.Method, r.URL, body, err)
		fail(w, http.StatusBadRequest, "Bad request")
		return
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	if strings.HasSuffix(operation, "/download_file") {
		s.routes.ServeHTTP(w, r)
		return
	}
	s.answer(w, r)
}

// answer holds the answer to the document.
func (s *Server) answer(w http.ResponseWriter, r *http.Request) {
	rec := httptest.NewRecorder()
	s.routes.ServeHTTP(rec, r)
	if r.Context().Err() != nil {
		panic(http.ErrAbortHandler) // nobody waits
	}
	if err := s.document.Answer(r, rec); err != nil {
		s.t.Errorf("the stand-in is not as Runloop's document has it: %s %s is answered %d %s: %v",
			r.Method, r.URL, rec.Code, rec.Body, err)
	}
	for name, values := range rec.Header() {
		w.Header()[name] = values
	}
	w.WriteHeader(rec.Code)
	_, _ = w.Write(rec.Body.Bytes())
}

func (s *Server) newRoutes() *http.ServeMux {
	m := http.NewServeMux()
	m.HandleFunc("POST /v1/devboxes", s.create)
	m.HandleFunc("GET /v1/devboxes", s.list)
	m.HandleFunc("POST /v1/network-policies", s.createPolicy)
	m.HandleFunc("GET /v1/network-policies", s.listPolicies)
	for route, h := range map[string]func(http.ResponseWriter, *http.Request, *devbox){
		"GET":                   s.retrieve,
		"POST /shutdown":        s.shutdown,
		"POST /suspend":         s.suspend,
		"POST /resume":          s.resume,
		"POST /wait_for_status": s.waitForStatus,
		"POST /execute":         s.execute,
		"POST /executions/{execution_id}/wait_for_status": s.waitForCommand,
		"POST /upload_file":   s.upload,
		"POST /download_file": s.download,
		"POST /enable_tunnel": s.enableTunnel,
	} {
		method, rest, _ := strings.Cut(route, " ")
		m.HandleFunc(method+" /v1/devboxes/{id}"+rest, func(w http.ResponseWriter, r *http.Request) {
			if b := s.find(func(b *devbox) bool { return b.id == r.PathValue("id") }); b != nil {
				h(w, r, b)
				return
			}
			fail(w, http.StatusNotFound, "Devbox with id "+r.PathValue("id")+" not found")
		})
	}
	return m
}

// read takes the body of a request, which the document allows, and may be empty.
func read[T any](r *http.Request) (v T) {
	_ = json.NewDecoder(r.Body).Decode(&v)
	return v
}

func fail(w http.ResponseWriter, status int, message string) {
	remotetest.Tell(w, status, doc{"message": message})
}
