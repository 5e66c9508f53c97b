package e2e_test

import (
	"bytes"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// process is one running program.
type process struct {
	t      testing.TB
	name   string
	cmd    *exec.Cmd
	stdout book
	stderr book
	done   chan struct{} // closed when it has ended
	err    error         // how, after done
}

// startProcess runs a program whose environment is env alone. It dies with the test process, and its log is shown
// when the test fails.
func startProcess(t testing.TB, dir string, env []string, name string, args ...string) *process {
	t.Helper()
	return startCommand(t, dir, env, name, exec.Command(program(t, name), args...))
}

// startCommand is startProcess of a program that is started in another way.
func startCommand(t testing.TB, dir string, env []string, name string, cmd *exec.Cmd) *process {
	t.Helper()
	p := &process{t: t, name: name, cmd: cmd, done: make(chan struct{})}
	p.cmd.Dir, p.cmd.Env = dir, env
	p.cmd.Stdout, p.cmd.Stderr = &p.stdout, &p.stderr
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	if err := p.cmd.Start(); err != nil {
		t.Fatalf("start %s: %v", name, err)
	}
	go func() {
		defer close(p.done)
		p.err = p.cmd.Wait()
	}()
	t.Cleanup(p.finish)
	return p
}

// finish ends what the test has left running, and shows the logs of a test that failed.
func (p *process) finish() {
	if !p.ended() {
		p.stop()
	}
	if p.t.Failed() {
		p.t.Logf("%s (pid %d) logged:\n%s%s", p.name, p.pid(), p.stdout.tail(), p.stderr.tail())
	}
}

func (p *process) pid() int { return p.cmd.Process.Pid }

func (p *process) ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// stop asks the process to end, as an operator does, and checks that it does so in order.
func (p *process) stop() {
	p.t.Helper()
	p.signal(syscall.SIGTERM)
	p.await(40 * time.Second)
	if p.err != nil {
		p.t.Errorf("%s ended with %v after SIGTERM", p.name, p.err)
	}
}

// kill ends the process as a crash does.
func (p *process) kill() {
	p.t.Helper()
	p.signal(syscall.SIGKILL)
	p.await(10 * time.Second)
}

func (p *process) signal(s os.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		p.t.Errorf("send %v to %s: %v", s, p.name, err)
	}
}

// await waits for the end of a process that was told to end.
func (p *process) await(limit time.Duration) {
	p.t.Helper()
	select {
	case <-p.done:
	case <-time.After(limit):
		p.t.Errorf("%s still runs %v after it was to end", p.name, limit)
		_ = p.cmd.Process.Kill()
		<-p.done
	}
}

// line waits for a line of the book that contains text and returns what follows it in that line.
func (p *process) line(b *book, text string) string {
	p.t.Helper()
	found := ""
	eventually(p.t, 60*time.Second, p.name+" says "+text, func() bool {
		for line := range strings.Lines(b.String()) {
			if _, after, ok := strings.Cut(line, text); ok && strings.HasSuffix(line, "\n") {
				found = strings.TrimSpace(after)
				return true
			}
		}
		if p.ended() {
			p.t.Fatalf("%s ended without saying %q: %v", p.name, text, p.err)
		}
		return false
	})
	return found
}

// book keeps what a process writes.
type book struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *book) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *book) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

// tail is the end of it, enough to see why a test failed.
func (b *book) tail() string {
	const enough = 24 << 10
	s := b.String()
	return s[max(0, len(s)-enough):]
}

// eventually waits until ok holds.
func eventually(t testing.TB, limit time.Duration, what string, ok func() bool) {
	t.Helper()
	deadline := time.NewTimer(limit)
	defer deadline.Stop()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-deadline.C:
			t.Fatalf("waited %v in vain: %s", limit, what)
		}
	}
}
