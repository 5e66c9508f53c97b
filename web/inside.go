package web

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"sandyard/gateway"
	"sandyard/models"
	"sandyard/passes"
	"sandyard/providers"
	"sandyard/web/middleware"
	"sandyard/web/problem"
)

const (
	insidePass    = 5 * time.Minute // longer than any wait
	insideDial    = 5 * time.Second
	insideSlack   = 30 * time.Second // what an answer may take beyond the wait that it was asked for
	maxInsideBody = 32 << 20         // bytes
	keepInside    = 30 * time.Second
)

// insides asks the workers what goes on inside their sandboxes. Such a question is no job: nothing changes, and who
// waits for an answer holds none of a worker's slots.
type insides struct {
	store  *models.Store
	signer *passes.Signer
	way    Inside // nil = paused sandboxes are not resumed
	client *http.Client
}

func newInsides(c Config) *insides {
	return &insides{store: c.Store, signer: c.Signer, way: c.Inside, client: &http.Client{Transport: &http.Transport{
		DialContext: (&net.Dialer{Timeout: insideDial}).DialContext, DisableCompression: true,
		MaxIdleConnsPerHost: 64, IdleConnTimeout: keepInside, MaxResponseHeaderBytes: 64 << 10,
	}}}
}

func (i *insides) close() error {
	i.client.CloseIdleConnections()
	return nil
}

// ask sends a question about a tenant's sandbox to the worker that holds it. The caller closes the answer's body.
func (i *insides) ask(ctx context.Context, tenant, sandbox, path string, query url.Values, wait time.Duration) (*http.Response, error) {
	door, err := i.find(ctx, tenant, sandbox)
	if err != nil {
		return nil, err
	}
	if wait > 0 {
		query.Set("wait_ms", strconv.FormatInt(wait.Milliseconds(), 10))
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, door+path+"?"+query.Encode(), nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set(gateway.PassHeader, i.signer.Gateway(sandbox, gateway.InsidePort, i.store.Now(ctx).Add(insidePass)))
	answer, err := i.client.Do(req)
	if err != nil {
		return nil, unreachable(fmt.Sprintf("the worker that holds the sandbox does not answer: %v", errors.Unwrap(err)))
	}
	if answer.StatusCode != http.StatusOK {
		defer answer.Body.Close()
		return nil, refused(answer)
	}
	return answer, nil
}

// awake returns the sandbox, resumed where that is to happen by itself.
func (i *insides) awake(ctx context.Context, tenant, sandbox string) (models.Sandbox, error) {
	box, err := i.store.Sandbox(ctx, tenant, sandbox)
	if err != nil || box.State != models.SandboxPaused || !box.AutoResume || i.way == nil {
		return box, err
	}
	if err := i.way.Wake(ctx, sandbox); err != nil {
		return box, err
	}
	return i.store.Sandbox(ctx, tenant, sandbox)
}

// find returns the URL of the gateway of a running sandbox.
func (i *insides) find(ctx context.Context, tenant, sandbox string) (string, error) {
	box, err := i.awake(ctx, tenant, sandbox)
	switch {
	case err != nil:
		return "", err
	case box.Ended():
		e := &models.EndedError{Sandbox: box.ID, State: box.State, EndedAt: box.EndedAt}
		if box.EndReason != nil {
			e.Reason = *box.EndReason
		}
		return "", e
	case box.State == models.SandboxPaused:
		return "", problem.New(http.StatusConflict, "sandbox_paused", "the sandbox is paused; resume it first")
	case box.State != models.SandboxRunning:
		return "", problem.New(http.StatusConflict, "sandbox_not_running", "the sandbox is still being created; wait for its create job to end")
	}
	route, err := i.store.Route(ctx, sandbox)
	if err == nil && (route.Gateway == "" || i.signer == nil) {
		err = unreachable("no live worker of the sandbox has a gateway; ask your operator to start a worker of its provider or to set GATEWAY_ADDR")
	}
	return route.Gateway, err
}

func unreachable(why string) *problem.Problem {
	return problem.RetryLater(problem.New(http.StatusServiceUnavailable, "sandbox_unreachable", why+"; nothing was changed, try again"), 2)
}

// refused turns what a gateway says instead of an answer into a problem.
func refused(answer *http.Response) error {
	var e gateway.InsideError
	if json.NewDecoder(io.LimitReader(answer.Body, 64<<10)).Decode(&e) != nil || e.Class == "" {
		return unreachable("the worker that holds the sandbox answered " + answer.Status)
	}
	switch e.Class {
	case providers.NoExec:
		return problem.New(http.StatusNotFound, string(e.Class), "the sandbox has no such exec: it was deleted, belongs to another sandbox, or never started")
	case providers.Paused:
		return problem.New(http.StatusConflict, string(e.Class), e.Message)
	case providers.NotSupported:
		return problem.New(http.StatusNotImplemented, string(e.Class), e.Message)
	}
	return unreachable(e.Message)
}

// insideJSON asks and decodes the answer.
func insideJSON[T any](ctx context.Context, s *Server, sandbox, path string, wait time.Duration) (v T, err error) {
	ctx, cancel := s.asking(ctx, wait)
	defer cancel()
	answer, err := s.insides.ask(ctx, middleware.RequestOf(ctx).Tenant, sandbox, path, url.Values{}, wait)
	if err != nil {
		return v, err
	}
	defer answer.Body.Close()
	if err := json.NewDecoder(io.LimitReader(answer.Body, maxInsideBody)).Decode(&v); err != nil {
		return v, unreachable("the worker's answer was cut off")
	}
	return v, nil
}

// asking bounds a question by its wait, and by the server's life.
func (s *Server) asking(ctx context.Context, wait time.Duration) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithTimeout(ctx, wait+insideSlack)
	stop := s.onQuit(cancel)
	return ctx, func() { stop(); cancel() }
}
