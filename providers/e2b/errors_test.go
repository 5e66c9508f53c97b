package e2b_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"strings"
	"testing"
	"time"

	"sandyard/providers"
	"sandyard/providers/e2b"
	"sandyard/providers/providertest/fixture"
	"sandyard/providers/remote/remotetest"
)

// leaky is what a vendor's error may hold and no error of ours.
const leaky = " key " + apiKey + " token " + envdToken

func clean(t *testing.T, err error, log string) {
	t.Helper()
	remotetest.Clean(t, err, log, []string{apiKey, envdToken, apiKey[:24], "traffic-"}, " key ")
}

func body(message string) string { return fmt.Sprintf(`{"code":1,"message":%q}`, message+leaky) }

func coded(code string) string {
	return fmt.Sprintf(`{"code":1,"message":%q,"error_code":%q}`, "x"+leaky, code)
}

// Operations of the API.
const (
	create, list, get, remove = "POST /sandboxes", "GET /v2/sandboxes", "GET {id}", "DELETE {id}"
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

// refusals has a row for each of E2B's errors.
func refusals() []refused {
	dated := []string{"Retry-After", "Thu, 26 Nov 2026 12:01:30 GMT", "Date", "Thu, 26 Nov 2026 12:00:00 GMT"}
	soon := []string{"Retry-After", "2"}
	return []refused{
		{create, 400, body("Timeout cannot be greater than 1 hours"), nil, providers.Invalid, 0},
		{create, 400, body("Max instance length exceeded"), nil, providers.Invalid, 0},
		{create, 400, body("bad template"), nil, providers.Invalid, 0},
		{create, 401, body("Invalid API key"), nil, providers.Refused, 0},
		{create, 403, body("team is blocked"), nil, providers.Refused, 0},
		{create, 404, body("template 'base' not found"), nil, providers.ImageMissing, 0},
		{create, 402, body("pay"), nil, providers.Quota, 0},
		{create, 409, body("conflict"), nil, providers.Busy, 0},
		{create, 429, body("you have reached the maximum number of concurrent E2B sandboxes (20)"), nil, providers.Quota, 0},
		{create, 429, body("too many requests"), []string{"Retry-After", "7"}, providers.RateLimited, 7 * time.Second},
		{create, 429, body("too many requests"), dated, providers.RateLimited, 90 * time.Second},
		{create, 429, body("too many requests"), []string{"Retry-After", "1e12"}, providers.RateLimited, time.Hour},
		{create, 429, body("too many requests"), []string{"Retry-After", "-3"}, providers.RateLimited, 0},
		{create, 503, coded("sandbox_capacity_unavailable"), soon, providers.Capacity, 2 * time.Second},
		{create, 503, coded("sandbox_no_compatible_node"), nil, providers.Capacity, 0},
		{create, 504, coded("sandbox_placement_timeout"), nil, providers.Capacity, 0},
		{create, 503, "<html>busy</html>", nil, providers.Unavailable, 0},
		{create, 500, coded("sandbox_create_failed"), nil, providers.Internal, 0},
		{create, 501, body("no"), nil, providers.NotSupported, 0},
		{list, 401, body("no"), nil, providers.Refused, 0},
		{list, 502, body("no"), nil, providers.Unavailable, 0},
		{list, 500, body("no"), nil, providers.Internal, 0},
		{get, 404, body("no"), nil, providers.NotFound, 0},
		{create, 404, "<html>no</html>", nil, providers.Internal, 0}, // this and what follows: another server
		{get, 404, "", nil, providers.Internal, 0},
		{get, 404, "<html>not found</html>", nil, providers.Internal, 0},
		{get, 404, `{"status":404,"code":"route_not_found","message":"no"}`, nil, providers.Internal, 0},
		{get, 404, `{"code":"not_found","message":"no"}`, nil, providers.Internal, 0},
		{get, 404, body("no matching operation was found"), nil, providers.Internal, 0},
		{"POST {id}/pause", 404, "<html>not found</html>", nil, providers.Internal, 0},
		{remove, 404, "<html>not found</html>", nil, providers.Internal, 0},
		{get, 429, body("no"), []string{"Retry-After", "1.5"}, providers.RateLimited, 1500 * time.Millisecond},
		{get, 408, body("no"), nil, providers.Unavailable, 0},
		{remove, 403, body("no"), nil, providers.Refused, 0},
		{remove, 504, body("no"), nil, providers.Unavailable, 0},
		{"POST {id}/pause", 409, body("snapshotting"), nil, providers.Busy, 0},
		{"POST {id}/pause", 404, body("no"), nil, providers.NotFound, 0},
		{"POST {id}/connect", 409, body("changing"), nil, providers.Busy, 0},
		{"POST {id}/connect", 410, body("gone"), nil, providers.Internal, 0},
		{"POST {id}/timeout", 409, body("changing"), nil, providers.Busy, 0},
		{"POST {id}/timeout", 400, body("Timeout cannot be greater than 24 hours"), nil, providers.Invalid, 0},
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
					list:                func() error { _, err := p.List(t.Context()); return err },
					get:                 func() error { _, err := p.Open(t.Context(), spec.ID); return err },
					remove:              func() error { return p.Delete(t.Context(), spec.ID) },
					"POST {id}/pause":   func() error { return p.Pause(t.Context(), spec.ID) },
					"POST {id}/connect": func() error { return p.Resume(t.Context(), spec.ID) },
					"POST {id}/timeout": func() error { return p.SetTimeout(t.Context(), spec.ID, time.Minute) },
				}[c.operation]
			}
			text := strings.Replace(c.text, `"code":1,`, fmt.Sprintf(`"code":%d,`, c.status), 1)
			v.fault(c.operation, remotetest.Refusing(c.status, text, c.headers...))
			err := call()
			fixture.WantClass(t, err, c.class)
			if got := providers.AsError(err).RetryAfter; got != c.after {
				t.Errorf("to be tried again after %v, want %v", got, c.after)
			}
			clean(t, err, v.log.String())
		})
	}
}

// TestEveryErrorOfTheInside has a row for each error of E2B's proxy and of envd.
func TestEveryErrorOfTheInside(t *testing.T) {
	t.Parallel()
	const absent = `{"sandboxId":"x","message":"The sandbox was not found","code":502}`
	for name, c := range map[string]struct {
		status int
		text   string
		state  string // of the sandbox; empty = it is gone
		class  providers.Class
	}{
		"gone":          {502, absent, "", providers.Lost},
		"paused":        {502, absent, "paused", providers.Paused},
		"runs":          {502, absent, "running", providers.Unavailable},
		"port":          {502, `{"message":"port is not open","port":49983,"code":502}`, "running", providers.Unavailable},
		"html":          {503, `<html>`, "running", providers.Unavailable},
		"html 200":      {200, `<html>`, "running", providers.Unavailable},
		"token":         {401, `{"code":401,"message":"unauthorized"}`, "running", providers.Internal},
		"user":          {401, `{"code":401,"message":"invalid username: 'x'"}`, "running", providers.NoUser},
		"user, connect": {401, `{"code":"unauthenticated","message":"invalid username: 'x'"}`, "running", providers.NoUser},
		"traffic":       {403, `{"code":403,"message":"missing token"}`, "running", providers.FileDenied},
		"changing":      {409, `{"code":409,"message":"still transitioning"}`, "running", providers.Busy},
		"too many":      {429, `{"code":429,"message":"too many connections"}`, "running", providers.RateLimited},
		"no space":      {507, `{"code":507,"message":"not enough disk space"}`, "running", providers.NoSpace},
		"internal":      {500, `{"code":"internal","message":"x"}`, "running", providers.Internal},
		"unimplemented": {501, `{"code":"unimplemented","message":"x"}`, "running", providers.NotSupported},
		"redirect":      {302, ``, "running", providers.Unavailable},
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
			v.mu.Lock()
			if v.boxes[0].State = c.state; c.state == "" {
				v.boxes = nil
			}
			v.inside = func(w http.ResponseWriter, r *http.Request) {
				if strings.HasSuffix(r.URL.Path, "/health") && c.state == "running" {
					w.WriteHeader(204)
					return
				}
				remotetest.Refusing(c.status, c.text)(w, r)
			}
			v.mu.Unlock()
			_, err = box.Stat(t.Context(), "f")
			if c.class == providers.FileDenied { // of which the sandbox is asked more
				fixture.WantClass(t, err, providers.FileDenied)
				return
			}
			fixture.WantClass(t, err, c.class)
			if c.status == 500 || c.status == 401 {
				return // the same for commands, as far as their stream tells
			}
			_, err = box.Run(t.Context(), providers.Command{Name: "job1", Shell: "true"})
			if e := providers.AsError(err); err == nil || e.Class != c.class && e.Class != providers.Unavailable {
				t.Errorf("a command: got %v, want class %s", err, c.class)
			}
			clean(t, err, v.log.String())
		})
	}
}

// hostileAnswers are of a server that is none, or means harm.
func hostileAnswers() map[string]http.HandlerFunc {
	all := remotetest.HostileAnswers()
	maps.Copy(all, map[string]http.HandlerFunc{
		"html 201":        remotetest.Refusing(201, "<html>"),
		"an error inside": remotetest.Refusing(200, `{"code":500,"message":"failed"}`),
		"no id":           remotetest.Refusing(201, `{"templateID":"base"}`),
		"an id as a path": remotetest.Refusing(201, `{"sandboxID":"../../admin","envdAccessToken":"x"}`),
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
				"GET {id}":          func(ctx context.Context) error { _, err := p.Open(ctx, "box1"); return err },
				"GET /v2/sandboxes": func(ctx context.Context) error { _, err := p.List(ctx); return err },
				"POST /sandboxes": func(ctx context.Context) error {
					_, err := p.Create(ctx, providers.Spec{ID: "box2"})
					return err
				},
				"POST {id}/connect": func(ctx context.Context) error { return p.Resume(ctx, "box1") },
			} {
				if operation == "GET /v2/sandboxes" && name == "null" {
					continue // which is an empty list
				}
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
	v.fault("GET /v2/sandboxes", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Next-Token", "again")
		v.fault("GET /v2/sandboxes", func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("X-Next-Token", "again")
			remotetest.Tell(w, 200, []any{})
		})
		remotetest.Tell(w, 200, []any{})
	})
	_, err := p.List(t.Context())
	fixture.WantClass(t, err, providers.Internal)
}

func TestBadSettings(t *testing.T) {
	t.Parallel()
	good := e2b.Config{APIKey: apiKey, Fleet: "f"}
	for name, change := range map[string]func(*e2b.Config){
		"E2B_API_KEY":     func(c *e2b.Config) { c.APIKey = "" },
		"no key has":      func(c *e2b.Config) { c.APIKey = "a b\n" },
		"SANDYARD_FLEET":  func(c *e2b.Config) { c.Fleet = "" },
		"E2B_API_URL":     func(c *e2b.Config) { c.URL = "api.e2b.app" },
		"without user":    func(c *e2b.Config) { c.URL = "https://user:secret@api.e2b.app" },
		"E2B_SANDBOX_URL": func(c *e2b.Config) { c.DataURL = "ftp://x" },
		"E2B_DOMAIN":      func(c *e2b.Config) { c.Domain = "e2b.app/x" },
		"E2B_TIMEOUT":     func(c *e2b.Config) { c.Timeout = time.Millisecond },
	} {
		c := good
		change(&c)
		_, err := e2b.New(c)
		fixture.WantClass(t, err, providers.Invalid)
		if err != nil && (!strings.Contains(err.Error(), name) || strings.Contains(err.Error(), "secret")) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if p, err := e2b.New(good); err != nil || p.Close() != nil {
		t.Error(err)
	}
}
