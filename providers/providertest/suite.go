// Package providertest is the conformance suite every provider passes: the contract of package providers, as tests.
//
// A provider's own tests call Run with a way to open it. Whatever the provider declares as unsupported is skipped with
// that reason, and so are cases that need a real operating system where Options says there is none.
package providertest

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"testing"
	"time"

	"sandyard/providers"
)

// Options fits the suite to one provider.
type Options struct {
	// Image is what sandboxes are made from.
	Image string
	// Script writes the few commands that every case can be told in.
	Script Script
	// System says that sandboxes are real systems with bash, coreutils, setsid and python3.
	System bool
	// Limits says that memory, disk and processes are really limited.
	Limits bool
	// OwnKernel says that sandboxes have a kernel of their own, which ends with its memory or its process 1.
	OwnKernel bool
}

// Script writes commands in the language the provider's sandboxes understand. Each returns a statement, and statements
// joined by "; " are a command.
type Script struct {
	Print  func(stdout, stderr string) string // without line ends
	Exit   func(code int) string
	Sleep  func(d time.Duration) string
	Append func(path, text string) string
	Env    func(name string) string // prints its value
	Pwd    func() string
	Cat    func() string // copies stdin to stdout
}

// Bash is the Script of sandboxes with a real shell.
func Bash() Script {
	return Script{
		Print:  func(out, err string) string { return fmt.Sprintf("printf %%s '%s'; printf %%s '%s' >&2", out, err) },
		Exit:   func(code int) string { return fmt.Sprintf("exit %d", code) },
		Sleep:  func(d time.Duration) string { return fmt.Sprintf("sleep %.3f", d.Seconds()) },
		Append: func(path, text string) string { return fmt.Sprintf("printf %%s '%s' >>'%s'", text, path) },
		Env:    func(name string) string { return fmt.Sprintf(`printf %%s "$%s"`, name) },
		Pwd:    func() string { return "printf %s \"$PWD\"" },
		Cat:    func() string { return "cat" },
	}
}

// suite is one run: how to open the provider, and what it is.
type suite struct {
	Options
	open func(t *testing.T) providers.Provider
	caps providers.Capabilities
}

// Run holds the provider that open returns to the contract. Each call of open is another worker: a new provider value
// over the same backend.
func Run(t *testing.T, open func(t *testing.T) providers.Provider, o Options) {
	t.Helper()
	s := &suite{Options: o, open: open, caps: open(t).Capabilities()}
	groups := []struct {
		name string
		run  func(*testing.T, *suite)
	}{
		{"lifecycle", lifecycle},
		{"exec", exec},
		{"names", names},
		{"ends", ends},
		{"background", background},
		{"processes", processes},
		{"code", code},
		{"terminals", terminals},
		{"files", files},
		{"paths", paths},
		{"tools", tools},
		{"tricks", tricks},
		{"streams", streams},
		{"trees", trees},
		{"watch", watch},
		{"outsiders", outsiders},
		{"pause", pause},
		{"gone", gone},
	}
	for _, g := range groups {
		t.Run(g.name, func(t *testing.T) {
			t.Parallel()
			g.run(t, s)
		})
	}
}

func (s *suite) needsSystem(t *testing.T) {
	t.Helper()
	if !s.System {
		t.Skip("skipped: this provider's sandboxes are no real systems")
	}
}

func (s *suite) needsLimits(t *testing.T) {
	t.Helper()
	if !s.Limits {
		t.Skip("skipped: this provider does not limit resources")
	}
}

// confined says whether the backend itself keeps file calls inside the sandbox's roots.
func (s *suite) confined() bool { return s.caps.Confined != providers.Unsupported }

func newID(t *testing.T) string {
	t.Helper()
	raw := make([]byte, 8)
	if _, err := rand.Read(raw); err != nil {
		t.Fatal(err)
	}
	return "t" + hex.EncodeToString(raw)
}

// within is the deadline of a case; nothing here takes a tenth of it on an idle machine.
func within(t *testing.T) context.Context {
	t.Helper()
	ctx, stop := context.WithTimeout(t.Context(), 2*time.Minute)
	t.Cleanup(stop)
	return ctx
}

// room is one running sandbox and the worker that made it.
type room struct {
	providers.Sandbox
	worker providers.Provider
	id     string
}

func (s *suite) room(t *testing.T) room { return s.roomWith(t, providers.Spec{}) }

func (s *suite) roomWith(t *testing.T, spec providers.Spec) room {
	t.Helper()
	ctx := within(t)
	worker := s.open(t)
	spec.ID, spec.Image = newID(t), s.Image
	s.deleteAfter(t, worker, spec.ID)
	if _, err := worker.Create(ctx, spec); err != nil {
		t.Fatalf("create: %v", err)
	}
	return room{Sandbox: mustOpen(t, worker, spec.ID), worker: worker, id: spec.ID}
}

func (s *suite) deleteAfter(t *testing.T, worker providers.Provider, id string) {
	t.Helper()
	t.Cleanup(func() { discard(t, worker, id) })
}

// discard deletes a sandbox as a job does: what may pass is tried again.
func discard(t *testing.T, worker providers.Provider, id string) {
	t.Helper()
	ctx, stop := context.WithTimeout(context.Background(), 5*time.Minute)
	defer stop()
	err := worker.Delete(ctx, id)
	for err != nil && providers.AsError(err).Retryable() && ctx.Err() == nil {
		<-time.After(100 * time.Millisecond)
		err = worker.Delete(ctx, id)
	}
	if err != nil {
		t.Errorf("delete %s: %v", id, err)
	}
}

func mustOpen(t *testing.T, worker providers.Provider, id string) providers.Sandbox {
	t.Helper()
	box, err := worker.Open(within(t), id)
	if err != nil {
		t.Fatalf("open: %v", err)
	}
	return box
}

// shell runs script under a name of its own and fails the test on an error of the platform.
func shell(t *testing.T, box providers.Commands, script string) providers.Result {
	t.Helper()
	return run(t, box, providers.Command{Shell: script})
}

func run(t *testing.T, box providers.Commands, cmd providers.Command) providers.Result {
	t.Helper()
	if cmd.Name == "" {
		cmd.Name = newID(t)
	}
	res, err := box.Run(within(t), cmd)
	if err != nil {
		t.Fatalf("run %.80q %.80q: %v", cmd.Shell, cmd.Argv, err)
	}
	return res
}

func show(r providers.Result) string {
	return fmt.Sprintf("exit code %d signal %q timed out %v oom %v stdout %d %.200q stderr %d %.200q",
		r.ExitCode, r.Signal, r.TimedOut, r.OOMKilled, r.StdoutBytes, r.Stdout, r.StderrBytes, r.Stderr)
}

// wantClass fails unless err is of one of the classes.
func wantClass(t *testing.T, err error, classes ...providers.Class) {
	t.Helper()
	for _, c := range classes {
		if e := (*providers.Error)(nil); errors.As(err, &e) && e.Class == c {
			if e.Message == "" {
				t.Errorf("error of class %s says nothing to the user", c)
			}
			return
		}
	}
	t.Errorf("got error %v, want one of class %v", err, classes)
}

// eventually waits for a state that comes about by itself.
func eventually(t *testing.T, what string, reached func() bool) {
	t.Helper()
	deadline := time.NewTimer(30 * time.Second)
	defer deadline.Stop()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !reached() {
		select {
		case <-tick.C:
		case <-deadline.C:
			t.Fatalf("not reached in time: %s", what)
		}
	}
}
