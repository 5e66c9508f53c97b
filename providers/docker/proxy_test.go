package docker_test

import (
	"context"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// proxy stands between a provider and the engine, and can cut the provider off for ever: to the engine and to the
// sandboxes that is the worker's death.
type proxy struct {
	host   string
	server *http.Server

	mu    sync.Mutex
	conns map[net.Conn]struct{} // nil when cut
	at    func(*http.Request) cutPoint
	stand func(w http.ResponseWriter, r *http.Request, engine http.Handler) bool
}

// cutPoint says when a request cuts the provider off.
type cutPoint int

const (
	never  cutPoint = iota
	before          // the engine gets the request
	after           // the engine has answered it
)

func newProxy(t *testing.T, engine string) *proxy {
	t.Helper()
	path, isUnix := strings.CutPrefix(engine, "unix://")
	if !isUnix {
		t.Fatalf("the engine is at %s, not at a socket of this machine", engine)
	}
	x := &proxy{host: "unix://" + filepath.Join(t.TempDir(), "p.sock"), conns: make(map[net.Conn]struct{})}
	listener, err := net.Listen("unix", strings.TrimPrefix(x.host, "unix://"))
	if err != nil {
		t.Fatal(err)
	}
	forward := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: "docker"})
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", path)
	}}
	forward.Transport = transport
	forward.ErrorHandler = func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(http.StatusBadGateway) }
	x.server = &http.Server{Handler: x.handler(forward)}
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = x.server.Serve(&tracked{Listener: listener, proxy: x})
	}()
	t.Cleanup(func() {
		x.cut()
		<-served
		transport.CloseIdleConnections()
	})
	return x
}

// cutAt makes the first request that point wants cut the provider off.
func (x *proxy) cutAt(point func(*http.Request) cutPoint) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.at = point
}

// standIn makes answer speak for the engine, which it may ask. Where it says false, the request goes its way.
func (x *proxy) standIn(answer func(w http.ResponseWriter, r *http.Request, engine http.Handler) bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.stand = answer
}

// holdStart keeps back the first start of a container that the engine is asked for: begun is closed then, and release lets it go
// on.
func (x *proxy) holdStart(t *testing.T) (begun <-chan struct{}, release func()) {
	t.Helper()
	asked, hold := make(chan struct{}), make(chan struct{})
	release = sync.OnceFunc(func() { close(hold) })
	t.Cleanup(release)
	var once sync.Once
	x.standIn(func(_ http.ResponseWriter, r *http.Request, _ http.Handler) bool {
		if strings.HasSuffix(r.URL.Path, "/start") {
			once.Do(func() {
				close(asked)
				<-hold
			})
		}
		return false
	})
	t.Cleanup(func() { x.standIn(nil) })
	return asked, release
}

func (x *proxy) handler(forward http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		x.mu.Lock()
		point := never
		if x.at != nil {
			point = x.at(r)
		}
		stand := x.stand
		x.mu.Unlock()
		if stand != nil && stand(w, r, forward) {
			return
		}
		if point == before {
			x.cut()
			return
		}
		forward.ServeHTTP(w, r)
		if point == after {
			x.cut()
		}
	})
}

func (x *proxy) cut() {
	_ = x.server.Close()
	x.mu.Lock()
	defer x.mu.Unlock()
	for c := range x.conns {
		_ = c.Close()
	}
	x.conns = nil
}

// tracked remembers the connections, also those that an attachment takes over from the server.
type tracked struct {
	net.Listener
	proxy *proxy
}

func (l *tracked) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	l.proxy.mu.Lock()
	defer l.proxy.mu.Unlock()
	if l.proxy.conns == nil {
		_ = c.Close()
	} else {
		l.proxy.conns[c] = struct{}{}
	}
	return c, nil
}
