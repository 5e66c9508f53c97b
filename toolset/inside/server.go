package inside

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"runtime/debug"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"golang.org/x/sync/semaphore"

	"sandyard/providers"
	"sandyard/toolset"
)

// HealthPath answers a GET with 204 as soon as the tools are there.
const HealthPath = "/health"

const (
	// maxBody bounds one request, in bytes.
	maxBody = 24 << 20
	// maxBodies bounds the requests that are answered at once, in bytes of their bodies, which stand in memory. One counts
	// at least maxBodies/maxRequests.
	maxBodies   = 4 * maxBody
	maxRequests = 64
)

const instructions = "Tools that work in this sandbox, a Linux container. No call takes longer than 25 seconds: a " +
	"command that runs longer answers running=true with exec_id and cursor; call shell_wait with both to follow it. " +
	"Paths are relative to the work directory."

// NewHandler serves the tools at every path but HealthPath, over streamable HTTP. Each request stands alone: there are
// no sessions.
func NewHandler(in Sandbox, version string, log *slog.Logger) http.Handler {
	server := mcp.NewServer(&mcp.Implementation{Name: "sandyard-sandbox", Version: version}, &mcp.ServerOptions{
		Instructions: instructions, Capabilities: &mcp.ServerCapabilities{Tools: &mcp.ToolCapabilities{}},
	})
	b := newBox(in)
	for _, set := range toolset.Sets() {
		for _, t := range set.Tools {
			server.AddTool(t.About, handler(b, t, log))
		}
	}
	library := mcp.NewStreamableHTTPHandler(
		func(*http.Request) *mcp.Server { return server },
		&mcp.StreamableHTTPOptions{
			Stateless: true, MaxRequestBodyBytes: maxBody,
			DisableLocalhostProtection: true, // requests come from outside over the loopback, with the name of the port's URL
		},
	)
	mux := http.NewServeMux()
	mux.HandleFunc(
		"GET "+HealthPath,
		func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) },
	)
	mux.Handle("/", bounded(noPages(library)))
	return mux
}

// noPages refuses pages of browsers: one in the sandbox's own could make its name mean this machine. Only they send
// Origin.
func noPages(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Origin") != "" {
			http.Error(w, "pages of browsers may not use these tools; use an MCP client", http.StatusForbidden)
			return
		}
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), goneKey{}, r.Context())))
	})
}

// goneKey is of the context that ends with the client: that of a handler does not.
type goneKey struct{}

// gone says whether the client is, and not only its call's time.
func gone(ctx context.Context) bool {
	client, ok := ctx.Value(goneKey{}).(context.Context)
	return ok && client.Err() != nil || !ok && ctx.Err() != nil
}

func bounded(next http.Handler) http.Handler {
	room := semaphore.NewWeighted(maxBodies)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		size := min(max(r.ContentLength, maxBodies/maxRequests), maxBody)
		if r.ContentLength < 0 { // it does not say
			size = maxBody
		}
		if !room.TryAcquire(size) {
			w.Header().Set("Retry-After", "1")
			http.Error(w, "too many calls, or too large ones, are under way; try again", http.StatusServiceUnavailable)
			return
		}
		defer room.Release(size)
		next.ServeHTTP(w, r)
	})
}

func handler(b *box, t toolset.Tool, log *slog.Logger) mcp.ToolHandler {
	return func(ctx context.Context, req *mcp.CallToolRequest) (res *mcp.CallToolResult, err error) {
		defer func() {
			if p := recover(); p != nil { // the library calls handlers outside of net/http's care
				log.Error("a tool panicked", "tool", t.About.Name, "panic", p, "stack", string(debug.Stack()))
				res = wrong(
					toolset.Reject(
						"internal_error",
						"the tool failed; see the log of the tools' server in the sandbox",
					),
				)
			}
		}()
		ctx, done := callOf(ctx)
		defer done()
		out, err := t.Call(ctx, b, json.RawMessage(req.Params.Arguments))
		if err != nil {
			return wrong(err), nil
		}
		return out.Result(), nil
	}
}

// callOf is a context that ends with a call's time or its client.
func callOf(ctx context.Context) (context.Context, func()) {
	gone, ok := ctx.Value(goneKey{}).(context.Context)
	ctx, cancel := context.WithTimeout(ctx, toolset.MaxCall-time.Second)
	if !ok {
		return ctx, cancel
	}
	stop := context.AfterFunc(gone, cancel)
	return ctx, func() { stop(); cancel() }
}

// wrong is an error as the model sees it.
func wrong(err error) *mcp.CallToolResult {
	code, text := "internal_error", err.Error()
	own, inside := (*toolset.Error)(nil), (*providers.Error)(nil)
	switch {
	case errors.As(err, &own):
		code, text = own.Code, own.Text
	case errors.As(err, &inside):
		code, text = string(inside.Class), inside.Message
	}
	res := (&toolset.Answer{Text: code + ": " + text, Fields: map[string]any{
		"error": map[string]string{"code": code, "message": text},
	}}).Result()
	res.IsError = true
	return res
}
