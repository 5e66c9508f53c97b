package docker_test

import (
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/docker/docker/api/types/container"

	"sandyard/providers"
	"sandyard/providers/docker"
)

// TestWorkersStartOneContainerAtOnce: two workers find the same container, not started. What goes wrong for the slower
// one while the faster one starts it is no reason to remove it.
func TestWorkersStartOneContainerAtOnce(t *testing.T) {
	t.Parallel()
	for name, wrong := range map[string]struct {
		path string
		do   func(w http.ResponseWriter, r *http.Request, engine http.Handler)
	}{
		"the engine fails its start": {"/start", func(w http.ResponseWriter, _ *http.Request, _ http.Handler) {
			w.WriteHeader(http.StatusInternalServerError)
		}},
		"its start finds no guest": {"/start", func(w http.ResponseWriter, _ *http.Request, _ http.Handler) {
			w.WriteHeader(http.StatusBadRequest)
		}},
		"its attachment breaks off": {"/attach", func(w http.ResponseWriter, _ *http.Request, _ http.Handler) {
			breakOff(w)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			y := newYard(t)
			slow, x := y.behindProxy(t)
			fast := y.open(t)
			model, _ := create(t, fast)
			spec := providers.Spec{ID: newID(), Image: image, Env: map[string]string{"WHO": "me"}}
			y.copyContainer(t, model, spec.ID, nil)
			var theirs providers.Instance
			var struck atomic.Bool
			x.standIn(func(w http.ResponseWriter, r *http.Request, engine http.Handler) bool {
				if !strings.HasSuffix(r.URL.Path, wrong.path) || struck.Swap(true) {
					return false
				}
				var err error
				if theirs, err = fast.Create(t.Context(), spec); err != nil {
					t.Errorf("the faster worker's create: %v", err)
				}
				wrong.do(w, r, engine)
				return true
			})
			made, err := slow.Create(t.Context(), spec)
			if err == nil && made.Ref != theirs.Ref || err != nil && !providers.AsError(err).Retryable() {
				t.Errorf("the slower worker's create: %+v, %v; the faster one has %+v", made, err, theirs)
			}
			if got := y.containers(t, spec.ID); len(got) != 1 || got[0] != theirs.Ref {
				t.Fatalf("the faster worker made %s, and there are %v", theirs.Ref, got)
			}
			cmd := providers.Command{Name: newID(), Shell: "echo on", Timeout: time.Minute}
			res, err := open(t, fast, spec.ID).Run(t.Context(), cmd)
			if err != nil && providers.AsError(err).Retryable() { // the slower one has the link, of which the faster one hears now
				res, err = open(t, fast, spec.ID).Run(t.Context(), cmd)
			}
			if string(res.Stdout) != "on\n" {
				t.Errorf("the sandbox says %q, %v", res.Stdout, err)
			}
			if again, err := slow.Create(t.Context(), spec); err != nil || again.Ref != theirs.Ref {
				t.Errorf("the slower worker's next create: %+v, %v", again, err)
			}
		})
	}
}

// behindProxy opens a provider whose engine can be spoken for.
func (y *yard) behindProxy(t *testing.T) (*docker.Provider, *proxy) {
	t.Helper()
	x := newProxy(t, y.api.DaemonHost())
	t.Cleanup(func() { x.standIn(nil) })
	return y.openWith(t, docker.Config{Host: x.host, Guest: guestFiles(t)}), x
}

// breakOff answers an attach as the engine does and ends the stream.
func breakOff(w http.ResponseWriter) {
	conn, out, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return
	}
	_, _ = out.WriteString("HTTP/1.1 101 UPGRADED\r\nContent-Type: application/vnd.docker.raw-stream\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n\r\n")
	_ = out.Flush()
	_ = conn.Close()
}

// TestManyWorkersCreateOneSandbox has several workers create the same sandbox, over what an earlier attempt has left: all
// of them that succeed mean one container, which lives.
func TestManyWorkersCreateOneSandbox(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	workers := []*docker.Provider{y.open(t), y.open(t), y.open(t)}
	model, _ := create(t, workers[0])
	for _, left := range []string{"nothing", "a container", "a dead container"} {
		spec := providers.Spec{ID: newID(), Image: image}
		if left != "nothing" {
			y.copyContainer(t, model, spec.ID, nil)
		}
		if left == "a dead container" {
			for _, do := range []error{
				y.api.ContainerStart(t.Context(), "sandyard-"+spec.ID, container.StartOptions{}),
				y.api.ContainerKill(t.Context(), "sandyard-"+spec.ID, "KILL"),
			} {
				if do != nil {
					t.Fatal(do)
				}
			}
		}
		refs := make([]string, len(workers))
		var all sync.WaitGroup
		for i, p := range workers {
			all.Go(func() {
				await(t, func() bool {
					made, err := p.Create(t.Context(), spec)
					if err != nil && !providers.AsError(err).Retryable() {
						t.Errorf("over %s: create: %v", left, err)
					}
					refs[i] = made.Ref
					return err == nil || !providers.AsError(err).Retryable()
				})
			})
		}
		all.Wait()
		there := y.containers(t, spec.ID)
		for _, ref := range refs {
			if len(there) != 1 || ref != there[0] {
				t.Fatalf("over %s: the workers have %v, and there are %v", left, refs, there)
			}
		}
		if got := shell(t, open(t, workers[0], spec.ID), "echo on"); got != "on" {
			t.Errorf("over %s: the sandbox says %q", left, got)
		}
	}
}
