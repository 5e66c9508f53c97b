// Package edge is the second door of the API process: it passes HTTP requests on to the inside of sandboxes, whether
// they come for a port's preview or from a client that speaks E2B's envd protocol with the guest.
//
// It finds the sandbox by the request's host or headers, checks that the caller may go there, and hands the stream to
// the gateway of the sandbox's node. What flows is never looked at. Traffic counts as use of the sandbox.
package edge

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"sync"
	"time"

	"sandyard/duplex"
	"sandyard/gateway"
	"sandyard/jobs/loop"
	"sandyard/models"
	"sandyard/tokens"
)

const (
	dialPatience = 5 * time.Second
	passLife     = time.Minute
	keepClient   = 2 * time.Minute  // an unused connection of a client
	keepGateway  = 30 * time.Second // an unused connection to a gateway
	maxHeader    = 64 << 10
)

// Config is what an Edge stands on.
type Config struct {
	Store  *models.Store
	Signer *tokens.Signer
	// Resume asks for the resume of a paused sandbox that traffic may resume.
	Resume func(ctx context.Context, tenantID, sandboxID string) error
	// Domain is the one whose hosts are served, with or without a port; empty = any.
	Domain string
	// Secure says that browsers come over TLS, which a proxy before the edge ends.
	Secure bool
	Log    *slog.Logger
}

// Edge is an http.Handler.
type Edge struct {
	store    *models.Store
	signer   *tokens.Signer
	domain   string // in lower case, without a port; empty = any
	secure   bool
	log      *slog.Logger
	routes   *routes
	activity *activity
	visits   *visits
	waking   *waking
	gateways *gateways
	upstream *http.Transport
	forward  *httputil.ReverseProxy
	inward   *httputil.ReverseProxy

	unfound, unreached *gateway.Seldom
}

// New returns an edge, which counts activity while it serves.
func New(c Config) *Edge {
	e := &Edge{
		store: c.Store, signer: c.Signer, domain: hostname(c.Domain), secure: c.Secure, log: c.Log,
		routes:   newRoutes(c.Store),
		activity: newActivity(c.Store, c.Log), visits: newVisits(c.Store, c.Log), waking: newWaking(c),
		gateways: newGateways(c.Log),
		unfound:  gateway.NewSeldom(c.Log), unreached: gateway.NewSeldom(c.Log),
	}
	e.upstream = &http.Transport{
		DialContext: e.gateways.dial, DisableCompression: true, MaxIdleConnsPerHost: 256, IdleConnTimeout: keepGateway,
		MaxResponseHeaderBytes: maxHeader,
	}
	e.forward = &httputil.ReverseProxy{
		Rewrite: e.rewrite, Transport: e.upstream, FlushInterval: -1, ErrorHandler: e.explain, ModifyResponse: answered,
		ErrorLog: slog.NewLogLogger(c.Log.Handler(), slog.LevelDebug),
	}
	e.inward = e.newInward()
	return e
}

// Serve answers at l until ctx ends; streams are cut then. With no listener it only counts what goes through Inside.
func (e *Edge) Serve(ctx context.Context, l net.Listener) error {
	var closing sync.WaitGroup
	life := loop.NewLife() //nolint:contextcheck // what was visited is written down after ctx has ended
	closing.Go(func() { e.activity.run(ctx, life) })
	closing.Go(func() { life.Every(lookEvery, nil, func() { e.gateways.closeSilent(ctx) }) })
	closing.Go(func() { e.visits.watch(ctx, life) })
	err := e.listen(ctx, l)
	life.End()
	closing.Wait()
	e.waking.stop()
	e.routes.lookups.stop()
	e.Close()
	return err
}

// Close gives up the connections to gateways that are not in use.
func (e *Edge) Close() { e.upstream.CloseIdleConnections() }

func (e *Edge) listen(ctx context.Context, l net.Listener) error {
	if l == nil {
		<-ctx.Done()
		return nil
	}
	srv := &http.Server{IdleTimeout: keepClient}
	defer context.AfterFunc(ctx, func() { _ = srv.Close() })()
	if err := gateway.Serve(ctx, srv, l, e, e.log); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// ServeHTTP implements http.Handler.
func (e *Edge) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	id, port, ok := e.destination(r)
	if fromPages(w, r, port, ok) || gateway.Barred(w, r, id, port) {
		return
	}
	if !ok {
		refuse(w, http.StatusBadRequest, "name the sandbox and its port, by the host {port}-{id}.{domain} or by the headers "+
			idHeader+" and "+portHeader)
		return
	}
	route, err := e.routes.find(r.Context(), id)
	if err != nil {
		e.lost(w, r, id, err)
		return
	}
	by, ok := e.enter(w, r, route, port)
	if !ok {
		return
	}
	if e.waking.wakes(r, route, port) {
		if route, err = e.waking.wake(r.Context(), route); err != nil {
			e.lost(w, r, id, err)
			return
		}
	}
	if why := closedBecause(route); why != "" {
		gateway.Refuse(w, http.StatusBadGateway, why, gateway.Refusal{Sandbox: id})
		return
	}
	if !asksHealth(r, port) { // which all may ask for
		defer e.activity.visit(route)()
	}
	r, leave := e.visits.begin(r, &visit{route: route, port: port, by: by})
	defer leave()
	e.forward.ServeHTTP(w, r)
}

// lost answers for a sandbox to which no way was found.
func (e *Edge) lost(w http.ResponseWriter, r *http.Request, id string, err error) {
	switch {
	case errors.Is(err, models.ErrNotFound):
		gateway.Refuse(w, http.StatusBadGateway, gateway.NotFound, gateway.Refusal{Sandbox: id})
		return
	case r.Context().Err() != nil: // the caller is gone
		return
	case errors.Is(err, errAsleep):
		gateway.Refuse(w, http.StatusBadGateway, gateway.Paused, gateway.Refusal{
			Sandbox: id, Message: "The sandbox is paused and was not resumed in time; try again",
		})
	default:
		refuse(w, http.StatusServiceUnavailable, "the database does not answer; try again")
	}
	e.unfound.Warn(r.Context(), "route not read", "sandbox_id", id, "error", err)
}

// rewrite turns the request to the sandbox's gateway. Host, path and query stay as the caller wrote them.
func (e *Edge) rewrite(p *httputil.ProxyRequest) {
	v := visitOf(p.In.Context())
	if to, err := url.Parse(v.route.Gateway); err == nil {
		p.Out.URL.Scheme, p.Out.URL.Host = to.Scheme, to.Host
	}
	p.Out.URL.RawQuery = p.In.URL.RawQuery
	if e.secure { // a proxy has come before, and says for whom
		p.Out.Header["X-Forwarded-For"] = p.In.Header["X-Forwarded-For"]
	}
	p.SetXForwarded()
	if e.secure {
		p.Out.Header.Set("X-Forwarded-Proto", "https")
	}
	p.Out.Header.Set(
		gateway.PassHeader,
		e.signer.Gateway(v.route.SandboxID, v.port, e.store.Now(p.In.Context()).Add(passLife)),
	)
}

// answered notes that the answer has begun: from now on it may take as long as it likes.
func answered(res *http.Response) error {
	v := visitOf(res.Request.Context())
	v.answered.Store(true)
	if v.port == gateway.GuestPort {
		oursAlone(res.Header)
	}
	return nil
}

// explain answers for a visit that was ended, whose caller sent no proper request, or whose gateway cannot be reached.
func (e *Edge) explain(w http.ResponseWriter, r *http.Request, err error) {
	v := visitOf(r.Context())
	why := gateway.Refusal{Sandbox: v.route.SandboxID}
	cause := context.Cause(r.Context())
	switch {
	case errors.Is(cause, errRevoked):
		e.routes.known.Delete(v.route.SandboxID)
		why.Port, why.Message = v.port, "the token has expired or was revoked"
		gateway.Refuse(w, http.StatusForbidden, gateway.Forbidden, why)
	case cause != nil && !errors.Is(cause, errSilent): // the caller is gone
		w.WriteHeader(http.StatusBadGateway)
	case duplex.BodyError(r.Context()) != nil:
		gateway.Refuse(w, http.StatusBadRequest, gateway.Malformed, why)
	default:
		e.routes.known.Delete(v.route.SandboxID) // it may have moved
		e.unreached.Warn(
			r.Context(),
			"gateway not reached",
			"sandbox_id",
			v.route.SandboxID,
			"gateway",
			v.route.Gateway,
			"error",
			err,
		)
		gateway.Refuse(w, http.StatusBadGateway, gateway.Unreachable, why)
	}
}

// closedBecause says why a sandbox takes no traffic now; empty = it does.
func closedBecause(r models.Route) string {
	switch {
	case r.State == models.SandboxPaused:
		return gateway.Paused
	case r.State == models.SandboxCreating:
		return gateway.NotReady
	case r.State != models.SandboxRunning:
		return gateway.NotFound
	case r.Gateway == "":
		return gateway.Unreachable
	}
	return ""
}
