package docker_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/filters"

	"sandyard/providers"
	"sandyard/providers/docker"
	"sandyard/providers/docker/pool"
)

// pooled opens a provider with a full pool whose engine can be spoken for.
func (y *yard) pooled(t *testing.T) (*docker.Provider, *proxy) {
	t.Helper()
	x := newProxy(t, y.api.DaemonHost())
	t.Cleanup(func() { x.standIn(nil) })
	return y.fillPool(t, image, docker.Config{Host: x.host, Guest: guestFiles(t), Pool: pool.Config{Size: 1}}), x
}

// containers are the engine's ids of all that has the sandbox's name.
func (y *yard) containers(t *testing.T, sandbox string) (ids []string) {
	t.Helper()
	found, err := y.api.ContainerList(t.Context(), container.ListOptions{All: true, Filters: filters.NewArgs(filters.Arg("name", "^/sandyard-"+sandbox+"$"))})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range found {
		ids = append(ids, c.ID)
	}
	return ids
}

func conflict(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusConflict)
	_, _ = w.Write([]byte(`{"message":"Conflict. The container name is already in use"}`))
}

// TestNameIsTakenByWhatIsGoing: the engine refuses the name to the member and to a new container, and has nobody of that
// name: its owner was just removed.
func TestNameIsTakenByWhatIsGoing(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	p, x := y.pooled(t)
	spec := providers.Spec{ID: newID(), Image: image}
	var refused atomic.Int64
	x.standIn(func(w http.ResponseWriter, r *http.Request, _ http.Handler) bool {
		mine := r.URL.Query().Get("name") == "sandyard-"+spec.ID
		if !mine || refused.Add(1) > 4 {
			return false
		}
		conflict(w)
		return true
	})
	made, err := p.Create(t.Context(), spec)
	if err != nil {
		t.Fatalf("create: %v after %d refusals", err, refused.Load())
	}
	if got := y.containers(t, spec.ID); len(got) != 1 || got[0] != made.Ref {
		t.Errorf("made %s, and there are %v", made.Ref, got)
	}
	if got := shell(t, open(t, p, spec.ID), "echo on"); got != "on" {
		t.Errorf("the sandbox says %q", got)
	}
	await(t, func() bool { return p.Waiting() == 1 && len(y.waiting(t)) == 1 })
}

// TestRenamingIsNotAnswered: the member has become the sandbox, another worker has taken it up, and the first is told
// that something went wrong. Both must mean the same container, which lives.
func TestRenamingIsNotAnswered(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	p, x := y.pooled(t)
	spec := providers.Spec{ID: newID(), Image: image, Env: map[string]string{"WHO": "me"}}
	other := y.open(t)
	var theirs providers.Instance
	x.standIn(func(w http.ResponseWriter, r *http.Request, engine http.Handler) bool {
		if !strings.HasSuffix(r.URL.Path, "/rename") || r.URL.Query().Get("name") != "sandyard-"+spec.ID {
			return false
		}
		engine.ServeHTTP(httptest.NewRecorder(), r)
		var err error
		if theirs, err = other.Create(t.Context(), spec); err != nil {
			t.Errorf("the other worker's create: %v", err)
		}
		w.WriteHeader(http.StatusInternalServerError)
		return true
	})
	made, err := p.Create(t.Context(), spec)
	if err != nil || made.Ref != theirs.Ref {
		t.Fatalf("create: %+v, %v; the other worker has %+v", made, err, theirs)
	}
	if got := y.containers(t, spec.ID); len(got) != 1 || got[0] != made.Ref {
		t.Errorf("made %s, and there are %v", made.Ref, got)
	}
	if got := shell(t, open(t, other, spec.ID), `echo "$WHO"`); got != "me" {
		t.Errorf("the sandbox says %q", got)
	}
}

// TestRenamingNobodyKnowsOf: the engine breaks off and cannot be asked either. The member may be the sandbox by now, so
// it is not removed; what is nobody's ends by itself.
func TestRenamingNobodyKnowsOf(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	p, x := y.pooled(t)
	spec := providers.Spec{ID: newID(), Image: image}
	var members []string
	for ref := range y.waiting(t) {
		members = append(members, ref)
	}
	var broken atomic.Int64
	x.standIn(func(w http.ResponseWriter, r *http.Request, engine http.Handler) bool {
		switch {
		case strings.HasSuffix(r.URL.Path, "/rename") && r.URL.Query().Get("name") == "sandyard-"+spec.ID:
			engine.ServeHTTP(httptest.NewRecorder(), r)
			broken.Add(1)
		case broken.Load() == 1 && strings.HasSuffix(r.URL.Path, "/containers/sandyard-"+spec.ID+"/json"):
			broken.Add(1)
		default:
			return false
		}
		w.WriteHeader(http.StatusInternalServerError)
		return true
	})
	made, err := p.Create(t.Context(), spec)
	if err != nil || made.Ref != members[0] {
		t.Fatalf("create: %+v, %v; the member was %v", made, err, members)
	}
	if got := y.containers(t, spec.ID); len(got) != 1 || got[0] != made.Ref {
		t.Errorf("made %s, and there are %v", made.Ref, got)
	}
	if got := shell(t, open(t, p, spec.ID), "echo on"); got != "on" {
		t.Errorf("the sandbox says %q", got)
	}
}
