package edge

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httputil"

	"sandyard/gateway"
	"sandyard/models"
)

// Refuse answers a request that did not reach its sandbox, or that the sandbox refused. The error is a *providers.Error,
// or one of the database.
type Refuse func(w http.ResponseWriter, r *http.Request, err error)

// Inside passes a request on to the routes of the sandbox's gateway that lead to its files, for a caller who may go
// there. The path is one of the gateway's. It counts as use of the sandbox, and resumes one that is paused and may be.
func (e *Edge) Inside(w http.ResponseWriter, r *http.Request, id string, refuse func(http.ResponseWriter, *http.Request, error)) {
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
	ctx := context.WithValue(r.Context(), visitKey{}, &visit{route: route, port: gateway.InsidePort})
	gateway.Early(e.inward).ServeHTTP(w, r.WithContext(context.WithValue(ctx, refuseKey{}, Refuse(refuse))))
}

// Wake returns when a sandbox that is paused and has auto_resume is no longer paused; of others it asks nothing. The
// error is a *providers.Error, or one of the database.
func (e *Edge) Wake(ctx context.Context, id string) error {
	route, err := e.store.Route(ctx, id)
	if err != nil || !e.waking.wakesInside(route) {
		return err
	}
	_, err = e.waking.wake(ctx, route)
	e.routes.forget(id)
	if errors.Is(err, errAsleep) || errors.Is(err, context.DeadlineExceeded) {
		return gateway.Asleep()
	}
	return err
}

type refuseKey struct{}

func (e *Edge) newInward() *httputil.ReverseProxy {
	return &httputil.ReverseProxy{
		Rewrite: e.rewrite, Transport: e.upstream, FlushInterval: -1,
		ModifyResponse: gateway.RefusalOf,
		ErrorHandler:   e.explainInside,
		ErrorLog:       slog.NewLogLogger(e.log.Handler(), slog.LevelDebug),
	}
}

// explainInside tells what a gateway refused as it is; anything else means that the gateway was not reached.
func (e *Edge) explainInside(w http.ResponseWriter, r *http.Request, err error) {
	v := visitOf(r.Context())
	if !gateway.IsRefusal(err) {
		e.routes.forget(v.route.SandboxID) // it may have moved
		err = gateway.NotReached(err)
	}
	if r.Context().Err() != nil {
		err = errors.Join(err, r.Context().Err())
	}
	if refuse, ok := r.Context().Value(refuseKey{}).(Refuse); ok {
		refuse(w, r, err)
	}
}
