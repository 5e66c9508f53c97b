// Package gateway is the HTTP door of a worker: it passes requests on to the sandboxes that its node holds, over the
// streams of their guests, so that a sandbox without a network can be reached all the same.
//
// A request comes from the edge of the API with a pass that names sandbox and port. Its bytes are not looked at: bodies
// stream both ways at once, and an upgraded connection, such as a WebSocket, is carried as it is.
package gateway

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"strconv"
	"time"

	"sandyard/duplex"
	"sandyard/providers"
	"sandyard/tokens"
)

// PassHeader carries the edge's pass. It never reaches a sandbox.
const PassHeader = "Sandyard-Pass"

// GuestPort is the port at which every sandbox has its guest, as E2B's clients know it.
const GuestPort = tokens.GuestPort

const (
	headerPatience = 10 * time.Second
	dialPatience   = 15 * time.Second
	// Unused streams to a guest are few and short-lived: opening one costs little, but when a link ends, every stream
	// that somebody reads spins in yamux until it is told, and many of them hold that up for seconds.
	keepGuest  = 5 * time.Second
	keepGuests = 4
	maxHeader  = 64 << 10
	// keepEdge is how long an unused connection of the edge stays open: longer than the edge keeps it.
	keepEdge = 2 * time.Minute
)

// GuestDialer is the inside of a sandbox that has a guest.
type GuestDialer interface {
	// DialGuest opens a stream to the guest's own HTTP handler, which from then on asks every call for the token.
	DialGuest(ctx context.Context, token string) (net.Conn, error)
}

// PortDialer is the inside of a sandbox whose ports can be reached.
type PortDialer interface {
	// DialPort connects to a TCP port on the sandbox's loopback. A port that nobody listens on is providers.Invalid.
	DialPort(ctx context.Context, port uint16) (net.Conn, error)
}

// Config is what a Gateway stands on.
type Config struct {
	Signer *tokens.Signer
	// Open connects to a sandbox that this process holds. Any other is providers.ErrNotFound: opening another node's would
	// take it away from that one.
	Open func(ctx context.Context, sandboxID string) (providers.Sandbox, error)
	// Now is the time by which passes are judged, the same for all processes; nil = this machine's.
	Now func(ctx context.Context) time.Time
	// TerminalPing is how often the client of a terminal is asked whether it is there, TerminalSilence how long it may
	// neither take nor answer anything; 0 = half a minute and two minutes.
	TerminalPing, TerminalSilence time.Duration
	Log                           *slog.Logger
}

// Gateway is an http.Handler.
type Gateway struct {
	Config
	guests  *http.Transport
	ports   *http.Transport
	forward *httputil.ReverseProxy
	inside  http.Handler

	unpassed  *Seldom
	terminals terminals
}

// New returns the gateway of a worker.
func New(c Config) *Gateway {
	if c.Now == nil {
		c.Now = func(context.Context) time.Time { return time.Now() }
	}
	c.TerminalPing, c.TerminalSilence = cmp.Or(c.TerminalPing, terminalPing), cmp.Or(c.TerminalSilence, terminalSilence)
	g := &Gateway{Config: c, unpassed: NewSeldom(c.Log)}
	g.inside = g.insideRoutes()
	g.guests = g.transport()
	// The server behind a port may close an unused connection at any time, and a request that meets that is lost.
	g.ports = g.transport()
	g.ports.DisableKeepAlives = true
	g.forward = &httputil.ReverseProxy{
		Rewrite: rewrite, Transport: g, FlushInterval: -1, ErrorHandler: g.explain, ModifyResponse: clean,
		ErrorLog: slog.NewLogLogger(c.Log.Handler(), slog.LevelDebug),
	}
	return g
}

func (g *Gateway) transport() *http.Transport {
	return &http.Transport{
		DialContext:            g.dial,
		DisableCompression:     true,
		MaxIdleConnsPerHost:    keepGuests,
		IdleConnTimeout:        keepGuest,
		MaxResponseHeaderBytes: maxHeader,
	}
}

// Serve answers at l until the function it returns is called, which cuts what still streams. The end of ctx alone does
// not end it: a worker that drains is still reached.
func (g *Gateway) Serve(ctx context.Context, l net.Listener) (stop func()) {
	life, end := context.WithCancel(context.WithoutCancel(ctx))
	srv := &http.Server{IdleTimeout: keepEdge}
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := Serve(life, srv, l, g, g.Log); !errors.Is(err, http.ErrServerClosed) {
			g.Log.Error("gateway listener ended", "error", err)
		}
	}()
	return func() {
		end()
		_ = srv.Close()
		<-done
		g.terminals.open.Wait() // they say good-bye
		g.guests.CloseIdleConnections()
		g.ports.CloseIdleConnections()
	}
}

// Serve answers at l with h, whose answers may come while their requests still arrive, and says how that ended. The
// end of life cuts upgraded connections, which Close leaves alone.
func Serve(life context.Context, srv *http.Server, l net.Listener, h http.Handler, log *slog.Logger) error {
	srv.BaseContext = func(net.Listener) context.Context { return life }
	srv.ReadHeaderTimeout, srv.MaxHeaderBytes = headerPatience, maxHeader
	srv.ErrorLog = slog.NewLogLogger(log.Handler(), slog.LevelDebug)
	return duplex.Serve(srv, l, h)
}

// ServeHTTP implements http.Handler.
func (g *Gateway) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	sandbox, port, ok := g.Signer.ReadGateway(r.Header.Get(PassHeader), g.Now(r.Context()))
	if !ok {
		Refuse(w, http.StatusForbidden, Forbidden, Refusal{})
		return
	}
	if Barred(w, r, sandbox, port) {
		return
	}
	r.Header.Del(PassHeader)
	r = r.WithContext(context.WithValue(r.Context(), targetKey{}, target{sandbox, port}))
	if port == InsidePort {
		g.inside.ServeHTTP(w, r)
		return
	}
	g.forward.ServeHTTP(w, r)
}

type targetKey struct{}

// target is where a request goes.
type target struct {
	sandbox string
	port    uint16
}

func targetOf(ctx context.Context) target {
	t, _ := ctx.Value(targetKey{}).(target)
	return t
}

// rewrite keeps everything but the address: the host is that of the first request, and the edge has written down for
// whom it forwards.
func rewrite(p *httputil.ProxyRequest) {
	t := targetOf(p.In.Context())
	p.Out.URL.Scheme, p.Out.URL.Host = "http", net.JoinHostPort(t.sandbox, strconv.Itoa(int(t.port)))
	p.Out.URL.RawQuery = p.In.URL.RawQuery
	for _, name := range []string{"X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto"} {
		if v, ok := p.In.Header[name]; ok {
			p.Out.Header[name] = v
		}
	}
}

// RoundTrip implements http.RoundTripper.
func (g *Gateway) RoundTrip(r *http.Request) (*http.Response, error) {
	if targetOf(r.Context()).port == GuestPort {
		return g.guests.RoundTrip(r)
	}
	return g.ports.RoundTrip(r)
}

// dial opens a stream to the sandbox and port of addr.
func (g *Gateway) dial(ctx context.Context, _, addr string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, dialPatience)
	defer cancel()
	conn, err := g.enter(ctx, addr)
	if err != nil {
		return nil, err
	}
	return Deaf(conn), nil
}

func (g *Gateway) enter(ctx context.Context, addr string) (net.Conn, error) {
	sandbox, text, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, err
	}
	port, err := strconv.ParseUint(text, 10, 16)
	if err != nil {
		return nil, err
	}
	box, err := g.Open(ctx, sandbox)
	if err != nil {
		return nil, err
	}
	if inside, ok := box.(GuestDialer); ok && port == GuestPort {
		return inside.DialGuest(ctx, g.Signer.Access(sandbox))
	}
	if inside, ok := box.(PortDialer); ok && port != GuestPort {
		return inside.DialPort(ctx, uint16(port))
	}
	return nil, providers.NotSupported.Errorf("this provider does not support streams to sandboxes")
}
