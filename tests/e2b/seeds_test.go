//go:build e2b

package e2b

import (
	"context"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"

	"sandyard/auth"
	"sandyard/models"

	"golang.org/x/sys/unix"
)

// TestSandboxServerClient runs the Python client of the sandbox server's document, unmodified, with a key in its URL and
// without one, on the port that the document names.
func TestSandboxServerClient(t *testing.T) {
	t.Parallel()
	code := seed(t, "002_", "class SandboxClient")
	n := newNetwork(t)
	s := newStackAt(t, n.listen("127.0.0.1:8080"), n.listen("127.0.0.1:0"), n.listen("127.0.0.2:8080"))
	for _, url := range []string{"http://any:" + s.key + "@127.0.0.1:8080", "http://127.0.0.2:8080"} {
		n.python(filepath.Join("seeds", "sandbox_server.py"), code, url)
	}
}

// seed returns a file with the block of Python of a document that holds part. The documents lie beside the project, or
// where SEEDS says; nothing of them is kept.
func seed(t *testing.T, document, part string) string {
	t.Helper()
	dir := os.Getenv("SEEDS")
	if dir == "" {
		dir = filepath.Join("..", "..", "..", "shared", "seeds")
	}
	found, err := filepath.Glob(filepath.Join(dir, document+"*"))
	check(t, err)
	if len(found) == 0 {
		t.Skipf("the document %s… is not in %s; SEEDS=DIR names the directory", document, dir)
	}
	text, err := os.ReadFile(found[0])
	check(t, err)
	for _, block := range strings.Split(string(text), "```python\n")[1:] {
		if block, _, _ = strings.Cut(block, "\n```"); strings.Contains(block, part) {
			path := filepath.Join(t.TempDir(), "seed.py")
			check(t, os.WriteFile(path, []byte(block+"\n"), 0o600))
			return path
		}
	}
	t.Fatalf("%s has no block of Python with %q", found[0], part)
	return ""
}

// network is a network namespace with a loopback of its own, so that fixed ports meet nobody.
type network struct {
	t  *testing.T
	do chan func()
}

func newNetwork(t *testing.T) *network {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("a network namespace for fixed ports needs root")
	}
	n := &network{t, make(chan func())}
	ready := make(chan error)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with the goroutine
		ready <- loopback()
		for f := range n.do {
			f()
		}
	}()
	check(t, <-ready)
	t.Cleanup(func() { close(n.do) })
	return n
}

// loopback moves this thread into a new network namespace and brings its loopback up.
func loopback() error {
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		return err
	}
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	ifr, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	ifr.SetUint16(unix.IFF_UP)
	return unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, ifr)
}

// within runs f in the namespace.
func (n *network) within(f func()) {
	done := make(chan struct{})
	n.do <- func() {
		defer close(done)
		f()
	}
	<-done
}

func (n *network) listen(addr string) (l net.Listener) {
	n.t.Helper()
	var err error
	n.within(func() { l, err = net.Listen("tcp", addr) })
	check(n.t, err)
	return l
}

// python runs a program in the namespace, with the clients' Python, and returns what it has printed.
func (n *network) python(program string, args ...string) string {
	n.t.Helper()
	dir := os.Getenv("E2B_CLIENTS")
	if dir == "" {
		n.t.Fatal("E2B_CLIENTS is not set to the directory with the clients: run make e2b")
	}
	ctx, cancel := context.WithTimeout(n.t.Context(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join(dir, "venv/bin/python"), append([]string{program}, args...)...)
	var out strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &out
	var err error
	n.within(func() { err = cmd.Start() }) // a child is in the namespace of the thread that starts it
	if err = errors.Join(err, cmd.Wait()); err != nil {
		n.t.Errorf("%s: %v", program, err)
	}
	n.t.Logf("%s\n%s", program, out.String())
	return out.String()
}

// TestAgentAPIDemo runs the Python demo of the agent API's document, unmodified, on the port that it names.
func TestAgentAPIDemo(t *testing.T) {
	t.Parallel()
	code := seed(t, "003_", "async def sandbox_demo")
	n := newNetwork(t)
	s := newStackAt(t, n.listen("127.0.0.1:8000"), n.listen("127.0.0.1:0"), nil)
	hash, err := auth.HashPassword("TestPass123!")
	check(t, err)
	_, err = s.store.CreateUser(t.Context(), "default", "sandbox_test", hash, models.RoleMember)
	check(t, err)
	out := n.python(code)
	said := regexp.MustCompile(`\ACreated: [0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\nOutput: Python 3\.\d+\.\d+\n\nDeleted\n\z`)
	if !said.MatchString(out) {
		t.Errorf("the demo printed %q", out)
	}
}
