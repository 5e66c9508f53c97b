package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"time"

	"sandyard/providers"
	"sandyard/providers/codecontext"
)

// InsidePort in a pass leads to no port but to what the worker itself knows of a sandbox's inside. No caller from
// outside can ask for it.
const InsidePort = 0

// Headers of an answer with output.
const (
	BeginHeader = "Sandyard-Begin" // offset of the body's first byte
	ExecHeader  = "Sandyard-Exec"  // the exec, as JSON
)

// maxInsideWait bounds how long one request waits for something to happen.
const maxInsideWait = 2 * time.Minute

// insideRoutes answer questions about execs, and stream files, which the API's process passes on for users: no job, and
// no slot of the worker, is held while somebody waits for output or for bytes.
func (g *Gateway) insideRoutes() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /execs", g.listExecs)
	mux.HandleFunc("GET /execs/{id}", g.showExec)
	mux.HandleFunc("GET /execs/{id}/output", g.readOutput)
	mux.HandleFunc("GET /contexts", g.listContexts)
	mux.HandleFunc("GET /gauge", g.gauge)
	mux.HandleFunc("GET /files/raw", g.readFile)
	mux.HandleFunc("PUT /files/raw", g.writeFile)
	mux.HandleFunc("GET /files/tree", g.readTree)
	mux.HandleFunc("PUT /files/tree", g.writeTree)
	mux.HandleFunc("GET /files/watch", g.watchFiles)
	mux.HandleFunc("GET /terminal", g.openTerminal)
	return mux
}

func (g *Gateway) listExecs(w http.ResponseWriter, r *http.Request) {
	b, err := g.background(r.Context())
	if err != nil {
		g.refuseInside(w, r, err)
		return
	}
	list, err := b.Execs(r.Context())
	if err != nil {
		g.refuseInside(w, r, err)
		return
	}
	answerJSON(w, slices.DeleteFunc(list, func(e providers.Exec) bool { return codecontext.IsContext(e.ID) }))
}

func (g *Gateway) listContexts(w http.ResponseWriter, r *http.Request) {
	box, err := g.Open(r.Context(), targetOf(r.Context()).sandbox)
	var in codecontext.Box
	if err == nil {
		in, err = codecontext.In(box)
	}
	var list []codecontext.Context
	if err == nil {
		list, err = codecontext.List(r.Context(), in)
	}
	if err != nil {
		g.refuseInside(w, r, err)
		return
	}
	answerJSON(w, list)
}

// gauge says what the sandbox uses at this moment.
func (g *Gateway) gauge(w http.ResponseWriter, r *http.Request) {
	box, err := g.Open(r.Context(), targetOf(r.Context()).sandbox)
	var now providers.Gauged
	if err == nil {
		in, ok := box.(providers.Gauge)
		if !ok {
			err = providers.NotSupported.Errorf("this provider does not report resource usage")
		} else {
			now, err = in.Gauge(r.Context())
		}
	}
	if err != nil {
		g.refuseInside(w, r, err)
		return
	}
	answerJSON(w, now)
}

func (g *Gateway) showExec(w http.ResponseWriter, r *http.Request) {
	b, err := g.background(r.Context())
	if err != nil {
		g.refuseInside(w, r, err)
		return
	}
	e, err := b.Exec(r.Context(), r.PathValue("id"), waitOf(r))
	if err != nil {
		g.refuseInside(w, r, err)
		return
	}
	answerJSON(w, e)
}

func (g *Gateway) readOutput(w http.ResponseWriter, r *http.Request) {
	b, err := g.background(r.Context())
	if err != nil {
		g.refuseInside(w, r, err)
		return
	}
	q := providers.OutputQuery{
		Stream: providers.Stream(number(r, "stream")), Offset: number(r, "offset"), Max: int(number(r, "max")), Wait: waitOf(r),
	}
	out, err := b.Output(r.Context(), r.PathValue("id"), q)
	if err != nil {
		g.refuseInside(w, r, err)
		return
	}
	report, err := json.Marshal(out.Exec)
	if err != nil {
		g.refuseInside(w, r, err)
		return
	}
	w.Header().Set(BeginHeader, strconv.FormatInt(out.Begin, 10))
	w.Header().Set(ExecHeader, string(report))
	w.Header().Set("Content-Type", "application/octet-stream")
	_, _ = w.Write(out.Data) // a caller that is gone needs no answer
}

// background opens the sandbox that the request's pass names.
func (g *Gateway) background(ctx context.Context) (providers.Background, error) {
	box, err := g.Open(ctx, targetOf(ctx).sandbox)
	if err != nil {
		return nil, err
	}
	b, ok := box.(providers.Background)
	if !ok {
		return nil, providers.NotSupported.Errorf("this provider does not support background execs")
	}
	return b, nil
}

func waitOf(r *http.Request) time.Duration {
	return min(time.Duration(number(r, "wait_ms"))*time.Millisecond, maxInsideWait)
}

// number is a parameter that the API's process has checked.
func number(r *http.Request, name string) int64 {
	n, err := strconv.ParseInt(r.URL.Query().Get(name), 10, 64)
	if err != nil || n < 0 {
		return 0
	}
	return n
}

// InsideError is the body of an answer about an inside that did not succeed.
type InsideError struct {
	Class   providers.Class `json:"class"`
	Message string          `json:"message"`
}

func (g *Gateway) refuseInside(w http.ResponseWriter, r *http.Request, err error) {
	e := providers.AsError(err)
	status := http.StatusBadGateway
	switch {
	case errors.Is(err, providers.ErrNoExec):
		status = http.StatusNotFound
	case r.Context().Err() == nil:
		g.Log.DebugContext(r.Context(), "query to a sandbox failed", "sandbox_id", targetOf(r.Context()).sandbox, "error", err)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(InsideError{e.Class, e.Message}) // a caller that is gone needs no answer
}
