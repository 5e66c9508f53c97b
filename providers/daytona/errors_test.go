package daytona_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"sandyard/providers"
	"sandyard/providers/daytona"
	"sandyard/providers/providertest/fixture"
	"sandyard/providers/remote/remotetest"
)

// leaky is what a vendor's error may hold and no error of ours.
const leaky = " vendors words " + apiKey + " token previewtoken0123456789"

func clean(t *testing.T, err error, log string) {
	t.Helper()
	remotetest.Clean(t, err, log, []string{apiKey, apiKey[:24], "previewtoken"}, "vendors words")
}

func body(message string) string {
	return fmt.Sprintf(`{"statusCode":1,"message":%q,"error":"x"}`, message+leaky)
}

// stating lets a document of body state the status that it comes with.
func stating(status int, text string) string {
	return strings.Replace(text, `"statusCode":1,`, fmt.Sprintf(`"statusCode":%d,`, status), 1)
}

func coded(code, message string) string {
	return fmt.Sprintf(`{"statusCode":1,"message":%q,"code":%q,"source":"DAYTONA_DAEMON"}`, message+leaky, code)
}

// Operations of the API.
const (
	create, list, get, remove = "POST /sandbox", "GET /sandbox", "GET {id}", "DELETE {id}"
	stop, start, ttl          = "POST {id}/stop", "POST {id}/start", "POST {id}/ttl"
)

// refused is a call of the API that is answered with an error.
type refused struct {
	operation string
	status    int
	text      string
	headers   []string
	class     providers.Class
	after     time.Duration
}

// refusals has a row for each of Daytona's errors.
func refusals() []refused {
	const absent = "Snapshot x not found. Did you add it through the Daytona Dashboard?"
	longest := []string{"Retry-After", "3", "Retry-After-authenticated", "9"}
	odd := []string{"Retry-After-sandbox-lifecycle", "1.5"}
	dated := []string{"Retry-After", "Thu, 26 Nov 2026 12:01:30 GMT", "Date", "Thu, 26 Nov 2026 12:00:00 GMT"}
	return []refused{
		{create, 400, body("Total CPU limit exceeded (10 > 4)"), nil, providers.Quota, 0},
		{create, 403, body("Total disk limit exceeded"), nil, providers.Quota, 0},
		{create, 403, body("CPU request 8 exceeds maximum allowed per sandbox (4)"), nil, providers.Invalid, 0},
		{create, 402, body("pay"), nil, providers.Quota, 0},
		{create, 429, body("quota of sandboxes"), nil, providers.Quota, 0},
		{create, 400, `{"statusCode":400,"message":["name must be a string","x"]}`, nil, providers.Invalid, 0},
		{create, 422, body("unprocessable"), nil, providers.Invalid, 0},
		{create, 400, body("Region us not found"), nil, providers.Invalid, 0},
		{create, 400, body(absent), nil, providers.ImageMissing, 0},
		{create, 404, body("no"), nil, providers.ImageMissing, 0},
		{create, 400, body("No available runners"), nil, providers.Capacity, 0},
		{create, 503, body("no runner"), []string{"Retry-After", "2"}, providers.Capacity, 2 * time.Second},
		{create, 401, body("Invalid credentials"), nil, providers.Refused, 0},
		{create, 403, body("Organization is suspended"), nil, providers.Refused, 0},
		{create, 429, body("Rate limit exceeded"), nil, providers.RateLimited, 0},
		{create, 429, body("slow down"), []string{"Retry-After-sandbox-create", "7"}, providers.RateLimited, 7 * time.Second},
		{create, 429, body("slow down"), longest, providers.RateLimited, 9 * time.Second},
		{create, 429, body("slow down"), dated, providers.RateLimited, 90 * time.Second},
		{create, 429, body("slow down"), []string{"Retry-After", "1e12"}, providers.RateLimited, time.Hour},
		{create, 501, body("no"), nil, providers.NotSupported, 0},
		{create, 500, body("no"), nil, providers.Internal, 0},
		{create, 502, "<html>bad gateway</html>", nil, providers.Unavailable, 0},
		{list, 401, body("no"), nil, providers.Refused, 0},
		{list, 504, body("no"), nil, providers.Unavailable, 0},
		{list, 500, "", nil, providers.Internal, 0},
		{list, 404, body("Cannot GET /sandbox"), nil, providers.Internal, 0}, // another API
		{create, 404, "<html>no</html>", nil, providers.Internal, 0},         // this and what follows: another server
		{get, 404, body("Cannot GET /sandbox/x"), nil, providers.Internal, 0},
		{get, 404, "", nil, providers.Internal, 0},
		{get, 404, "<html>not found</html>", nil, providers.Internal, 0},
		{get, 404, `{"status":404,"code":"route_not_found","message":"no"}`, nil, providers.Internal, 0},
		{get, 404, `{"statusCode":500,"message":"not found"}`, nil, providers.Internal, 0},
		{get, 404, `{"statusCode":404}`, nil, providers.Internal, 0},
		{get, 404, `[]`, nil, providers.Internal, 0},
		{get, 410, "gone", nil, providers.Internal, 0},
		{stop, 404, "<html>not found</html>", nil, providers.Internal, 0},
		{remove, 404, "<html>not found</html>", nil, providers.Internal, 0},
		{ttl, 404, body("no"), nil, providers.NotSupported, 0},
		{get, 404, body("Sandbox with ID or name x not found"), nil, providers.NotFound, 0},
		{get, 410, body("gone"), nil, providers.NotFound, 0},
		{get, 429, body("slow down"), odd, providers.RateLimited, 1500 * time.Millisecond},
		{get, 408, body("no"), nil, providers.Unavailable, 0},
		{remove, 403, body("no"), nil, providers.Refused, 0},
		{remove, 400, body("Sandbox state change in progress"), nil, providers.Busy, 0},
		{remove, 409, body("no"), nil, providers.Busy, 0},
		{remove, 425, body("no"), nil, providers.Busy, 0},
		{stop, 409, body("state change in progress"), nil, providers.Busy, 0},
		{stop, 404, body("no"), nil, providers.NotFound, 0},
		{stop, 502, body("no"), nil, providers.Unavailable, 0},
		{start, 400, body("Total memory limit exceeded"), nil, providers.Quota, 0},
		{start, 403, body("Organization is suspended"), nil, providers.Refused, 0},
		{ttl, 400, body("bad"), nil, providers.Invalid, 0},
		{ttl, 429, body("slow down"), nil, providers.RateLimited, 0},
	}
}

// TestEveryErrorOfTheAPI looks at each.
func TestEveryErrorOfTheAPI(t *testing.T) {
	t.Parallel()
	for _, c := range refusals() {
		t.Run(fmt.Sprintf("%s %d", c.operation, c.status), func(t *testing.T) {
			t.Parallel()
			v := newVendor(t)
			p := v.open()
			spec := providers.Spec{ID: "box1"}
			call := func() error { _, err := p.Create(t.Context(), spec); return err }
			if c.operation != create {
				if err := call(); err != nil {
					t.Fatal(err)
				}
				call = map[string]func() error{
					list:   func() error { _, err := p.List(t.Context()); return err },
					get:    func() error { _, err := p.Open(t.Context(), spec.ID); return err },
					remove: func() error { return p.Delete(t.Context(), spec.ID) },
					stop:   func() error { return p.Pause(t.Context(), spec.ID) },
					start:  func() error { return p.Resume(t.Context(), spec.ID) },
					ttl:    func() error { return p.SetTimeout(t.Context(), spec.ID, time.Minute) },
				}[c.operation]
			}
			if c.operation == start {
				v.change(func() { v.boxes[0].State = "stopped" })
			}
			v.always(c.operation, remotetest.Refusing(c.status, stating(c.status, c.text), c.headers...))
			err := call()
			v.fault(c.operation, nil)
			fixture.WantClass(t, err, c.class)
			if got := providers.AsError(err).RetryAfter; got != c.after {
				t.Errorf("to be tried again after %v, want %v", got, c.after)
			}
			clean(t, err, v.log.String())
		})
	}
}

// TestStatesOfFailure: a sandbox that came to nothing is removed, and its state says why.
func TestStatesOfFailure(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		state, reason string
		class         providers.Class
	}{
		{"error", "something" + leaky, providers.Internal},
		{"error", "Total disk limit exceeded" + leaky, providers.Quota},
		{"error", "No available runners" + leaky, providers.Capacity},
		{"error", "failed to pull image: manifest unknown" + leaky, providers.ImageMissing},
		{"build_failed", "exit code 1" + leaky, providers.Invalid},
		{"build_failed", "image a/b not found" + leaky, providers.ImageMissing},
	} {
		v := newVendor(t)
		v.late, v.ends, v.reason = 1, c.state, c.reason
		_, err := v.open().Create(t.Context(), providers.Spec{ID: "box1"})
		fixture.WantClass(t, err, c.class)
		clean(t, err, v.log.String())
		if left := v.ids(); len(left) != 0 {
			t.Errorf("%s: left are %v", c.reason, left)
		}
	}
}

// TestEveryErrorOfTheInside has a row for each error of Daytona's proxy and of its toolbox.
func TestEveryErrorOfTheInside(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		status int
		text   string
		state  string // of the sandbox; empty = it is gone
		class  providers.Class
	}{
		"gone":               {404, ``, "", providers.Lost},
		"gone, by its proxy": {502, `<html>`, "", providers.Lost},
		"stopped":            {400, body("Sandbox is not started"), "stopped", providers.Paused},
		"stopping":           {502, body("no"), "stopping", providers.Paused},
		"archived":           {502, body("no"), "archived", providers.Paused},
		"failed":             {502, body("no"), "error", providers.Lost},
		"starting":           {503, body("no"), "starting", providers.Busy},
		"destroyed":          {410, body("no"), "destroyed", providers.Lost},
		"runs":               {502, body("no"), "started", providers.Unavailable},
		"html 200":           {200, `<html>`, "started", providers.Internal},
		"redirect":           {302, ``, "started", providers.Internal},
		"key":                {401, body("no"), "started", providers.Refused},
		"denied":             {403, body("no"), "started", providers.Refused},
		"changing":           {409, coded("CONFLICT", "no"), "started", providers.Busy},
		"too many":           {429, body("no"), "started", providers.RateLimited},
		"timeout":            {408, coded("REQUEST_TIMEOUT", "no"), "started", providers.Unavailable},
		"execution timeout":  {408, coded("PROCESS_EXECUTION_TIMEOUT", "no"), "started", providers.Unavailable},
		"no space":           {500, body("write: no space left on device"), "started", providers.NoSpace},
		"full":               {507, body("no"), "started", providers.NoSpace},
		"internal":           {500, coded("INTERNAL_SERVER_ERROR", "no"), "started", providers.Unavailable},
		"unimplemented":      {501, body("no"), "started", providers.NotSupported},
		"bad":                {400, coded("BAD_REQUEST", "no"), "started", providers.Invalid},
		"another answer":     {200, `{"exitCode":0,"result":"hello"}`, "started", providers.Unavailable},
		"no result":          {200, `{"exitCode":0}`, "started", providers.Internal},
		"an error inside":    {200, `{"statusCode":500,"message":"failed"}`, "started", providers.Internal},
		"killed":             {200, `{"exitCode":137,"result":"sandyard-begin\nYWJj"}`, "started", providers.Unavailable},
		"no such frame":      {200, `{"result":"sandyard-begin\n!!!\nsandyard-end"}`, "started", providers.Internal},
		"too much":           {200, `{"result":"` + strings.Repeat("x", 9<<20) + `"}`, "started", providers.Internal},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			v := newVendor(t)
			p := v.open()
			if _, err := p.Create(t.Context(), providers.Spec{ID: "box1"}); err != nil {
				t.Fatal(err)
			}
			box, err := p.Open(t.Context(), "box1")
			if err != nil {
				t.Fatal(err)
			}
			v.change(func() {
				if v.boxes[0].State = c.state; c.state == "" {
					v.boxes = nil
				}
				v.inside = remotetest.Refusing(c.status, c.text)
			})
			_, err = box.Run(t.Context(), providers.Command{Name: "job1", Shell: "true"})
			fixture.WantClass(t, err, c.class)
			clean(t, err, v.log.String())
			if c.class == providers.Invalid || c.class == providers.TooLarge { // of which the sandbox is asked more
				return
			}
			_, err = box.Stat(t.Context(), "f")
			fixture.WantClass(t, err, c.class)
			clean(t, err, v.log.String())
		})
	}
}

// hostileAnswers are of a server that is none, or means harm.
func hostileAnswers() map[string]http.HandlerFunc {
	all := remotetest.HostileAnswers()
	maps.Copy(all, map[string]http.HandlerFunc{
		"an error inside": remotetest.Refusing(200, `{"statusCode":500,"message":"failed"}`),
		"no id":           remotetest.Refusing(200, `{"name":"x","state":"started"}`),
		"an id as a path": remotetest.Refusing(200, `{"id":"../../admin","state":"started"}`),
		"another sandbox": remotetest.Refusing(200, `{"id":"other","name":"other","state":"started"}`),
		"no state":        remotetest.Refusing(200, `{"id":"vendor1"}`),
	})
	return all
}

// TestHostileAnswers: whatever the server says, the call ends with an error of ours, soon and with little memory.
func TestHostileAnswers(t *testing.T) {
	t.Parallel()
	for name, answer := range hostileAnswers() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			v := newVendor(t)
			p := v.open()
			if _, err := p.Create(t.Context(), providers.Spec{ID: "box1"}); err != nil {
				t.Fatal(err)
			}
			for operation, call := range map[string]func(context.Context) error{
				"GET {id}":     func(ctx context.Context) error { _, err := p.Open(ctx, "box1"); return err },
				"GET /sandbox": func(ctx context.Context) error { _, err := p.List(ctx); return err },
				"POST /sandbox": func(ctx context.Context) error {
					_, err := p.Create(ctx, providers.Spec{ID: "box2"})
					return err
				},
			} {
				v.always(operation, answer) // the transport itself repeats what is safe to
				err := call(t.Context())
				v.fault(operation, nil)
				if e := (*providers.Error)(nil); !errors.As(err, &e) ||
					e.Class != providers.Internal && e.Class != providers.Unavailable {
					t.Errorf("%s: got %v", operation, err)
				}
				clean(t, err, v.log.String())
			}
		})
	}
}

func TestPagesWithoutEnd(t *testing.T) {
	t.Parallel()
	v := newVendor(t)
	p := v.open()
	v.always("GET /sandbox", remotetest.Refusing(200, `{"items":[],"nextCursor":"again"}`))
	_, err := p.List(t.Context())
	fixture.WantClass(t, err, providers.Internal)
	if asked := v.calls(); len(asked) > 3 {
		t.Errorf("it asked %d times for the same page", len(asked))
	}
}

// TestTheKeyStaysWithDaytona: a toolbox that is somewhere inside, or has no proper URL, is not asked.
func TestTheKeyStaysWithDaytona(t *testing.T) {
	t.Parallel()
	inside, err := net.Listen("tcp", "127.0.0.2:0") // another address than the API's
	if err != nil {
		t.Fatal(err)
	}
	met := make(chan struct{}, 100)
	served := make(chan struct{})
	go func() {
		defer close(served)
		for {
			conn, err := inside.Accept()
			if err != nil {
				return
			}
			met <- struct{}{}
			_ = conn.Close()
		}
	}()
	defer func() {
		_ = inside.Close()
		<-served
		if len(met) > 0 {
			t.Error("the toolbox inside was reached")
		}
	}()
	for _, at := range []string{
		"http://" + inside.Addr().String(), "https://" + inside.Addr().String() + "/toolbox", "http://169.254.169.254/latest",
		"ftp://example.com/", "//example.com/", "http://user:x@127.0.0.1/", "http://127.0.0.1/?x=y", "", "nonsense",
	} {
		v := newVendor(t)
		p := v.open()
		if _, err := p.Create(t.Context(), providers.Spec{ID: "box1"}); err != nil {
			t.Fatal(err)
		}
		v.change(func() {
			if v.toolbox = at; at == "" {
				v.toolbox = "https:"
			}
		})
		box, err := p.Open(t.Context(), "box1")
		if err == nil {
			_, err = box.Stat(t.Context(), "f")
		}
		if e := providers.AsError(err); err == nil || e.Class != providers.Internal && e.Class != providers.Unavailable {
			t.Errorf("%s: %v", at, err)
		}
	}
}

func TestBadSettings(t *testing.T) {
	t.Parallel()
	good := daytona.Config{APIKey: apiKey, Fleet: "f"}
	for name, change := range map[string]func(*daytona.Config){
		"DAYTONA_API_KEY": func(c *daytona.Config) { c.APIKey = "" },
		"no key has":      func(c *daytona.Config) { c.APIKey = "a b\n" },
		"installation":    func(c *daytona.Config) { c.Fleet = "" },
		"DAYTONA_API_URL": func(c *daytona.Config) { c.URL = "app.daytona.io/api" },
		"without user":    func(c *daytona.Config) { c.URL = "https://user:secret@app.daytona.io/api" },
		"DAYTONA_TARGET":  func(c *daytona.Config) { c.Target = "e u" },
	} {
		c := good
		change(&c)
		_, err := daytona.New(c)
		fixture.WantClass(t, err, providers.Invalid)
		if err != nil && (!strings.Contains(err.Error(), name) || strings.Contains(err.Error(), "secret")) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if p, err := daytona.New(good); err != nil || p.Close() != nil {
		t.Error(err)
	}
}
