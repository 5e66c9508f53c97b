package docker

import (
	"cmp"
	"context"
	"maps"
	"path"
	"slices"
	"strings"
	"sync"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/system"
	"github.com/docker/go-units"

	"sandyard/providers"
	"sandyard/providers/docker/engineerr"
)

// runtimes are the OCI runtimes that the engine knows, as far as it was asked: name → program, or the shim that stands
// for one. The empty name is that of the engine's default.
type runtimes struct {
	mu    sync.Mutex
	known map[string]string
}

func (r *runtimes) program(name string) (string, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	program, ok := r.known[name]
	return program, ok
}

// learn replaces what is known and returns the names that may be chosen.
func (r *runtimes) learn(engine system.Info) []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.known = map[string]string{}
	for name, runtime := range engine.Runtimes {
		if !isShim(name) {
			r.known[name] = cmp.Or(runtime.Path, runtime.Type)
		}
	}
	names := slices.Sorted(maps.Keys(r.known))
	r.known[""] = cmp.Or(r.known[engine.DefaultRuntime], engine.DefaultRuntime)
	return names
}

// isShim says whether name is that of a shim of containerd, which engines from 23 on take without being told of it.
func isShim(name string) bool { return strings.HasPrefix(name, "io.containerd.") }

// checkRuntime refuses a runtime that the engine does not know, which it would only say when the container starts. The
// engine is asked about every unknown one, for its configuration can be loaded anew.
func (p *engine) checkRuntime(ctx context.Context, name string) error {
	if _, known := p.runtimes.program(name); known || isShim(name) {
		return nil
	}
	info, err := p.api.Info(ctx)
	if err != nil {
		return engineerr.Translate(err, "ask the docker engine for its runtimes")
	}
	if known := p.runtimes.learn(info); name != "" && !slices.Contains(known, name) {
		return providers.Invalid.Errorf("the docker engine has no runtime %.80q, only %s; use one of these, or install it "+
			"and add it to \"runtimes\" in the engine's daemon.json", name, strings.Join(known, ", "))
	}
	return nil
}

// isGVisor says whether sandboxes under the runtime have gVisor's kernel.
func (p *engine) isGVisor(runtime string) bool {
	program, known := p.runtimes.program(runtime)
	if !known {
		program = runtime // a shim
	}
	return path.Base(program) == "runsc" || strings.HasPrefix(program, "io.containerd.runsc.")
}

// Threads of the machine that gVisor takes: for every process of the sandbox up to eleven were seen, and some of its own.
const threadsPerProcess, threadsOfKernel = 16, 512

// fitGVisor makes limits of processes that count the sandbox's own: the control group sees the threads of gVisor's
// kernel, which dies when it cannot start another. Its kernel counts the processes of a user, of which there is one.
func fitGVisor(r *container.Resources) {
	own := *r.PidsLimit
	r.PidsLimit = new(own*threadsPerProcess + threadsOfKernel)
	r.Ulimits = append(r.Ulimits, &units.Ulimit{Name: "nproc", Soft: own, Hard: own})
}
