package runloop_test

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
	"sandyard/providers/providertest/fixture"
	"sandyard/providers/remote/remotetest"
	"sandyard/providers/runloop"
)

// leaky is what a vendor's error may hold and no error of ours.
const leaky = " vendors words " + apiKey + " token tunneltoken0123456789"

func clean(t *testing.T, err error, log string) {
	t.Helper()
	remotetest.Clean(t, err, log, []string{apiKey, apiKey[:24], "tunneltoken"}, "vendors words")
}

func body(message string) string { return fmt.Sprintf(`{"message":%q}`, message+leaky) }

// Operations of the API.
const (
	create, list, get, remove = "POST /devboxes", "GET /devboxes", "GET {id}", "POST {id}/shutdown"
	suspend, resume           = "POST {id}/suspend", "POST {id}/resume"
	policies, makePolicy      = "GET /network-policies", "POST /network-policies"
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

// refusals has a row for each status and each text that counts.
func refusals() []refused {
	return []refused{
		{create, 400, body("Bad Request"), nil, providers.Invalid, 0},
		{create, 422, body("unprocessable"), nil, providers.Invalid, 0},
		{create, 400, body("blueprint base is not built"), nil, providers.ImageMissing, 0},
		{create, 404, body("no blueprint is named so"), nil, providers.ImageMissing, 0},
		{create, 402, body("pay"), nil, providers.Quota, 0},
		{create, 429, body("devbox limit reached"), nil, providers.Quota, 0},
		{create, 403, body("Account quota exceeded"), nil, providers.Quota, 0},
		{create, 429, body("rate limit exceeded"), nil, providers.RateLimited, 0},
		{create, 429, "", []string{"Retry-After", "3"}, providers.RateLimited, 3 * time.Second},
		{create, 429, "", []string{"Retry-After-Ms", "1500"}, providers.RateLimited, 1500 * time.Millisecond},
		{create, 401, body("Invalid API key"), nil, providers.Refused, 0},
		{create, 403, body("forbidden"), nil, providers.Refused, 0},
		{create, 409, body("no"), nil, providers.Busy, 0},
		{create, 503, body("no capacity"), nil, providers.Capacity, 0},
		{create, 503, body("no"), nil, providers.Unavailable, 0},
		{create, 500, body("no"), nil, providers.Internal, 0},
		{create, 501, body("no"), nil, providers.NotSupported, 0},
		{create, 502, "<html>bad gateway</html>", nil, providers.Unavailable, 0},
		{create, 404, "<html>no</html>", nil, providers.Internal, 0}, // another server
		{policies, 401, body("no"), nil, providers.Refused, 0},
		{policies, 404, body("no"), nil, providers.Internal, 0},
		{policies, 503, body("no"), nil, providers.Unavailable, 0},
		{makePolicy, 403, body("forbidden"), nil, providers.Refused, 0},
		{makePolicy, 500, body("no"), nil, providers.Internal, 0},
		{makePolicy, 409, body("the name exists"), nil, providers.Unavailable, 0}, // and is not listed yet
		{list, 401, body("no"), nil, providers.Refused, 0},
		{list, 404, body("no such path"), nil, providers.Internal, 0},
		{list, 504, body("no"), nil, providers.Unavailable, 0},
		{get, 404, body("Devbox x not found"), nil, providers.NotFound, 0},
		{get, 404, `{"message":"Not Found"}`, nil, providers.Internal, 0}, // anybody's
		{get, 404, `{"code":500,"message":"no devbox"}`, nil, providers.Internal, 0},
		{get, 404, "", nil, providers.Internal, 0},
		{get, 404, `[]`, nil, providers.Internal, 0},
		{get, 410, "gone", nil, providers.Internal, 0},
		{get, 408, body("no"), nil, providers.Unavailable, 0},
		{get, 413, body("no"), nil, providers.Invalid, 0},
		{remove, 403, body("no"), nil, providers.Refused, 0},
		{remove, 400, body("snapshots are made"), nil, providers.Busy, 0},
		{remove, 404, "<html>not found</html>", nil, providers.Internal, 0},
		{suspend, 409, body("no"), nil, providers.Busy, 0},
		{suspend, 404, body("no devbox"), nil, providers.NotFound, 0},
		{suspend, 502, body("no"), nil, providers.Unavailable, 0},
		{resume, 429, body("devbox limit reached"), nil, providers.Quota, 0},
		{resume, 400, body("no"), nil, providers.Busy, 0},
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
			if c.operation != create && c.operation != policies && c.operation != makePolicy {
				if err := call(); err != nil {
					t.Fatal(err)
				}
				call = map[string]func() error{
					list:    func() error { _, err := p.List(t.Context()); return err },
					get:     func() error { _, err := p.Open(t.Context(), spec.ID); return err },
					remove:  func() error { return p.Delete(t.Context(), spec.ID) },
					suspend: func() error { return p.Pause(t.Context(), spec.ID) },
					resume:  func() error { return p.Resume(t.Context(), spec.ID) },
				}[c.operation]
			}
			if c.operation == resume {
				v.change(func() { v.boxes[0].Status = "suspended" })
			}
			v.always(c.operation, remotetest.Refusing(c.status, c.text, c.headers...))
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

// TestFailures: a devbox that came to nothing is removed, and the user is told why.
func TestFailures(t *testing.T) {
	t.Parallel()
	for reason, words := range map[string]string{
		"out_of_memory": "memory", "out_of_disk": "disk", "execution_failed": "start", "health_check_failed": "health",
		"": "failed",
	} {
		v := newVendor(t)
		v.late, v.ends, v.reason = 1, "failure", reason
		_, err := v.open().Create(t.Context(), providers.Spec{ID: "box1"})
		fixture.WantClass(t, err, providers.Internal)
		if err != nil && !strings.Contains(err.Error(), words) {
			t.Errorf("%s: %v", reason, err)
		}
		if left := v.ids(); len(left) != 0 {
			t.Errorf("%s: left are %v", reason, left)
		}
	}
}

// TestEveryErrorOfTheInside has a row for each answer to a command.
func TestEveryErrorOfTheInside(t *testing.T) {
	t.Parallel()
	done := func(stdout string) string {
		return fmt.Sprintf(`{"execution_id":"e1","status":"completed","exit_status":0,"stdout":%q}`, stdout)
	}
	for name, c := range map[string]struct {
		status int
		text   string
		state  string // of the devbox
		class  providers.Class
	}{
		"gone":          {404, ``, "shutdown", providers.Lost},
		"suspended":     {400, body("Devbox is not running"), "suspended", providers.Paused},
		"suspending":    {502, body("no"), "suspending", providers.Paused},
		"failed":        {502, body("no"), "failure", providers.Lost},
		"starting":      {503, body("no"), "resuming", providers.Busy},
		"runs":          {502, body("no"), "running", providers.Unavailable},
		"html 200":      {200, `<html>`, "running", providers.Internal},
		"redirect":      {302, ``, "running", providers.Internal},
		"key":           {401, body("no"), "running", providers.Refused},
		"denied":        {403, body("no"), "running", providers.Refused},
		"changing":      {409, body("no"), "running", providers.Busy},
		"too many":      {429, body("no"), "running", providers.RateLimited},
		"timeout":       {408, body("no"), "running", providers.Unavailable},
		"no space":      {500, body("no space left on device"), "running", providers.NoSpace},
		"internal":      {500, body("no"), "running", providers.Unavailable},
		"unimplemented": {501, body("no"), "running", providers.NotSupported},
		"bad":           {400, body("no"), "running", providers.Invalid},
		"another answer": {
			200, done("hello"), "running", providers.Unavailable,
		},
		"no output":     {200, `{"execution_id":"e1","status":"completed"}`, "running", providers.Internal},
		"no such frame": {200, done("sandyard-begin\n!!!\nsandyard-end"), "running", providers.Internal},
		"killed":        {200, done("sandyard-begin\nYWJj"), "running", providers.Unavailable},
		"cut":           {200, `{"execution_id":"e1","status":"completed","stdout":"x","stdout_truncated":true}`, "running", providers.Internal},
		"too much":      {200, done(strings.Repeat("x", 4<<20)), "running", providers.Internal},
		"no status":     {200, `{"execution_id":"e1","status":"lost"}`, "running", providers.Internal},
		"a path":        {200, `{"execution_id":"../x","status":"running"}`, "running", providers.Internal},
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
			v.change(func() { v.boxes[0].Status, v.boxes[0].late = c.state, 100 })
			v.always("POST {id}/execute", remotetest.Refusing(c.status, c.text))
			_, err = box.Run(t.Context(), providers.Command{Name: "job1", Shell: "true"})
			fixture.WantClass(t, err, c.class)
			clean(t, err, v.log.String())
			if c.class == providers.Invalid { // of which the sandbox is asked more
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
		"an error inside": remotetest.Refusing(200, `{"code":500,"message":"failed"}`),
		"no id":           remotetest.Refusing(200, `{"name":"x","status":"running"}`),
		"an id as a path": remotetest.Refusing(200, `{"id":"../../admin","status":"running"}`),
		"another devbox":  remotetest.Refusing(200, `{"id":"other","name":"other","status":"running"}`),
		"no status":       remotetest.Refusing(200, `{"id":"dbx_1"}`),
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
				get:    func(ctx context.Context) error { _, err := p.Open(ctx, "box1"); return err },
				list:   func(ctx context.Context) error { _, err := p.List(ctx); return err },
				create: func(ctx context.Context) error { _, err := p.Create(ctx, providers.Spec{ID: "box2"}); return err },
				policies: func(ctx context.Context) error {
					_, err := v.open().Create(ctx, providers.Spec{ID: "box3"})
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

// TestPagesWithoutEnd: a server that goes on with the same page is not asked for ever.
func TestPagesWithoutEnd(t *testing.T) {
	t.Parallel()
	v := newVendor(t)
	p := v.open()
	v.always(list, remotetest.Refusing(200, `{"devboxes":[{"id":"dbx_1","status":"running"}],"has_more":true}`))
	_, err := p.List(t.Context())
	fixture.WantClass(t, err, providers.Internal)
	if asked := v.calls(); len(asked) > 3 {
		t.Errorf("it asked %d times for the same page", len(asked))
	}
}

// TestATenantsKey: what is wrong with a tenant's own key or account is told with the name of its secret.
func TestATenantsKey(t *testing.T) {
	t.Parallel()
	v := newVendor(t)
	p, err := runloop.New(runloop.Config{APIKey: apiKey, Secret: "MY_KEY", URL: v.http.URL, Fleet: "fleet-1"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Close() })
	if _, err := p.Create(t.Context(), providers.Spec{ID: "box1"}); err != nil {
		t.Fatal(err)
	}
	box, err := p.Open(t.Context(), "box1")
	if err != nil {
		t.Fatal(err)
	}
	spec := providers.Spec{ID: "box2"}
	for _, c := range []struct {
		operation string
		status    int
		text      string
		class     providers.Class
		call      func() error
	}{
		{list, 401, "no", providers.KeyRefused, func() error { _, err := p.List(t.Context()); return err }},
		{create, 403, "no", providers.KeyRefused, func() error { _, err := p.Create(t.Context(), spec); return err }},
		{create, 429, "devbox limit", providers.Quota, func() error { _, err := p.Create(t.Context(), spec); return err }},
		{"POST {id}/execute", 401, "no", providers.KeyRefused, func() error { _, err := box.Stat(t.Context(), "f"); return err }},
	} {
		v.always(c.operation, remotetest.Refusing(c.status, body(c.text)))
		err := c.call()
		v.fault(c.operation, nil)
		fixture.WantClass(t, err, c.class)
		if err != nil && !strings.Contains(err.Error(), "MY_KEY") {
			t.Errorf("%s: %v", c.operation, err)
		}
	}
}
