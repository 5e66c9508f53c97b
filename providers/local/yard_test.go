package local_test

import (
	"context"
	"crypto/rand"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"sandyard/dev/testenv"
	"sandyard/providers"
	"sandyard/providers/local"
)

const (
	image = "sandyard/python:default"
	// Where images/tree.sh unpacks it.
	images    = "../../.sandyard/local/images"
	imageFile = "sandyard%2Fpython%3Adefault"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		if dir, err := programs(); err == nil {
			_ = os.RemoveAll(dir)
		}
		os.Exit(code)
	}))
}

// programs builds the guest and its shim once per run of the tests; they prove nothing about those that lie around.
//
//nolint:gochecknoglobals // the one value all tests share, and a build is slow
var programs = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "sandyard-local")
	if err != nil {
		return "", err
	}
	return dir, testenv.BuildPrograms(dir, "guest", "sup", "sandbox-shim")
})

// yard is a data directory of one test, of which nothing remains after it.
type yard struct{ dir, fleet string }

func newYard(t testing.TB) *yard {
	t.Helper()
	if err := local.Probe(); err != nil && os.Geteuid() != 0 {
		t.Skipf("skipped: %v", err)
	}
	made, err := filepath.Abs(images)
	if err != nil {
		t.Fatal(err)
	}
	y := &yard{dir: t.TempDir(), fleet: "test-" + rand.Text()}
	if err := os.Mkdir(filepath.Join(y.dir, "images"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Join(made, imageFile), filepath.Join(y.dir, "images", imageFile)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { y.clear(t) })
	return y
}

// clear removes every sandbox, and sees that nothing of any is left on the machine.
func (y *yard) clear(t testing.TB) {
	t.Helper()
	p := y.open(t)
	found, err := p.List(t.Context())
	if err != nil {
		t.Errorf("list: %v", err)
	}
	for _, box := range found {
		if err := p.Delete(context.WithoutCancel(t.Context()), box.ID); err != nil {
			t.Errorf("delete %s: %v", box.ID, err)
		}
	}
	if left := y.left(t); len(left) != 0 {
		t.Errorf("left on the machine: %v", left)
	}
}

// left lists what the machine holds of the yard's sandboxes: directories, control groups, and processes that use them.
func (y *yard) left(t testing.TB) []string {
	t.Helper()
	var left []string
	for _, pattern := range []string{"fleets/*/*", "fleets/*/.*"} {
		found, err := filepath.Glob(filepath.Join(y.dir, pattern))
		if err != nil {
			t.Fatal(err)
		}
		left = append(left, found...)
	}
	return append(left, y.processes(t)...)
}

// processes lists those whose program lies in the yard, which all shims' and guests' do.
func (y *yard) processes(t testing.TB) []string {
	t.Helper()
	links, err := filepath.Glob("/proc/[0-9]*/exe")
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, link := range links {
		if program, err := os.Readlink(link); err == nil && strings.HasPrefix(program, y.dir) {
			found = append(found, link+" -> "+program)
		}
	}
	return found
}

func (y *yard) open(t testing.TB) *local.Provider {
	t.Helper()
	return y.openWith(t, local.Config{})
}

func (y *yard) openWith(t testing.TB, cfg local.Config) *local.Provider {
	t.Helper()
	dir, err := programs()
	if err != nil {
		t.Fatalf("build the guest: %v", err)
	}
	cfg.Dir, cfg.Fleet, cfg.GuestPath = y.dir, y.fleet, dir
	p, err := local.New(context.WithoutCancel(t.Context()), cfg)
	if err != nil {
		t.Fatalf("open: %v", err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	if err := p.Ensure(t.Context(), image); err != nil {
		t.Fatalf("no image; run make tree first: %v", err)
	}
	return p
}

// addImage makes an image that holds nothing, and returns its tree.
func (y *yard) addImage(t *testing.T, name string) string {
	t.Helper()
	tree := filepath.Join(y.dir, "images", name, "tree")
	if err := os.MkdirAll(tree, 0o755); err != nil {
		t.Fatal(err)
	}
	return tree
}

func newID() string { return "t" + strings.ToLower(rand.Text()) }

func create(t testing.TB, p *local.Provider) (string, providers.Sandbox) {
	t.Helper()
	id := newID()
	if _, err := p.Create(t.Context(), providers.Spec{ID: id, Image: image}); err != nil {
		t.Fatalf("create: %v", err)
	}
	return id, open(t, p, id)
}

func open(t testing.TB, p *local.Provider, id string) providers.Sandbox {
	t.Helper()
	box, err := p.Open(t.Context(), id)
	if err != nil {
		t.Fatalf("open: %v", err)
	}
	return box
}

func shell(t *testing.T, box providers.Commands, script string) string {
	t.Helper()
	res, err := box.Run(t.Context(), providers.Command{Name: newID(), Shell: script, Timeout: time.Minute})
	if err != nil {
		t.Fatalf("run %q: %v", script, err)
	}
	return strings.TrimSpace(string(res.Stdout) + string(res.Stderr))
}

func classOf(err error) providers.Class {
	if err == nil {
		return ""
	}
	return providers.AsError(err).Class
}

func await(t *testing.T, reached func() bool) {
	t.Helper()
	testenv.Eventually(t, "the state that this line waits for", reached)
}
