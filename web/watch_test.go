package web_test

import (
	"bufio"
	"context"
	"net/http"
	"strings"
	"testing"

	"sandyard/dev/testenv"
	"sandyard/providers"
	"sandyard/providers/fake"
)

// watched gives the fake provider's sandboxes a watch that tells what the test says.
type watched struct {
	*fake.Provider
	script chan func(tell func(providers.FileEvent) error) error
}

type watchedBox struct {
	providers.Sandbox
	script chan func(tell func(providers.FileEvent) error) error
}

func (p watched) Open(ctx context.Context, id string) (providers.Sandbox, error) {
	box, err := p.Provider.Open(ctx, id)
	if err != nil {
		return nil, err
	}
	return watchedBox{box, p.script}, nil
}

// Watch implements providers.Watcher.
func (b watchedBox) Watch(ctx context.Context, path string, recursive bool, tell func(providers.FileEvent) error) error {
	if path == "none" {
		return providers.FileNotFound.Errorf("there is no %s", path)
	}
	if err := tell(providers.FileEvent{Op: providers.FileReady}); err != nil {
		return err
	}
	for {
		select {
		case step := <-b.script:
			if err := step(tell); err != nil {
				return err
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func TestWatch(t *testing.T) {
	t.Parallel()
	script := make(chan func(tell func(providers.FileEvent) error) error)
	r := newInsideRigOn(t, func(p *fake.Provider) providers.Provider { return watched{p, script} })
	r.call("GET", r.path("/files/watch", "path=none"), nil).problem(t, 404, "file_not_found")
	for _, end := range []struct {
		class providers.Class
		want  string
	}{{providers.TooLarge, "overflow"}, {providers.FileNotFound, "end"}} {
		res := r.stream(r.path("/files/watch", "path=d&recursive=true"))
		lines := bufio.NewScanner(res.Body)
		wantLines(t, lines, "event: ready", "data: {}", "")
		script <- func(tell func(providers.FileEvent) error) error {
			return tell(providers.FileEvent{Op: providers.FileCreated, Name: "a/b"})
		}
		wantLines(t, lines, "event: change", `data: {"op":"create","name":"a/b"}`, "")
		script <- func(func(providers.FileEvent) error) error { return end.class.Errorf("no more") }
		wantLines(t, lines, "event: "+end.want, `data: {"code":"`+string(end.class)+`","detail":"no more"}`, "")
		if lines.Scan() {
			t.Errorf("it goes on with %q", lines.Text())
		}
		res.Body.Close()
	}
	res := r.stream(r.path("/files/watch", "path=d"))
	wantLines(t, bufio.NewScanner(res.Body), "event: ready")
	res.Body.Close()
	testenv.Eventually(t, "a watch ends with its client", func() bool { return r.open.Load() == 0 })
	res = r.stream(r.path("/files/watch", "path=d"))
	defer res.Body.Close()
	r.shutdown() // which does not wait for the watch
}

func wantLines(t *testing.T, from *bufio.Scanner, want ...string) {
	t.Helper()
	for _, line := range want {
		for from.Scan() && strings.HasPrefix(from.Text(), ":") { // a sign of life
			from.Scan()
		}
		if from.Text() != line {
			t.Fatalf("got %q, want %q (%v)", from.Text(), line, from.Err())
		}
	}
}

// stream makes a request and returns once the answer begins.
func (r *insideRig) stream(path string) *http.Response {
	r.t.Helper()
	req := must(http.NewRequest(http.MethodGet, r.url+path, nil))(r.t)
	req.Header.Set("Authorization", "Bearer "+r.key)
	res := must(r.client.Do(req))(r.t)
	if res.StatusCode != http.StatusOK || res.Header.Get("Content-Type") != "text/event-stream" {
		r.t.Fatalf("%d %v", res.StatusCode, res.Header)
	}
	return res
}
