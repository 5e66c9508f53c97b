package v1

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humafiber"

	"sandyard/models"
	"sandyard/web/middleware"
	"sandyard/web/rest"
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

// logs has the routes of logs that grow while they are read.
type logs struct{ *core }

func (s *logs) addBuildLog() {
	op := rest.Operation("get-build-log", "GET "+buildPath+"/log", tagTemplates, "Get or follow a build's log")
	op.Description = "The output of the steps, at most 1 MiB, with a line per step."
	op.Responses = map[string]*huma.Response{"200": {Description: "The log", Content: map[string]*huma.MediaType{
		"text/plain": {}, "text/event-stream": {},
	}}}
	rest.Register(s.api, op, s.buildLog)
	op = rest.Operation("get-setup-log", "GET /v1/sandboxes/{id}/setup-log", tagSandboxes,
		"Get or follow what a new sandbox's git and setup write")
	op.Description = "The output of the clone and then of the setup script, at most 1 MiB of each."
	op.Responses = map[string]*huma.Response{"200": {Description: "The log", Content: map[string]*huma.MediaType{
		"text/plain": {}, "text/event-stream": {},
	}}}
	rest.Register(s.api, op, s.setupLog)
}

func (s *logs) buildLog(ctx context.Context, in *buildLogInput) (*huma.StreamResponse, error) {
	b, _, err := s.build(ctx, in.Name, in.ID)
	if err != nil {
		return nil, err
	}
	return s.answerLog(ctx, logOf{
		tenant: b.TenantID,
		read: func(ctx context.Context, after int64) ([]models.LogChunk, error) {
			return s.Store.BuildLog(ctx, b.ID, after)
		},
		state: func(ctx context.Context) (string, bool, error) {
			j, err := s.Store.Job(ctx, b.TenantID, b.JobID)
			return string(j.State), j.State.Terminal(), err
		},
	}, in.Follow, in.LastEventID)
}

type setupLogInput struct {
	ID          string `path:"id"`
	Follow      bool   `query:"follow" doc:"Stream the log as server-sent events until the sandbox has been created: log events with a JSON string, then one end event with the sandbox's state. A response lasts 50 s; reconnect with Last-Event-ID"`
	LastEventID int64  `header:"Last-Event-ID" doc:"Id of the last event that you received"`
}

func (s *logs) setupLog(ctx context.Context, in *setupLogInput) (*huma.StreamResponse, error) {
	tenant := middleware.RequestOf(ctx).Tenant
	if _, err := s.Store.Sandbox(ctx, tenant, in.ID); err != nil {
		return nil, err
	}
	return s.answerLog(ctx, logOf{
		tenant: tenant,
		read: func(ctx context.Context, after int64) ([]models.LogChunk, error) {
			return s.Store.SetupLog(ctx, in.ID, after)
		},
		state: func(ctx context.Context) (string, bool, error) {
			box, err := s.Store.Sandbox(ctx, tenant, in.ID)
			return string(box.State), box.State != models.SandboxCreating, err
		},
	}, in.Follow, in.LastEventID)
}

// logOf is a log that is written while something is made.
type logOf struct {
	tenant string
	read   func(ctx context.Context, after int64) ([]models.LogChunk, error)
	state  func(context.Context) (state string, ended bool, err error) // of what is made
}

func (s *logs) answerLog(ctx context.Context, of logOf, follow bool, after int64) (*huma.StreamResponse, error) {
	if follow {
		leave, err := s.Bridge.Enter(of.tenant)
		if err != nil {
			return nil, err
		}
		return &huma.StreamResponse{Body: func(c huma.Context) { s.followLog(ctx, c, of, after, leave) }}, nil
	}
	chunks, err := of.read(ctx, 0)
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

func (s *logs) followLog(ctx context.Context, c huma.Context, of logOf, after int64, leave func()) {
	c.SetHeader("Content-Type", "text/event-stream")
	c.SetHeader("Cache-Control", "no-cache")
	humafiber.Unwrap(c).Context().SetBodyStreamWriter(func(w *bufio.Writer) {
		defer leave()
		ctx, cancel := context.WithTimeout(ctx, buildLogStay)
		defer cancel()
		defer s.OnQuit(cancel)()
		defer s.Bridge.Until(middleware.RequestOf(ctx).Key, cancel)()
		fmt.Fprint(w, "retry: 100\n\n") // what cannot be written shows at the flush
		for w.Flush() == nil && ctx.Err() == nil {
			ended, err := of.writeEvents(ctx, w, &after)
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
func (of logOf) writeEvents(ctx context.Context, w *bufio.Writer, after *int64) (ended bool, err error) {
	state, ended, err := of.state(ctx) // first: what its end has left is read below
	if err != nil {
		return false, err
	}
	chunks, err := of.read(ctx, *after)
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
	if ended {
		fmt.Fprintf(w, "event: end\ndata: {\"state\":%q}\n\n", state)
	}
	return ended, nil
}
