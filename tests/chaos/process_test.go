//go:build chaos

package chaos

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"
)

// process is one place of a program of the installation, in which one process after the other runs.
type process struct {
	name string
	path string
	args []string
	env  []string
	log  string        // file that all of them write
	skew time.Duration // by which its clock is wrong

	busy sync.Mutex // one fault at a time
	mu   sync.Mutex
	cmd  *exec.Cmd
	done chan struct{} // closed when cmd has ended
	err  error         // how, after done
	from int64         // where in the log cmd's own begins
}

// start runs the program anew. It dies with this process.
func (p *process) start() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	log, err := os.OpenFile(p.log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	if p.from, err = log.Seek(0, 2); err != nil {
		return err
	}
	cmd := exec.Command(p.path, p.args...)
	cmd.Env, cmd.Stdout, cmd.Stderr = p.env, log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	if err := startSkewed(cmd, p.skew); err != nil {
		return err
	}
	done := make(chan struct{})
	p.cmd, p.done = cmd, done
	go func() {
		defer close(done)
		err := cmd.Wait()
		p.mu.Lock()
		defer p.mu.Unlock()
		p.err = err
	}()
	return nil
}

func (p *process) signal(s os.Signal) {
	p.mu.Lock()
	defer p.mu.Unlock()
	_ = p.cmd.Process.Signal(s) // one that has ended is found out by revive
}

func (p *process) await(limit time.Duration) error {
	p.mu.Lock()
	done := p.done
	p.mu.Unlock()
	select {
	case <-done:
	case <-time.After(limit):
		return fmt.Errorf("%s has not ended within %v", p.name, limit)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.err
}

// kill ends the process as a crash does.
func (p *process) kill() {
	p.signal(syscall.SIGKILL)
	_ = p.await(time.Minute) // it was killed: an error is certain
}

func (p *process) ended() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// unborn says whether SIGTERM ended the process before its main function ran: it has written nothing.
func (p *process) unborn() bool {
	p.mu.Lock()
	err := p.err
	p.mu.Unlock()
	exit, ok := errors.AsType[*exec.ExitError](err)
	if !ok {
		return false
	}
	status, ok := exit.Sys().(syscall.WaitStatus)
	return ok && status.Signaled() && status.Signal() == syscall.SIGTERM && p.said("{") == ""
}

// said returns what follows text in the first line of the running process's log that has it, or nothing.
func (p *process) said(text string) string {
	p.mu.Lock()
	from := p.from
	p.mu.Unlock()
	raw, err := os.ReadFile(p.log)
	if err != nil || int64(len(raw)) < from {
		return ""
	}
	for line := range strings.Lines(string(raw[from:])) {
		if _, after, ok := strings.Cut(line, text); ok && strings.HasSuffix(line, "\n") {
			return strings.TrimSpace(after)
		}
	}
	return ""
}

// address is where an API listens, or empty.
func (p *process) address() string {
	var entry struct{ Addr string }
	if err := json.Unmarshal([]byte("{"+p.said(`"msg":"API listens",`)), &entry); err != nil {
		return ""
	}
	return entry.Addr
}

// clock is what time it was for the process when it wrote the first line of its log.
func (p *process) clock() time.Time {
	text, _, _ := strings.Cut(p.said(`"time":"`), `"`)
	at, _ := time.Parse(time.RFC3339Nano, text) // the year 1 will be noticed
	return at
}

// logLine is what the checks read of a log.
type logLine struct {
	Level   string
	Msg     string
	JobID   string `json:"job_id"`
	Kind    string
	Attempt int
	State   string
	Node    string
	file    string
}

// logLines reads all logs below dir whose lines have the message.
func logLines(dir, message string) ([]logLine, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.log"))
	if err != nil {
		return nil, err
	}
	var out []logLine
	for _, file := range files {
		raw, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		for line := range bytes.Lines(raw) {
			var l logLine
			if bytes.Contains(line, []byte(message)) && json.Unmarshal(line, &l) == nil && l.Msg == message {
				l.file = file
				out = append(out, l)
			}
		}
	}
	return out, nil
}
