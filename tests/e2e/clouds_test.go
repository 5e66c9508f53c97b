package e2e_test

import (
	"context"
	"crypto/rand"
	"os"
	"strings"
	"testing"

	"sandyard/dev/testenv"
	"sandyard/providers"
	"sandyard/providers/confine"
	"sandyard/providers/docker"
	"sandyard/providers/modal"
	"sandyard/providers/modal/modaltest"
	"sandyard/providers/runloop"
	"sandyard/providers/runloop/runlooptest"
	"sandyard/vault"
)

// TestSandboxesAtRunloop makes sandboxes at a stand-in for Runloop. The worker is killed during a command and a write;
// each happens once.
func TestSandboxesAtRunloop(t *testing.T) {
	testenv.Long(t, "it takes many seconds")
	t.Parallel()
	s := runlooptest.New(t, engineProvider(t), runlooptest.Options{
		Image: image, WorkDir: confine.WorkDir, Disk: []string{confine.WorkDir, "/tmp", "/var/tmp"},
	})
	p, err := runloop.New(runloop.Config{APIKey: s.Key, URL: s.URL, Fleet: "cloud"})
	check(t, err)
	usesCloud(t, p, s.Key, "SANDBOX_PROVIDER", "runloop", "RUNLOOP_API_KEY", s.Key, "RUNLOOP_BASE_URL", s.URL)
}

// TestSandboxesAtModal does the same with a stand-in for Modal.
func TestSandboxesAtModal(t *testing.T) {
	testenv.Long(t, "it takes many seconds")
	t.Parallel()
	s := modaltest.New(t, engineProvider(t), modaltest.Options{
		Images: map[string]string{modal.DefaultImage: image}, WorkDir: confine.WorkDir,
	})
	p, err := modal.New(modal.Config{TokenID: s.TokenID, TokenSecret: s.TokenSecret, Server: s.URL, Fleet: "cloud"})
	check(t, err)
	usesCloud(t, p, s.TokenSecret, "SANDBOX_PROVIDER", "modal",
		"MODAL_TOKEN_ID", s.TokenID, "MODAL_TOKEN_SECRET", s.TokenSecret, "MODAL_SERVER_URL", s.URL)
}

// engineProvider makes the sandboxes of a stand-in.
func engineProvider(t *testing.T) providers.Provider {
	t.Helper()
	dir := t.TempDir()
	check(t, testenv.BuildPrograms(dir, "guest", "sup"))
	p, err := docker.New(t.Context(), docker.Config{Fleet: "vendor-" + strings.ToLower(rand.Text()[:12]), Guest: os.DirFS(dir), Unsafe: true})
	check(t, err)
	t.Cleanup(func() { check(t, p.Close()) })
	return p
}

// usesCloud runs an installation whose only provider is a vendor's. Another worker's provider looks after it there.
func usesCloud(t *testing.T, there providers.Provider, key string, settings ...string) {
	t.Helper()
	t.Cleanup(func() { check(t, there.Close()) })
	living := func() []providers.Instance {
		all, err := there.List(t.Context())
		check(t, err)
		return all
	}
	r := newRig(t, append(settings, "SANDYARD_FLEET", "cloud", "SECRETS_KEY", vault.NewKey(),
		"RECONCILE_EVERY", "300ms", "RECONCILE_GRACE", "1s")...)
	box := r.created(object{
		"env": object{"GREETING": "hello"}, "setup": object{"script": "echo two >prepared"}, "timeout_seconds": 600,
	}).ID
	if len(living()) != 1 {
		t.Fatalf("%d live there", len(living()))
	}
	j := r.end(r.start(box, "cat prepared; echo $GREETING; echo aside >&2; exit 3")).succeeded(t)
	if j.Stdout != "two\nhello\n" || j.Stderr != "aside\n" || j.Result.ExitCode != 3 {
		t.Errorf("a command there: %s", j)
	}
	r.file(box, "write", object{"path": "a/b.txt", "content": "one two"}).succeeded(t)
	r.file(box, "edit", object{
		"path": "a/b.txt", "edits": []object{{"old_string": "two", "new_string": "three"}},
	}).succeeded(t)
	if there.Capabilities().Pause == providers.Unsupported {
		r.call("POST", "/v1/sandboxes/"+box+"/pause", object{}).problem(t, 501, "unsupported_operation")
	} else {
		r.end(r.submit("/v1/sandboxes/"+box+"/pause", object{}).Job).succeeded(t)
		if all := living(); len(all) != 1 || all[0].State != providers.StatePaused {
			t.Errorf("paused, there are %+v", all)
		}
		r.end(r.submit("/v1/sandboxes/"+box+"/resume", object{}).Job).succeeded(t)
	}
	if j := r.file(box, "read", object{"path": "a/b.txt"}); j.Content != "one three" {
		t.Errorf("the file holds %q", j.Content)
	}

	r.killedMeanwhile(box)

	removed := r.created(object{}).ID
	check(t, there.Delete(context.WithoutCancel(t.Context()), removed))
	testenv.Eventually(t, "its loss is noticed", func() bool { return r.sandbox(removed).State == "lost" })
	r.keeps(key)
	r.clean()
	testenv.Eventually(t, "nothing is left there", func() bool { return len(living()) == 0 })
}
