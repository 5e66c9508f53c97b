package e2e_test

import (
	"strings"
	"testing"
	"time"

	"sandyard/dev/testenv"
)

// TestAWorkerOfTwoProviders runs sandboxes of both in one process. While the engine of one is away, its jobs wait without an
// attempt lost and say so; the other's run on.
func TestAWorkerOfTwoProviders(t *testing.T) {
	t.Parallel()
	own := ownEngine(t)
	r := newRig(t, "DOCKER_HOST", own.Host, "SANDBOX_TEMPLATES", "python="+shell+",full="+image, "SANDBOX_PROVIDERS", "docker,local",
		"LOCAL_DIR", localDir(t))
	there := r.created(object{"provider": "local", "template": "full"}).ID
	here := r.created(object{}).ID
	for box, provider := range map[string]string{there: "local", here: "docker"} {
		if b := r.sandbox(box); b.Provider != provider {
			t.Errorf("the sandbox is of %q, want %q", b.Provider, provider)
		}
		r.end(r.start(box, "echo hello")).succeeded(t)
	}
	r.remove(here)
	var waits job
	must(t, own.Restart(func() {
		waits = r.submit("/v1/sandboxes", object{}).Job
		testenv.Eventually(t, "everybody can see that docker is away", func() bool {
			p := r.providers()
			return !p["docker"].Available && p["docker"].Reason == "provider_unavailable" && p["local"].Available
		})
		if j := r.job(waits.ID); j.State != "queued" && j.State != "running" {
			t.Errorf("the create that waits for docker: %s", j)
		}
		if j := r.end(r.start(there, "echo still here")).succeeded(t); j.Stdout != "still here\n" || j.Attempt != 1 {
			t.Errorf("a command of the other provider: %s", j)
		}
	}))
	r.end(waits).succeeded(t)
	testenv.Eventually(t, "docker is back", func() bool { return r.providers()["docker"].Available })
	r.remove(there)
	r.clean()
}

// providers reads how the providers are doing.
func (r *rig) providers() map[string]providerDocument {
	r.t.Helper()
	var list struct{ Providers []providerDocument }
	decode(r.t, r.call("GET", "/v1/providers", nil).want(r.t, 200).raw, &list)
	all := map[string]providerDocument{}
	for _, p := range list.Providers {
		all[p.Provider] = p
	}
	return all
}

type providerDocument struct {
	Provider  string
	Workers   int
	Available bool
	Reason    string
}

// TestAWorkerEndsWithAProviderThatCannotBeOpened: an operator sees at once that a setting is missing, although the other provider
// works.
func TestAWorkerEndsWithAProviderThatCannotBeOpened(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.settings["SANDBOX_PROVIDERS"] = "docker,e2b"
	w := r.start1("worker")
	w.Await(time.Minute)
	if w.Err() == nil || !strings.Contains(w.Stderr.String(), "E2B_API_KEY") {
		t.Errorf("the worker ended with %v: %s", w.Err(), w.Stderr.String())
	}
}
