// Package workerclient asks the workers what goes on inside their sandboxes: the processes of one, the output of a
// command, how much memory it uses. Such a question is no job: nothing changes, and who waits for an answer holds none
// of a worker's slots.
package workerclient

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
	"sandyard/providers"
	"sandyard/tokens"
	"sandyard/web/middleware"
	"sandyard/web/problem"
)

// MaxBody is how many bytes of an answer are read.
const MaxBody = 32 << 20

const (
	passLife    = 5 * time.Minute // longer than any wait
	dialTimeout = 5 * time.Second
	slack       = 30 * time.Second // what an answer may take beyond the wait that it was asked for
	idleTimeout = 30 * time.Second
)

// Config is what a Client stands on. All of it stays the caller's.
type Config struct {
	Store  *models.Store
	Signer *tokens.Signer
	// Wake returns when a sandbox that is paused and has auto_resume is no longer paused.
	Wake func(ctx context.Context, sandboxID string) error
	// OnQuit has a function called when the server begins to shut down, until stop is called.
	OnQuit func(func()) (stop func() bool)
}

// Client asks workers through their gateways.
type Client struct {
	Config
	http *http.Client
}

// New returns a Client.
func New(c Config) *Client {
	return &Client{
		Config: c,
		http: &http.Client{Transport: &http.Transport{
			DialContext: (&net.Dialer{Timeout: dialTimeout}).DialContext, DisableCompression: true,
			MaxIdleConnsPerHost: 64, IdleConnTimeout: idleTimeout, MaxResponseHeaderBytes: 64 << 10,
		}},
	}
}

// Close closes the connections that wait for the next question.
func (c *Client) Close() error {
	c.http.CloseIdleConnections()
	return nil
}

// Ask sends a question about a sandbox of the request's tenant to the worker that holds it. The caller closes the
// answer's body. Errors are problems and those of the database.
func (c *Client) Ask(
	ctx context.Context,
	sandboxID, path string,
	query url.Values,
	wait time.Duration,
) (*http.Response, error) {
	door, err := c.find(ctx, middleware.RequestOf(ctx).Tenant, sandboxID)
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
	req.Header.Set(gateway.PassHeader, c.Signer.Gateway(sandboxID, gateway.InsidePort, c.Store.Now(ctx).Add(passLife)))
	answer, err := c.http.Do(req)
	if err != nil {
		return nil, Unreachable(fmt.Sprintf("the worker that holds the sandbox does not answer: %v", errors.Unwrap(err)))
	}
	if answer.StatusCode != http.StatusOK {
		defer answer.Body.Close()
		return nil, refused(answer)
	}
	return answer, nil
}

// awake returns the sandbox, resumed where that is to happen by itself.
func (c *Client) awake(ctx context.Context, tenantID, sandboxID string) (models.Sandbox, error) {
	box, err := c.Store.Sandbox(ctx, tenantID, sandboxID)
	if err != nil || box.State != models.SandboxPaused || !box.AutoResume {
		return box, err
	}
	if err := c.Wake(ctx, sandboxID); err != nil {
		return box, err
	}
	return c.Store.Sandbox(ctx, tenantID, sandboxID)
}

// find returns the URL of the gateway of a running sandbox.
func (c *Client) find(ctx context.Context, tenantID, sandboxID string) (string, error) {
	box, err := c.awake(ctx, tenantID, sandboxID)
	switch {
	case err != nil:
		return "", err
	case box.Ended():
		return "", box.EndedError()
	case box.State == models.SandboxPaused:
		return "", problem.New(http.StatusConflict, "sandbox_paused", "the sandbox is paused; resume it first")
	case box.State != models.SandboxRunning:
		return "", problem.New(
			http.StatusConflict,
			"sandbox_not_running",
			"the sandbox is still being created; wait for its create job to end",
		)
	}
	route, err := c.Store.Route(ctx, sandboxID)
	if err == nil && route.Gateway == "" {
		err = Unreachable(
			"no live worker of the sandbox has a gateway; ask your operator to start a worker of its provider or to set " +
				"GATEWAY_ADDR",
		)
	}
	return route.Gateway, err
}

// Unreachable is the problem of a sandbox whose worker cannot be asked now.
func Unreachable(why string) *problem.Problem {
	return problem.RetryLater(
		problem.New(http.StatusServiceUnavailable, "sandbox_unreachable", why+"; nothing was changed, try again"),
		2,
	)
}

// refused turns what a gateway says instead of an answer into a problem.
func refused(answer *http.Response) error {
	var e gateway.InsideError
	if json.NewDecoder(io.LimitReader(answer.Body, 64<<10)).Decode(&e) != nil || e.Class == "" {
		return Unreachable("the worker that holds the sandbox answered " + answer.Status)
	}
	switch e.Class {
	case providers.NoExec:
		return problem.New(
			http.StatusNotFound,
			string(e.Class),
			"the sandbox has no such exec: it was deleted, belongs to another sandbox, or never started",
		)
	case providers.Paused:
		return problem.New(http.StatusConflict, string(e.Class), e.Message)
	case providers.NotSupported:
		return problem.New(http.StatusNotImplemented, string(e.Class), e.Message)
	}
	return Unreachable(e.Message)
}

// JSON asks and decodes the answer.
func JSON[T any](ctx context.Context, c *Client, sandboxID, path string, wait time.Duration) (v T, err error) {
	ctx, cancel := c.Bound(ctx, wait)
	defer cancel()
	answer, err := c.Ask(ctx, sandboxID, path, url.Values{}, wait)
	if err != nil {
		return v, err
	}
	defer answer.Body.Close()
	if err := json.NewDecoder(io.LimitReader(answer.Body, MaxBody)).Decode(&v); err != nil {
		return v, Unreachable("the worker's answer was cut off")
	}
	return v, nil
}

// Bound returns a context for a question: it ends a while after the wait, and with the server.
func (c *Client) Bound(ctx context.Context, wait time.Duration) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithTimeout(ctx, wait+slack)
	stop := c.OnQuit(cancel)
	return ctx, func() { stop(); cancel() }
}
