package inside

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"sandyard/dev/testenv"
	"sandyard/providers"
	"sandyard/toolset"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// post sends one message.
func post(h http.Handler, body string, headers ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodPost, "http://6060-sb1.example.com/", strings.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", "application/json, text/event-stream")
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

const ping = `{"jsonrpc":"2.0","id":1,"method":"ping"}`

func TestPagesOfBrowsersAreRefused(t *testing.T) {
	t.Parallel()
	h := NewHandler(nil, "1", slog.New(slog.DiscardHandler))
	if w := post(h, ping); w.Code != 200 || !strings.Contains(w.Body.String(), `"result"`) {
		t.Errorf("a client: %d %s", w.Code, w.Body)
	}
	for _, origin := range []string{"http://localhost:6060", "http://6060-sb1.example.com", "null"} {
		if w := post(h, ping, "Origin", origin); w.Code != http.StatusForbidden {
			t.Errorf("a page of %s: %d %s", origin, w.Code, w.Body)
		}
	}
	if w := post(h, ping, "Content-Type", "text/plain"); w.Code < 400 { // what a page may send without asking first
		t.Errorf("a form's content: %d %s", w.Code, w.Body)
	}
	w := httptest.NewRecorder()
	if h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, HealthPath, nil)); w.Code != http.StatusNoContent {
		t.Errorf("health: %d", w.Code)
	}
}

// TestBodiesAtOnceAreBounded by their bytes, whether they say how many these are or not.
func TestBodiesAtOnceAreBounded(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		length int64
		most   int
	}{
		"small": {100, maxRequests}, "large": {maxBody, maxBodies / maxBody}, "unknown": {-1, maxBodies / maxBody},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			entered, release := make(chan struct{}), make(chan struct{})
			h := bounded(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				select {
				case entered <- struct{}{}:
					<-release
				case <-r.Context().Done():
				}
			}))
			ask := func() int {
				ctx, cancel := context.WithTimeout(t.Context(), testenv.Patience()) // of one that is let in
				defer cancel()
				r := httptest.NewRequestWithContext(ctx, http.MethodPost, "/", nil)
				r.ContentLength = c.length
				w := httptest.NewRecorder()
				h.ServeHTTP(w, r)
				return w.Code
			}
			var all sync.WaitGroup
			for range c.most {
				all.Go(func() { ask() })
				<-entered
			}
			if code := ask(); code != http.StatusServiceUnavailable {
				t.Errorf("one more than %d is answered %d", c.most, code)
			}
			close(release)
			all.Wait()
			all.Go(func() { <-entered })
			if code := ask(); code != http.StatusOK {
				t.Errorf("afterwards: %d", code)
			}
			all.Wait()
		})
	}
}

func TestPanicOfAToolIsAnError(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	h := NewHandler(nil, "1", slog.New(slog.NewTextHandler(&log, nil))) // without a sandbox every tool panics
	w := post(h, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"process_list","arguments":{}}}`)
	if w.Code != 200 || !strings.Contains(w.Body.String(), "internal_error") ||
		!strings.Contains(w.Body.String(), `"isError":true`) {
		t.Errorf("answered %d %s", w.Code, w.Body)
	}
	if !strings.Contains(log.String(), "a tool panicked") {
		t.Errorf("logged %s", log.String())
	}
}

func TestVariablesAreBounded(t *testing.T) {
	t.Parallel()
	b := newBox(nil)
	set := func(name, value string) error { return b.SetEnv(t.Context(), name, &value) }
	for _, name := range []string{"", "A B", "1A", "A=", strings.Repeat("A", 256)} {
		if set(name, "x") == nil {
			t.Errorf("%.20q is taken for a name", name)
		}
	}
	if set("A", "a\x00b") == nil || set("A", strings.Repeat("x", maxEnv)) == nil {
		t.Error("a value with NUL, or one of 128 KiB, is taken")
	}
	if set("A", strings.Repeat("x", maxVariable-len("A=\x00")+1)) == nil {
		t.Error("a variable is taken that the kernel gives to no program")
	}
	largest := set("A", strings.Repeat("x", maxVariable-len("A=\x00")))
	if err := errors.Join(largest, b.SetEnv(t.Context(), "A", nil)); err != nil {
		t.Errorf("the largest variable: %v", err)
	}
	for i := range maxEnvNames {
		if err := set(fmt.Sprintf("V%d", i), "x"); err != nil {
			t.Fatal(err)
		}
	}
	if set("MORE", "x") == nil || set("V0", "y") != nil || b.SetEnv(t.Context(), "V1", nil) != nil ||
		set("MORE", "x") != nil {
		t.Error("the bound on their number does not hold, or holds too much")
	}
	if env := b.environment(map[string]string{"V2": "own"}); len(env) != maxEnvNames || env["V0"] != "y" ||
		env["V2"] != "own" {
		t.Errorf("%d variables, V0=%q, V2=%q", len(env), env["V0"], env["V2"])
	}
	if _, err := b.Run(t.Context(), toolset.Command{Shell: "true", Timeout: -1}, 0); err == nil {
		t.Error("a timeout below zero is taken")
	}
}

// interrupted is a sandbox in which something happens while a command starts, or while it is waited for.
type interrupted struct {
	Sandbox

	starts, waits func()
	killed        []string
}

func (s *interrupted) Launch(ctx context.Context, c providers.Command) (providers.Exec, error) {
	s.starts()
	return providers.Exec{ID: c.Name, Running: true}, ctx.Err()
}

func (s *interrupted) Exec(ctx context.Context, id string, _ time.Duration) (providers.Exec, error) {
	s.waits()
	return providers.Exec{ID: id, Running: true}, ctx.Err()
}

func (s *interrupted) Kill(ctx context.Context, id string) error {
	s.killed = append(s.killed, id)
	return ctx.Err()
}

func TestCommandEndsWithItsClientAndNotWithItsCall(t *testing.T) {
	t.Parallel()
	command := toolset.Command{Shell: "sleep 1000"}
	run := func(ctx context.Context, b *box) (*toolset.Ran, error) { return b.Run(ctx, command, 0) }
	launch := func(ctx context.Context, b *box) (*toolset.Ran, error) { return b.Launch(ctx, command) }
	nothing := func() {}
	for what, do := range map[string]func(context.Context, *box) (*toolset.Ran, error){"run": run, "launch": launch} {
		client, leaves := context.WithCancel(t.Context())
		in := &interrupted{starts: leaves, waits: nothing}
		ctx, done := callOf(context.WithValue(client, goneKey{}, client))
		if _, err := do(ctx, newBox(in)); !errors.Is(err, context.Canceled) || len(in.killed) != 1 {
			t.Errorf("%s: the client left while it was starting: %v, killed %v", what, err, in.killed)
		}
		done()
	}
	client, leaves := context.WithCancel(t.Context())
	in := &interrupted{starts: nothing, waits: leaves}
	if _, err := run(context.WithValue(client, goneKey{}, client), newBox(in)); err == nil || len(in.killed) != 1 {
		t.Errorf("the client left while it ran: %v, killed %v", err, in.killed)
	}
	call, ends := context.WithCancel(context.WithValue(t.Context(), goneKey{}, t.Context()))
	in = &interrupted{starts: nothing, waits: ends}
	r, err := run(call, newBox(in))
	if err != nil || !r.Running || !strings.HasPrefix(r.ExecID, "run_") || len(in.killed) != 0 {
		t.Errorf("the call's time was over: %+v, %v, killed %v", r, err, in.killed)
	}
}
