package envd_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"sandyard/dev/testenv"
	"sandyard/providers"
	"sandyard/providers/envd"
)

func run(t *testing.T, s *envd.Sandbox, cmd providers.Command) providers.Result {
	t.Helper()
	r, err := s.Run(patient(t), cmd)
	must(t, err)
	return r
}

func TestRunReportsHowTheCommandEnded(t *testing.T) {
	t.Parallel()
	s := newEngine(t).sandbox(envd.Options{})
	must(t, s.Init(patient(t), envd.Init{EnvVars: map[string]string{"A": "from the sandbox", "B": "x"}}))
	for _, c := range []struct {
		name           string
		cmd            providers.Command
		code           int
		signal         string
		stdout, stderr string
	}{
		{"true", providers.Command{Argv: []string{"true"}}, 0, "", "", ""},
		{"exit", providers.Command{Shell: "echo out; echo err >&2; exit 7"}, 7, "", "out\n", "err\n"},
		{"highest", providers.Command{Shell: "exit 255"}, 255, "", "", ""},
		{"signal", providers.Command{Shell: "kill -9 $$"}, 137, "SIGKILL", "", ""},
		{"term", providers.Command{Shell: "kill -TERM $$"}, 143, "SIGTERM", "", ""},
		{"argv", providers.Command{Argv: []string{"printf", "%s|", "a b", "", "ü"}}, 0, "", "a b||ü|", ""},
		{"env", providers.Command{Shell: `echo "$A $B"`, Env: map[string]string{"B": "own"}}, 0, "", "from the sandbox own\n", ""},
		{"dir", providers.Command{Argv: []string{"pwd"}, Dir: "/tmp"}, 0, "", "/tmp\n", ""},
		{"stdin", providers.Command{Argv: []string{"cat"}, Stdin: []byte("in\x00put")}, 0, "", "in\x00put", ""},
		{"no-stdin", providers.Command{Argv: []string{"cat"}}, 0, "", "", ""},
		{"no-newline", providers.Command{Argv: []string{"printf", "x"}}, 0, "", "x", ""},
		{"binary", providers.Command{Shell: `printf '\000\377\376'`}, 0, "", "\x00\xff\xfe", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			c.cmd.Name = c.name
			r := run(t, s, c.cmd)
			if r.ExitCode != c.code || r.Signal != c.signal || string(r.Stdout) != c.stdout || string(r.Stderr) != c.stderr {
				t.Errorf("got code %d signal %q stdout %q stderr %q", r.ExitCode, r.Signal, r.Stdout, r.Stderr)
			}
			if r.TimedOut || r.Truncated() || r.OOMKilled {
				t.Errorf("unexpected marks in %+v", r)
			}
		})
	}
}

func class(t *testing.T, err error) providers.Class {
	t.Helper()
	var e *providers.Error
	if !errors.As(err, &e) {
		t.Fatalf("got %v, want a providers.Error", err)
	}
	return e.Class
}

// refusal is a command that cannot start, and why.
type refusal struct {
	name string
	cmd  providers.Command
	want providers.Class
	text string
}

func refusals() []refusal {
	return []refusal{
		{"missing", providers.Command{Argv: []string{"no-such-program"}}, providers.NoCommand, "'no-such-program' not found"},
		{"missing-path", providers.Command{Argv: []string{"./absent"}}, providers.NoCommand, "'./absent' not found"},
		{"interpreter", providers.Command{Argv: []string{"./orphan"}}, providers.NoCommand, "interpreter"},
		{"not-executable", providers.Command{Argv: []string{"./plain"}}, providers.FileDenied, "not executable"},
		{"directory", providers.Command{Argv: []string{"/tmp"}}, providers.FileDenied, "not executable"},
		{"format", providers.Command{Argv: []string{"./nonsense"}}, providers.Invalid, "not a program"},
		{"cwd", providers.Command{Argv: []string{"true"}, Dir: "/nope"}, providers.NoDir, "cwd '/nope' does not exist"},
		{"cwd-file", providers.Command{Argv: []string{"true"}, Dir: "plain"}, providers.NoDir, "is not a directory"},
		{"user", providers.Command{Argv: []string{"true"}, User: "root"}, providers.NoUser, "'root' is not available"},
		{"nul", providers.Command{Argv: []string{"echo", "a\x00b"}}, providers.Invalid, "NUL"},
		{"env-nul", providers.Command{Argv: []string{"true"}, Env: map[string]string{"A": "\x00"}}, providers.Invalid, "environment"},
		{"env-name", providers.Command{Argv: []string{"true"}, Env: map[string]string{"A=B": "x"}}, providers.Invalid, "environment"},
		{"not/a/name", providers.Command{Argv: []string{"true"}}, providers.Invalid, "name"},
		{"both", providers.Command{Argv: []string{"true"}, Shell: "true"}, providers.Invalid, "either"},
		{"neither", providers.Command{}, providers.Invalid, "either"},
		{"too-long", providers.Command{Argv: []string{"true", strings.Repeat("x", 200<<10)}}, providers.Invalid, "too long"},
	}
}

func TestRunRefusesWhatCannotStart(t *testing.T) {
	t.Parallel()
	e := newEngine(t)
	s := e.sandbox(envd.Options{User: "sandbox"})
	must(t, os.WriteFile(filepath.Join(e.workDir, "plain"), []byte("#!/bin/sh\n"), 0o644))
	must(t, os.WriteFile(filepath.Join(e.workDir, "nonsense"), []byte{0x7f, 1, 2, 3}, 0o755))
	must(t, os.WriteFile(filepath.Join(e.workDir, "orphan"), []byte("#!/no/such/interpreter\n"), 0o755))
	for _, c := range refusals() {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			c.cmd.Name = c.name
			_, err := s.Run(patient(t), c.cmd)
			if got := class(t, err); got != c.want || !strings.Contains(err.Error(), c.text) {
				t.Errorf("got %v", err)
			}
		})
	}
	t.Run("the name stays free", func(t *testing.T) {
		t.Parallel()
		_, err := s.Run(patient(t), providers.Command{Name: "again", Argv: []string{"./later"}})
		if class(t, err) != providers.NoCommand {
			t.Fatal(err)
		}
		must(t, os.WriteFile(filepath.Join(e.workDir, "later"), []byte("#!/bin/sh\necho ok\n"), 0o755))
		if r := run(t, s, providers.Command{Name: "again", Argv: []string{"./later"}}); string(r.Stdout) != "ok\n" {
			t.Errorf("got %q", r.Stdout)
		}
	})
}

func TestANameIsStartedOnce(t *testing.T) {
	t.Parallel()
	e := newEngine(t)
	s := e.sandbox(envd.Options{})
	cmd := providers.Command{Name: "once", Shell: "echo started >> log; sleep 0.3; echo done; exit 3"}
	results := make(chan providers.Result, 8)
	for range cap(results) {
		go func() {
			r, err := s.Run(patient(t), cmd)
			if err != nil {
				t.Error(err)
			}
			results <- r
		}()
	}
	for range cap(results) {
		if r := <-results; r.ExitCode != 3 || string(r.Stdout) != "done\n" {
			t.Errorf("got %+v", r)
		}
	}
	if log, err := os.ReadFile(filepath.Join(e.workDir, "log")); err != nil || string(log) != "started\n" {
		t.Errorf("the command left %q, %v", log, err)
	}
}

func TestForgetDropsTheOutputAndKeepsTheName(t *testing.T) {
	t.Parallel()
	s := newEngine(t).sandbox(envd.Options{})
	ctx := patient(t)
	cmd := providers.Command{Name: "f", Shell: "echo one; exit 4"}
	run(t, s, cmd)
	before, err := s.ExecInfos(ctx)
	must(t, err)
	must(t, s.Forget(ctx, "f"))
	must(t, s.Forget(ctx, "f"))
	must(t, s.Forget(ctx, "never-seen"))
	r := run(t, s, cmd)
	if r.ExitCode != 4 || len(r.Stdout) != 0 || r.StdoutBytes != 4 || !r.Truncated() {
		t.Errorf("after Forget: %+v", r)
	}
	list, err := s.ExecInfos(ctx)
	must(t, err)
	if len(list) != 1 || list[0].Name != "f" || list[0].Running || list[0].StdoutKept != 0 {
		t.Fatalf("got %+v", list)
	}
	if was, is := before[0], list[0]; is.Pid != was.Pid || is.Pid == 0 || is.DurationMs != was.DurationMs || is.StdoutBytes != was.StdoutBytes || is.AgeMs < was.AgeMs {
		t.Errorf("before Forget %+v, after it %+v", was, is)
	}
}

func TestOutputIsCappedAndCounted(t *testing.T) {
	t.Parallel()
	s := newEngine(t).sandbox(envd.Options{})
	const gib = 1 << 30
	start := time.Now()
	r := run(t, s, providers.Command{Name: "big", Shell: "head -c 1073741824 /dev/zero; head -c 3000 /dev/zero >&2", MaxOutput: 5000})
	t.Logf("1 GiB of output: %v", time.Since(start))
	if len(r.Stdout) != 5000 || r.StdoutBytes != gib || len(r.Stderr) != 3000 || r.StderrBytes != 3000 || !r.Truncated() {
		t.Errorf("kept %d of %d and %d of %d", len(r.Stdout), r.StdoutBytes, len(r.Stderr), r.StderrBytes)
	}
}

func TestLargeInputAndOutputArriveWhole(t *testing.T) {
	t.Parallel()
	s := newEngine(t).sandbox(envd.Options{})
	in := make([]byte, 20<<20)
	for i := range in {
		in[i] = byte(i * i >> 3)
	}
	r := run(t, s, providers.Command{Name: "cat", Argv: []string{"cat"}, Stdin: in, MaxOutput: 32 << 20})
	if sha256.Sum256(r.Stdout) != sha256.Sum256(in) {
		t.Errorf("got %d bytes of %d", len(r.Stdout), len(in))
	}
	r = run(t, s, providers.Command{Name: "deaf", Shell: "exec <&-; echo ok", Stdin: in})
	if string(r.Stdout) != "ok\n" {
		t.Errorf("a command that does not read its input: %+v", r)
	}
}

func TestKeptOutputIsBoundedInTotal(t *testing.T) {
	t.Parallel()
	s := newEngine(t).sandbox(envd.Options{})
	kept := int64(0)
	for i := range 10 {
		r := run(t, s, providers.Command{Name: fmt.Sprint("k", i), Shell: "head -c 10000000 /dev/zero", MaxOutput: 16 << 20})
		if r.StdoutBytes != 10_000_000 {
			t.Fatalf("counted %d", r.StdoutBytes)
		}
		kept += int64(len(r.Stdout))
	}
	if kept > 64<<20 || kept < 60_000_000 {
		t.Errorf("kept %d bytes", kept)
	}
	must(t, s.Forget(patient(t), "k0"))
	if r := run(t, s, providers.Command{Name: "after", Shell: "echo room again"}); r.Truncated() {
		t.Errorf("got %+v", r)
	}
}

func TestBackgroundProcessMayHoldTheOutput(t *testing.T) {
	testenv.Long(t, "its verdict hangs on the clock")
	t.Parallel()
	s := newEngine(t).sandbox(envd.Options{})
	start := time.Now()
	r := run(t, s, providers.Command{Name: "bg", Shell: "(while :; do echo tick; sleep 0.02; done) & echo $! > pid; echo main"})
	if took := time.Since(start); took > 5*time.Second || !bytes.Contains(r.Stdout, []byte("main\n")) {
		t.Errorf("took %v, got %+v", took, r)
	}
	again := run(t, s, providers.Command{Name: "still", Shell: "sleep 0.2; kill -0 $(cat pid)"})
	if again.ExitCode != 0 {
		t.Errorf("writing to its output killed the background process: %s", again.Stderr)
	}
}

func TestOrphansAreReaped(t *testing.T) {
	t.Parallel()
	s := newEngine(t).sandbox(envd.Options{})
	run(t, s, providers.Command{Name: "orphans", Shell: "for i in $(seq 50); do (setsid sh -c 'sleep 0.1 & exit' &); done"})
	looks := 0
	testenv.Eventually(t, "no zombies", func() bool {
		looks++
		r := run(t, s, providers.Command{Name: fmt.Sprint("z", looks), Shell: "cat /proc/[0-9]*/stat 2>/dev/null | grep -c ') [ZS] ' ; cat /proc/[0-9]*/stat 2>/dev/null | grep -c ') Z '"})
		return strings.HasSuffix(string(r.Stdout), "\n0\n")
	})
}

func TestTheGuestIsShielded(t *testing.T) {
	t.Parallel()
	s := newEngine(t).sandbox(envd.Options{})
	r := run(t, s, providers.Command{Name: "signals", Shell: "for i in $(seq 64); do kill -$i 1; done; echo sent"})
	if string(r.Stdout) != "sent\n" {
		t.Errorf("got %+v", r)
	}
	if r := run(t, s, providers.Command{Name: "all", Shell: "kill -9 -1; sleep 1000"}); r.Signal != "SIGKILL" {
		t.Errorf("after killing its own supervisor: %+v", r)
	}
	r = run(t, s, providers.Command{Name: "next", Shell: "cat /proc/self/oom_score_adj; readlink /proc/self/fd/3 /proc/self/fd/4; true"})
	if string(r.Stdout) != "950\n" {
		t.Errorf("got %q, want the OOM score 950 and no descriptor of ours", r.Stdout)
	}
	r = run(t, s, providers.Command{Name: "pipe", Shell: "yes | head -n 1"})
	if string(r.Stdout) != "y\n" {
		t.Errorf("a pipeline: %+v", r)
	}
}

// TestCommandsAfterAllWasKilled starts commands on supervisors that another command has just killed.
func TestCommandsAfterAllWasKilled(t *testing.T) {
	t.Parallel()
	s := newEngine(t).sandbox(envd.Options{})
	for i := range 100 {
		run(t, s, providers.Command{Name: fmt.Sprint("kill", i), Shell: "kill -9 -1; sleep 1000"})
		if r := run(t, s, providers.Command{Name: fmt.Sprint("next", i), Shell: "echo next"}); string(r.Stdout) != "next\n" {
			t.Fatalf("round %d: %+v", i, r)
		}
	}
}

// TestNoSignalHasItsDefault reads which signals the guest ignores and which it catches.
func TestNoSignalHasItsDefault(t *testing.T) {
	t.Parallel()
	s := newEngine(t).sandbox(envd.Options{})
	status := string(run(t, s, providers.Command{Name: "status", Argv: []string{"cat", "/proc/1/status"}}).Stdout)
	ignored, caught := signalMask(t, status, "SigIgn"), signalMask(t, status, "SigCgt")
	for n := syscall.Signal(1); n <= 64; n++ {
		bit := uint64(1) << (n - 1)
		switch {
		case n == syscall.SIGKILL, n == syscall.SIGSTOP, n == syscall.SIGCONT: // nothing to be done about the first two
		case n >= 32 && ignored&bit == 0:
			t.Errorf("the real-time signal %d is not ignored, so it queues up", n)
		case n < 32 && caught&bit == 0:
			t.Errorf("%v is not caught", n)
		}
	}
}

// signalMask is a set of signals in the text of /proc/PID/status.
func signalMask(t *testing.T, status, name string) uint64 {
	t.Helper()
	_, rest, _ := strings.Cut(status, name+":\t")
	line, _, _ := strings.Cut(rest, "\n")
	mask, err := strconv.ParseUint(line, 16, 64)
	must(t, err)
	return mask
}

// TestSignalsWithoutEnd starts commands while another sends the guest every signal, more often than would fit into the
// kernel's queue. The commands start with the default action of every signal.
func TestSignalsWithoutEnd(t *testing.T) {
	testenv.Long(t, "it takes many seconds")
	t.Parallel()
	s := newEngine(t).sandbox(envd.Options{})
	flood := []string{"python3", "-c", "import os\nfor _ in range(6000):\n  for n in range(1, 65): os.kill(1, n)\nprint('sent')"}
	ctx := deadline(t, 2*time.Minute)
	sent := make(chan providers.Result, 1)
	go func() {
		defer close(sent)
		r, err := s.Run(ctx, providers.Command{Name: "flood", Argv: flood})
		if err != nil {
			t.Errorf("the flood: %v", err)
		}
		sent <- r
	}()
	for i := 0; i < 50 || len(sent) == 0; i++ {
		r := run(t, s, providers.Command{Name: fmt.Sprint("during", i), Argv: []string{"cat", "/proc/self/status"}})
		for _, mask := range []string{"SigBlk", "SigIgn", "SigCgt"} {
			if set := signalMask(t, string(r.Stdout), mask); set != 0 {
				t.Fatalf("command %d: %s is %x", i, mask, set)
			}
		}
	}
	if r := <-sent; string(r.Stdout) != "sent\n" {
		t.Errorf("the flood: %+v", r)
	}
}

func TestRunOverPlainStreamsDetachesOnCancel(t *testing.T) {
	t.Parallel()
	e := newEngine(t)
	s := e.sandbox(envd.Options{})
	cmd := providers.Command{Name: "detached", Shell: "echo first; until [ -e go ]; do sleep 0.02; done; echo second; exit 5"}
	ctx, cancel := context.WithCancel(context.Background())
	failed := make(chan error, 1)
	go func() {
		_, err := s.Run(ctx, cmd)
		failed <- err
	}()
	testenv.Eventually(t, "it runs", func() bool {
		list, err := s.ExecInfos(patient(t))
		return err == nil && len(list) == 1 && list[0].StdoutBytes == 6
	})
	cancel()
	if err := <-failed; class(t, err) != providers.Unavailable || !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	must(t, os.WriteFile(filepath.Join(e.workDir, "go"), nil, 0o644))
	if r := run(t, s, cmd); string(r.Stdout) != "first\nsecond\n" || r.ExitCode != 5 {
		t.Errorf("got %+v", r)
	}
}

// TestInputOfACommandThatEnds feeds commands that are just ending: whoever feeds them is told that, and not that the input
// has ended.
func TestInputOfACommandThatEnds(t *testing.T) {
	t.Parallel()
	s := newEngine(t).sandbox(envd.Options{})
	ctx := patient(t)
	for i := range 100 {
		name := fmt.Sprint("short", i)
		_, err := s.Launch(ctx, providers.Command{Name: name, Argv: []string{"true"}, StdinOpen: true})
		for n := 0; err == nil; n++ {
			_, err = s.Feed(ctx, name, providers.Input{ID: fmt.Sprint(n), Data: []byte("x")})
		}
		if class(t, err) != providers.ExecEnded {
			t.Fatalf("input number %d: %v", i, err)
		}
	}
}
