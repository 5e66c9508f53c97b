package web

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humafiber"

	"sandyard/models"
	"sandyard/web/middleware"
)

const (
	// buildLogPoll is how often a followed log is read on.
	buildLogPoll = 300 * time.Millisecond
	// buildLogStay is how long one answer follows: shorter than the server takes to write one. Clients of event streams
	// come back by themselves and go on where they were.
	buildLogStay = 50 * time.Second
)

type buildLogInput struct {
	Name        string `path:"name"`
	ID          string `path:"id"`
	Follow      bool   `query:"follow" doc:"Stream the log as server-sent events until the build ends: log events with a JSON string, then one end event with the state. A response lasts 50 s; reconnect with Last-Event-ID"`
	LastEventID int64  `header:"Last-Event-ID" doc:"Id of the last event that you received"`
}

func (s *Server) addBuildLog() {
	op := operation("get-build-log", http.MethodGet, buildPath+"/log", tagTemplates, "Get or follow a build's log")
	op.Description = "The output of the steps, at most 1 MiB, with a line per step."
	op.Responses = map[string]*huma.Response{"200": {Description: "The log", Content: map[string]*huma.MediaType{
		"text/plain": {}, "text/event-stream": {},
	}}}
	register(s, op, s.buildLog)
}

func (s *Server) buildLog(ctx context.Context, in *buildLogInput) (*huma.StreamResponse, error) {
	b, _, err := s.build(ctx, in.Name, in.ID)
	if err != nil {
		return nil, err
	}
	if in.Follow {
		leave, err := s.streams.Enter(b.TenantID)
		if err != nil {
			return nil, err
		}
		return &huma.StreamResponse{Body: func(c huma.Context) { s.followBuild(ctx, c, b, in.LastEventID, leave) }}, nil
	}
	chunks, err := s.store.BuildLog(ctx, b.ID, 0)
	if err != nil {
		return nil, err
	}
	return &huma.StreamResponse{Body: func(c huma.Context) {
		c.SetHeader("Content-Type", "text/plain; charset=utf-8")
		for _, piece := range chunks {
			if _, err := c.BodyWriter().Write(piece.Data); err != nil {
				return
			}
		}
	}}, nil
}

func (s *Server) followBuild(ctx context.Context, c huma.Context, b models.Build, after int64, leave func()) {
	c.SetHeader("Content-Type", "text/event-stream")
	c.SetHeader("Cache-Control", "no-cache")
	humafiber.Unwrap(c).Context().SetBodyStreamWriter(func(w *bufio.Writer) {
		defer leave()
		ctx, cancel := context.WithTimeout(ctx, buildLogStay)
		defer cancel()
		defer s.onQuit(cancel)()
		defer s.open.enter(&keyStream{key: middleware.RequestOf(ctx).Key, end: cancel})()
		fmt.Fprint(w, "retry: 100\n\n") // what cannot be written shows at the flush
		for w.Flush() == nil && ctx.Err() == nil {
			ended, err := s.writeEvents(ctx, w, b, &after)
			if ended || err != nil {
				_ = w.Flush() // who has gone needs nothing
				return
			}
			select {
			case <-time.After(buildLogPoll):
			case <-ctx.Done():
			}
		}
	})
}

// writeEvents writes what is new, and says whether that was all.
func (s *Server) writeEvents(ctx context.Context, w *bufio.Writer, b models.Build, after *int64) (ended bool, err error) {
	j, err := s.store.Job(ctx, b.TenantID, b.JobID) // first: what its end has left is read below
	if err != nil {
		return false, err
	}
	chunks, err := s.store.BuildLog(ctx, b.ID, *after)
	if err != nil {
		return false, err
	}
	for _, piece := range chunks {
		text, err := json.Marshal(strings.ToValidUTF8(string(piece.Data), "\uFFFD"))
		if err != nil {
			return false, err
		}
		*after = piece.Seq
		fmt.Fprintf(w, "id: %d\nevent: log\ndata: %s\n\n", piece.Seq, text)
	}
	if j.State.Terminal() {
		fmt.Fprintf(w, "event: end\ndata: {\"state\":%q}\n\n", j.State)
	}
	return j.State.Terminal(), nil
}
