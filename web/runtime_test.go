package web_test

import (
	"net/http"
	"strings"
	"testing"

	"sandyard/jobs"
	"sandyard/models"
	"sandyard/web"
)

// offering makes the API offer a choice of runtimes.
func offering(runtimes ...string) func(*web.Config) {
	return func(c *web.Config) {
		c.Jobs = jobs.NewClient(c.Store, c.Queue, jobs.Catalog{
			Providers: []string{"fake"}, Images: []string{"*"}, Templates: map[string]string{"python": "fake-python", "node": "fake-node"}, Template: "python", Runtimes: runtimes,
		}, c.Log)
	}
}

func TestRuntimeOfARequest(t *testing.T) {
	t.Parallel()
	r := newRig(t, offering("kata", "runsc"))
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

// TestTemplateNamesARuntimeThatIsOffered, or it is not written down; a build for one that was offered once is refused, too.
func TestTemplateNamesARuntimeThatIsOffered(t *testing.T) {
	t.Parallel()
	r := newRig(t, offering("runsc"))
	weaker := map[string]any{"name": "mine", "image": "fake", "runtime": "runc"}
	for name, got := range map[string]answer{
		"POST": r.call(http.MethodPost, "/v1/templates", weaker),
		"PUT":  r.call(http.MethodPut, "/v1/templates/mine", map[string]any{"image": "fake", "runtime": "runc"}),
	} {
		if got.status != 422 || !strings.Contains(got.raw, "[runsc]") {
			t.Errorf("%s: %d %s", name, got.status, got.raw)
		}
	}
	_, err := r.store.PutTemplate(t.Context(), models.Owner{Tenant: "default"}, models.Template{
		Name: "mine", Image: "fake", Definition: models.Definition{Runtime: "runc"},
	})
	if err != nil {
		t.Fatal(err)
	}
	got := r.call(http.MethodPost, "/v1/templates/mine/builds", map[string]any{"script": "true", "from": "fake"})
	if got.status != 422 || !strings.Contains(got.raw, "[runsc]") {
		t.Errorf("a build: %d %s", got.status, got.raw)
	}
}
