package web_test

import (
	"net/http"
	"strings"
	"testing"

	"sandyard/jobs"
	"sandyard/web"
)

func TestRuntimeOfARequest(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(c *web.Config) {
		c.Jobs = jobs.NewClient(c.Store, c.Queue, jobs.Catalog{
			Providers: []string{"fake"}, Templates: map[string]string{"python": "fake-python"}, Template: "python", Runtimes: []string{"kata", "runsc"},
		}, c.Log)
	})
	id := r.sandbox(map[string]any{"runtime": "runsc"})
	if got := r.call(http.MethodGet, "/v1/sandboxes/"+id, nil); got.status != 200 || !strings.Contains(got.raw, `"runtime":"runsc"`) {
		t.Errorf("the sandbox is %d %s", got.status, got.raw)
	}
	got := r.call(http.MethodPost, "/v1/sandboxes", map[string]any{"runtime": "runc"})
	if got.status != 422 || !strings.Contains(got.raw, "[kata runsc]") {
		t.Errorf("a runtime that is not offered: %d %s", got.status, got.raw)
	}
}

func TestNoRuntimeIsOffered(t *testing.T) {
	t.Parallel()
	got := newRig(t).call(http.MethodPost, "/v1/sandboxes", map[string]any{"runtime": "runsc"})
	if got.status != 422 || !strings.Contains(got.raw, "SANDBOX_RUNTIMES") {
		t.Errorf("got %d %s", got.status, got.raw)
	}
}
