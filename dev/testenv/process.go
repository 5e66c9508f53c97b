package testenv

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// Process is one running program of a test. It dies with the test process, and its log is shown when the test fails.
type Process struct {
	Name   string
	Cmd    *exec.Cmd
	Stdout Book
	Stderr Book

	t    testing.TB
	done chan struct{} // closed when it has ended
	err  error         // how, after done
}

// StartProcess runs a command whose environment is env alone.
func StartProcess(t testing.TB, dir string, env []string, name string, cmd *exec.Cmd) *Process {
	t.Helper()
	p := &Process{t: t, Name: name, Cmd: cmd, done: make(chan struct{})}
	p.Cmd.Dir, p.Cmd.Env = dir, env
	p.Cmd.Stdout, p.Cmd.Stderr = &p.Stdout, &p.Stderr
	p.Cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	if err := p.Cmd.Start(); err != nil {
		t.Fatalf("start %s: %v", name, err)
	}
	go func() {
		defer close(p.done)
		p.err = p.Cmd.Wait()
	}()
	t.Cleanup(p.finish)
	return p
}

// finish ends what the test has left running, and shows the logs of a test that failed.
func (p *Process) finish() {
	if !p.Ended() {
		p.Stop()
	}
	if p.t.Failed() {
		p.t.Logf("%s (pid %d) logged:\n%s%s", p.Name, p.PID(), p.Stdout.Tail(), p.Stderr.Tail())
	}
}

// PID is the process id, also after its end.
func (p *Process) PID() int { return p.Cmd.Process.Pid }

// Done is closed when the process has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// Err says how the process ended; it holds after Done is closed.
func (p *Process) Err() error { return p.err }

// Ended says whether the process has ended.
func (p *Process) Ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// Stop asks the process to end, as an operator does, and checks that it does so in order.
func (p *Process) Stop() {
	p.t.Helper()
	p.Signal(syscall.SIGTERM)
	p.Await(40 * time.Second)
	if p.err != nil {
		p.t.Errorf("%s ended with %v after SIGTERM", p.Name, p.err)
	}
}

// Kill ends the process as a crash does.
func (p *Process) Kill() {
	p.t.Helper()
	p.Signal(syscall.SIGKILL)
	p.Await(10 * time.Second)
}

// Signal sends the process a signal.
func (p *Process) Signal(s os.Signal) {
	p.t.Helper()
	if err := p.Cmd.Process.Signal(s); err != nil {
		p.t.Errorf("send %v to %s: %v", s, p.Name, err)
	}
}

// Freeze stops the process until it gets SIGCONT. When it returns no thread of the process runs: the signal alone leaves them
// some time on a busy machine.
func (p *Process) Freeze() {
	p.t.Helper()
	p.Signal(syscall.SIGSTOP)
	Eventually(p.t, p.Name+" stands still", func() bool {
		threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", p.Cmd.Process.Pid))
		if err != nil || len(threads) == 0 {
			return false
		}
		for _, thread := range threads {
			stat, err := os.ReadFile(thread)
			_, state, _ := strings.Cut(string(stat), ") ")
			if err == nil && !strings.HasPrefix(state, "T") {
				return false
			}
		}
		return true
	})
}

// Await waits for the end of a process that was told to end.
func (p *Process) Await(limit time.Duration) {
	p.t.Helper()
	select {
	case <-p.done:
	case <-time.After(limit):
		p.t.Errorf("%s still runs %v after it was to end", p.Name, limit)
		_ = p.Cmd.Process.Kill()
		<-p.done
	}
}

// Line waits for a line of the book that contains text and returns what follows it in that line.
func (p *Process) Line(b *Book, text string) string {
	p.t.Helper()
	deadline, tick := time.NewTimer(Patience()), time.NewTicker(10*time.Millisecond)
	defer deadline.Stop()
	defer tick.Stop()
	for {
		if found, ok := b.after(text); ok {
			return found
		}
		if p.Ended() {
			p.t.Fatalf("%s ended without saying %q: %v", p.Name, text, p.err)
		}
		select {
		case <-tick.C:
		case <-deadline.C:
			p.t.Fatalf("waited %v in vain: %s says %s", Patience(), p.Name, text)
		}
	}
}

// Book keeps what a process writes.
type Book struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

// Write implements io.Writer.
func (b *Book) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

// String is all that was written.
func (b *Book) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

func (b *Book) after(text string) (string, bool) {
	for line := range strings.Lines(b.String()) {
		if _, after, ok := strings.Cut(line, text); ok && strings.HasSuffix(line, "\n") {
			return strings.TrimSpace(after), true
		}
	}
	return "", false
}

// Tail is the end of it, enough to see why a test failed.
func (b *Book) Tail() string {
	const enough = 24 << 10
	s := b.String()
	return s[max(0, len(s)-enough):]
}
