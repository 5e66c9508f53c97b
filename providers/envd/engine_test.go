package envd_test

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"sandyard/dev/testenv"
	_ "sandyard/guest"            // what TestMain builds: a change of it must not leave old
	_ "sandyard/guest/supervisor" // results in the test cache
	"sandyard/providers/envd"

	"go.uber.org/goleak"
)

// testBinaries is where TestMain puts the guest and its supervisor.
var testBinaries string //nolint:gochecknoglobals // TestMain has no other way to tell the tests

func TestMain(m *testing.M) {
	os.Exit(runTests(m))
}

func runTests(m *testing.M) int {
	dir, err := os.MkdirTemp("", "envd-test")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	if err := testenv.BuildPrograms(dir, "guest", "sup"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	testBinaries = dir
	code := m.Run()
	if code == 0 {
		if err := goleak.Find(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
	}
	return code
}

// engine runs a guest as process 1 of its own process namespace and lets clients attach to its standard streams as
// Docker does: what they write is interleaved in pieces of 32 KiB, what the guest writes reaches all of them.
type engine struct {
	t       *testing.T
	cmd     *exec.Cmd
	workDir string

	inMu sync.Mutex
	in   io.WriteCloser

	mu      sync.Mutex
	clients map[*client]struct{}
}

const attachPiece = 32 << 10

func newEngine(t *testing.T) *engine {
	t.Helper()
	return startEngine(t, guestAsProcess1())
}

func guestAsProcess1() *exec.Cmd {
	return exec.Command("unshare", "--pid", "--fork", "--kill-child", "--mount-proc", filepath.Join(testBinaries, "guest"))
}

// startEngine adds the guest's arguments to cmd, and then args.
func startEngine(t *testing.T, cmd *exec.Cmd, args ...string) *engine {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("a process namespace of its own needs root")
	}
	work := t.TempDir()
	cmd.Args = append(append(cmd.Args, "stdio", "-workdir", work, "-roots", work), args...)
	cmd.Dir, cmd.Stderr = work, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	in, err := cmd.StdinPipe()
	must(t, err)
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	e := &engine{t: t, cmd: cmd, workDir: work, in: in, clients: map[*client]struct{}{}}
	broadcast := make(chan struct{})
	go func() {
		defer close(broadcast)
		e.broadcast(out)
	}()
	t.Cleanup(func() {
		_ = in.Close()
		<-broadcast
		if err := cmd.Wait(); err != nil {
			t.Errorf("the guest ended with %v", err)
		}
	})
	return e
}

func (e *engine) broadcast(out io.Reader) {
	buf := make([]byte, attachPiece)
	for {
		n, err := out.Read(buf)
		for _, c := range e.all() {
			_, _ = c.feed.Write(buf[:n])
		}
		if err != nil {
			break
		}
	}
	for _, c := range e.all() {
		_ = c.feed.CloseWithError(io.EOF)
	}
}

func (e *engine) all() []*client {
	e.mu.Lock()
	defer e.mu.Unlock()
	var all []*client
	for c := range e.clients {
		all = append(all, c)
	}
	return all
}

// client is one attached stream.
type client struct {
	engine *engine
	out    *io.PipeReader
	feed   *io.PipeWriter
}

func (e *engine) attach() *client {
	c := &client{engine: e}
	c.out, c.feed = io.Pipe()
	e.mu.Lock()
	defer e.mu.Unlock()
	e.clients[c] = struct{}{}
	return c
}

func (c *client) Read(p []byte) (int, error) { return c.out.Read(p) }

func (c *client) Write(p []byte) (int, error) {
	done := 0
	for done < len(p) {
		c.engine.inMu.Lock()
		n, err := c.engine.in.Write(p[done:min(len(p), done+attachPiece)])
		c.engine.inMu.Unlock()
		if done += n; err != nil {
			return done, err
		}
	}
	return done, nil
}

func (c *client) Close() error {
	c.engine.mu.Lock()
	delete(c.engine.clients, c)
	c.engine.mu.Unlock()
	return c.out.CloseWithError(io.ErrClosedPipe)
}

// sandbox attaches and closes at the end of the test.
func (e *engine) sandbox(o envd.Options) *envd.Sandbox {
	e.t.Helper()
	s := attachTo(e.t, e.attach(), o)
	e.t.Cleanup(func() { _ = s.Close() })
	return s
}

func attachTo(t *testing.T, rw io.ReadWriteCloser, o envd.Options) *envd.Sandbox {
	t.Helper()
	s, err := envd.Attach(patient(t), rw, o)
	must(t, err)
	return s
}

// patient is a context for what must end.
func patient(t *testing.T) context.Context {
	t.Helper()
	return deadline(t, testenv.Patience())
}

func deadline(t *testing.T, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), d)
	t.Cleanup(cancel)
	return ctx
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
