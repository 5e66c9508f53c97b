package gateway

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"sandyard/providers"
)

// watchKeepalive is how long a stream of events may be silent.
const watchKeepalive = 15 * time.Second

// watchFiles streams what happens in a directory as server-sent events: "ready" once, "change" for each change, and in
// the end "overflow" where changes were lost, or "end" with the reason.
func (g *Gateway) watchFiles(w http.ResponseWriter, r *http.Request) {
	box, ok := g.sandbox(w, r)
	if !ok {
		return
	}
	watcher, ok := box.(providers.Watcher)
	if !ok {
		g.refuse(w, r, providers.NotSupported.Errorf("this provider does not support watching directories"))
		return
	}
	query := r.URL.Query()
	watched, stop := begin(r.Context(), watcher, query.Get("path"), query.Get("recursive") == "true" || query.Get("recursive") == "1")
	defer stop()
	select {
	case <-watched.events: // ready
	case err := <-watched.ended:
		g.refuse(w, r, err)
		return
	}
	out := sse{w, http.NewResponseController(w)}
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Accel-Buffering", "no")
	out.stream(r.Context(), watched)
}

// watching is a watch in a goroutine of its own.
type watching struct {
	events chan providers.FileEvent
	ended  chan error
}

func begin(ctx context.Context, watcher providers.Watcher, path string, recursive bool) (w watching, stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	w = watching{make(chan providers.FileEvent), make(chan error, 1)}
	over := make(chan struct{})
	go func() {
		defer close(over)
		w.ended <- watcher.Watch(ctx, path, recursive, func(e providers.FileEvent) error {
			select {
			case w.events <- e:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		})
	}()
	return w, func() {
		cancel()
		<-over
	}
}

type sse struct {
	w       http.ResponseWriter
	control *http.ResponseController
}

func (s sse) stream(ctx context.Context, from watching) {
	tick := time.NewTicker(watchKeepalive)
	defer tick.Stop()
	err := s.send("ready", struct{}{})
	for err == nil {
		select {
		case e := <-from.events:
			err = s.send("change", e)
		case why := <-from.ended:
			s.end(providers.AsError(why))
			return
		case <-tick.C:
			_, err = fmt.Fprint(s.w, ":\n\n")
			_ = s.control.Flush() // the next write says what is wrong
		case <-ctx.Done():
			return
		}
	}
}

func (s sse) end(why *providers.Error) {
	name := "end"
	if why.Class == providers.TooLarge {
		name = "overflow"
	}
	_ = s.send(name, struct { // a client that is gone needs no reason
		Code   string `json:"code"`
		Detail string `json:"detail"`
	}{string(why.Class), why.Message})
}

func (s sse) send(name string, data any) error {
	text, err := json.Marshal(data)
	if err != nil {
		return err
	}
	if _, err := fmt.Fprintf(s.w, "event: %s\ndata: %s\n\n", name, text); err != nil {
		return err
	}
	return s.control.Flush()
}
