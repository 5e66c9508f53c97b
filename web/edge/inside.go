package edge

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httputil"

	"sandyard/duplex"
	"sandyard/gateway"
	"sandyard/models"
)

// Inside passes a request on to the routes of the sandbox's gateway that lead to its files and terminals, for a caller
// who may go there. The path is one of the gateway's. It counts as use of the sandbox, and resumes one that is paused
// and may be. Whatever does not reach its sandbox, or is refused there, refuse answers; the error is a
// *providers.Error, or one of the database.
func (e *Edge) Inside(
	w http.ResponseWriter,
	r *http.Request,
	id string,
	refuse func(http.ResponseWriter, *http.Request, error),
) {
	route, err := e.routes.find(r.Context(), id)
	if err == nil && e.waking.wakesInside(route) {
		if route, err = e.waking.wake(r.Context(), route); errors.Is(err, errAsleep) {
			err = gateway.Asleep()
		}
	}
	if err == nil && (route.State != models.SandboxRunning || route.Gateway == "") {
		err = gateway.Absent()
	}
	if err != nil {
		refuse(w, r, err)
		return
	}
	defer e.activity.visit(route)()
	in, leave := e.visits.begin(r, &visit{
		route: route, port: gateway.InsidePort,
		refuse: func(w http.ResponseWriter, err error) { refuse(w, r, err) }, // r, whose context outlives the visit
	})
	defer leave()
	duplex.Handler(e.inward).ServeHTTP(w, in)
}

// Wake returns when a sandbox that is paused and has auto_resume is no longer paused; of others it asks nothing. The
// error is a *providers.Error, or one of the database.
func (e *Edge) Wake(ctx context.Context, id string) error {
	route, err := e.store.Route(ctx, id)
	if err != nil || !e.waking.wakesInside(route) {
		return err
	}
	_, err = e.waking.wake(ctx, route)
	e.routes.known.Delete(id)
	if errors.Is(err, errAsleep) || errors.Is(err, context.DeadlineExceeded) {
		return gateway.Asleep()
	}
	return err
}

func (e *Edge) newInward() *httputil.ReverseProxy {
	return &httputil.ReverseProxy{
		Rewrite: e.rewrite, Transport: e.upstream, FlushInterval: -1,
		ModifyResponse: begun,
		ErrorHandler:   e.explainInside,
		ErrorLog:       slog.NewLogLogger(e.log.Handler(), slog.LevelDebug),
	}
}

// begun is answered for a gateway's own answers, some of which are refusals.
func begun(res *http.Response) error {
	visitOf(res.Request.Context()).answered.Store(true)
	return gateway.RefusalOf(res)
}

// explainInside tells what a gateway refused as it is. Anything else means that the request broke off, or that the
// gateway was not reached or fell silent.
func (e *Edge) explainInside(w http.ResponseWriter, r *http.Request, err error) {
	v, cause := visitOf(r.Context()), context.Cause(r.Context())
	switch {
	case gateway.IsRefusal(err):
	case cause == nil && duplex.BodyError(r.Context()) != nil:
		err = gateway.BrokenOff(err)
	default:
		e.routes.known.Delete(v.route.SandboxID) // it may have moved
		err = gateway.NotReached(err)
	}
	if cause != nil && !errors.Is(cause, errSilent) {
		err = errors.Join(err, cause)
	}
	v.refuse(w, err)
}
