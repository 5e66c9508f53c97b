package web_test

import (
	"strings"
	"testing"
	"time"

	"sandyard/jobs"
	"sandyard/tokens"
	"sandyard/web"
)

// TestTheOperatorBoundsLivesOfAllClients: E2B's know no such wish and end all the same; ours are told what is possible.
func TestTheOperatorBoundsLivesOfAllClients(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(c *web.Config) {
		c.Address = tokens.Address{Scheme: "http", Domain: "sandboxes.example"}
		c.Jobs = jobs.NewClient(c.Store, c.Queue, jobs.Catalog{
			Providers: []string{"fake"}, Images: []string{"*"}, Templates: map[string]string{"python": "fake-python"}, Template: "python",
			Lifetime: jobs.Span{Most: 2 * time.Hour}, Paused: jobs.Span{Default: time.Minute, Most: time.Hour},
		}, c.Log)
	})
	r.work()
	id := r.call("POST", "/v2/sandboxes", map[string]any{"templateID": "base", "timeout": 300, "autoPause": true}).want(t, 201).text("sandboxID")
	box := r.call("GET", "/v1/sandboxes/"+id, nil).want(t, 200)
	if box.get("max_lifetime_seconds") != 7200.0 || box.get("paused_timeout_seconds") != 60.0 {
		t.Errorf("it is bounded by %s", box.raw)
	}
	a := r.call("POST", "/v1/sandboxes", map[string]any{"paused_timeout_seconds": 3601}).problem(t, 422, "invalid_request")
	if !strings.Contains(a.raw, "is 3601, but this server allows at most 3600 (MAX_PAUSED_TIMEOUT)") {
		t.Errorf("a wish for more is answered %s", a.raw)
	}
}
