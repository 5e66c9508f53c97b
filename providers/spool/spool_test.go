package spool_test

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"sandyard/providers"
	"sandyard/providers/spool"
)

// machine is a Shell that runs its scripts on this machine.
type machine struct {
	t     *testing.T
	shell []string
	env   []string

	calls atomic.Int64
	cut   atomic.Pointer[func() bool] // the next script is killed with its group once this is true; its answer is lost
}

func (m *machine) Script(ctx context.Context, user, text string, limit int64) ([]byte, error) {
	m.calls.Add(1)
	if user != "" {
		return nil, providers.NoUser.Errorf("there is no user '%s'", user)
	}
	if len(text) > spool.MaxScript {
		m.t.Errorf("a script of %d bytes", len(text))
	}
	cmd := exec.Command(m.shell[0], slices.Concat(m.shell[1:], []string{"-c", text})...)
	cmd.Env = append(os.Environ(), m.env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	defer func() { _ = cmd.Wait() }()
	end := func() { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	defer context.AfterFunc(ctx, end)()
	if now := m.cut.Swap(nil); now != nil {
		go func() {
			for ctx.Err() == nil && !(*now)() {
				<-time.After(5 * time.Millisecond)
			}
			end()
		}()
	}
	var all bytes.Buffer
	n, err := all.ReadFrom(out)
	switch {
	case err != nil || ctx.Err() != nil:
		return nil, providers.Unavailable.Errorf("cut off: %w", errors.Join(err, ctx.Err()))
	case n > limit:
		return nil, providers.TooLarge.Errorf("%d bytes", n)
	case n == 0:
		return nil, providers.Unavailable.Errorf("no answer")
	}
	return all.Bytes(), nil
}

func (m *machine) Put(_ context.Context, path string, data []byte) error {
	return os.WriteFile(path, data, 0o644)
}

// box is a sandbox on this machine: a work directory, and commands whose names no other test has.
type box struct {
	*spool.Spool
	*machine
	dir string
}

func newBox(t *testing.T, env ...string) box {
	t.Helper()
	return newBoxWith(t, spool.Options{}, env...)
}

func newBoxWith(t *testing.T, o spool.Options, env ...string) box {
	t.Helper()
	m := &machine{t: t, shell: []string{"sh"}, env: env}
	dir := t.TempDir()
	o.WorkDir, o.Home = dir, dir
	return box{spool.New(m, o), m, dir}
}

// name makes a name for a command's spool and control groups. It names the run, so that whoever clears a run that was
// killed finds the groups.
func name(t *testing.T) string {
	t.Helper()
	name := fmt.Sprintf("spool-%s-%s", filepath.Base(cmp.Or(os.Getenv("SANDYARD_ROOM"), "alone")), rand.Text())
	t.Cleanup(func() { _ = os.RemoveAll(spoolDir(name)) })
	return name
}

func spoolDir(name string) string {
	return filepath.Join(fmt.Sprintf("/tmp/.sandyard-%d", os.Getuid()), name)
}

func (b box) run(t *testing.T, cmd providers.Command) providers.Result {
	t.Helper()
	if cmd.Name == "" {
		cmd.Name = name(t)
	}
	res, err := b.Run(t.Context(), cmd)
	if err != nil {
		t.Fatalf("run %.80q %.80q: %v", cmd.Shell, cmd.Argv, err)
	}
	return res
}

func eventually(t *testing.T, what string, reached func() bool) {
	t.Helper()
	deadline := time.Now().Add(time.Minute)
	for !reached() {
		if time.Now().After(deadline) {
			t.Fatalf("not reached in time: %s", what)
		}
		<-time.After(10 * time.Millisecond)
	}
}

func (b box) has(file string) func() bool {
	return func() bool { _, err := os.Stat(filepath.Join(b.dir, file)); return err == nil }
}

func wantClass(t *testing.T, err error, class providers.Class) {
	t.Helper()
	if err == nil || providers.AsError(err).Class != class || providers.AsError(err).Message == "" {
		t.Errorf("got %v, want class %s", err, class)
	}
}

func TestRunIsOneScript(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	res := b.run(t, providers.Command{Shell: "printf out; printf err >&2; exit 3"})
	if string(res.Stdout) != "out" || string(res.Stderr) != "err" || res.ExitCode != 3 || res.Signal != "" ||
		res.StdoutBytes != 3 || res.StderrBytes != 3 || res.Duration <= 0 || res.TimedOut {
		t.Errorf("got %+v", res)
	}
	if n := b.calls.Load(); n != 1 {
		t.Errorf("it took %d scripts", n)
	}
}

// TestNothingIsReadByAShell gives a command all that a shell might take for something else.
// TestNoScriptWaitsForLong has a backend that ends scripts after a while: several follow one command.
func TestNoScriptWaitsForLong(t *testing.T) {
	t.Parallel()
	b := newBoxWith(t, spool.Options{Patience: 100 * time.Millisecond})
	cmd := providers.Command{Name: name(t), Shell: "while [ ! -e go ]; do sleep 0.05; done; printf x >>once"}
	ended := make(chan error, 1)
	go func() { _, err := b.Run(t.Context(), cmd); ended <- err }()
	eventually(t, "a third script asks for it", func() bool { return b.calls.Load() >= 3 })
	if err := os.WriteFile(filepath.Join(b.dir, "go"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if text, err := os.ReadFile(filepath.Join(b.dir, "once")); err != nil || string(text) != "x" {
		t.Errorf("it wrote %q, %v", text, err)
	}
}

// TestTheSpoolOutlivesTmp has a sandbox whose /tmp is empty after a stop: what has run does not run again.
func TestTheSpoolOutlivesTmp(t *testing.T) {
	t.Parallel()
	b := newBoxWith(t, spool.Options{Lasting: true})
	cmd := providers.Command{Name: name(t), Shell: "printf x >>once; exit 3"}
	for range 2 {
		if res := b.run(t, cmd); res.ExitCode != 3 {
			t.Errorf("got %+v", res)
		}
	}
	lasting := strings.Replace(spoolDir(cmd.Name), "/tmp/", "/var/tmp/", 1)
	defer os.RemoveAll(lasting)
	if _, err := os.Stat(lasting); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(spoolDir(cmd.Name)); err == nil {
		t.Error("the spool is in /tmp")
	}
	if err := b.Forget(t.Context(), cmd.Name); err != nil {
		t.Error(err)
	}
	if text, err := os.ReadFile(filepath.Join(b.dir, "once")); err != nil || string(text) != "x" {
		t.Errorf("it wrote %q, %v", text, err)
	}
}

func TestNothingIsReadByAShell(t *testing.T) {
	t.Parallel()
	odd := "a'b\"c $HOME `id` \\ \n\t*~;&|<>(){}[]!#\r ü\x01"
	b := newBox(t, "sy_dir_not=kept", "name=theirs", "dir=theirs", "code=theirs", "max=7")
	res := b.run(t, providers.Command{Argv: []string{"printf", "%s|", odd, "", "-n"}})
	if string(res.Stdout) != odd+"||-n|" {
		t.Errorf("arguments came as %q", res.Stdout)
	}
	res = b.run(t, providers.Command{Shell: `printf %s "$ODD"`, Env: map[string]string{"ODD": odd, "lower.dot": "x"}})
	if string(res.Stdout) != odd {
		t.Errorf("a variable came as %q", res.Stdout)
	}
	res = b.run(
		t,
		providers.Command{
			Shell: `echo "$name $dir $code $max $lower"; env | grep -c ^sy_; umask`,
			Env:   map[string]string{"lower": odd[:1]},
		},
	)
	if string(res.Stdout) != "theirs theirs theirs 7 a\n1\n0022\n" {
		t.Errorf("the sandbox's environment came as %q", res.Stdout)
	}
	if err := os.Mkdir(filepath.Join(b.dir, odd), 0o755); err != nil {
		t.Fatal(err)
	}
	if res = b.run(t, providers.Command{Shell: `printf %s "$PWD"`, Dir: odd}); string(res.Stdout) != b.dir+"/"+odd {
		t.Errorf("the directory came as %q", res.Stdout)
	}
	if res = b.run(t, providers.Command{Shell: `printf %s "$HOME"`, Dir: "~"}); string(res.Stdout) != b.dir {
		t.Errorf("HOME is %q", res.Stdout)
	}
}

func TestOutputBeyondWhatIsKeptIsCounted(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	for _, size := range []int64{0, 1, 999, 1000, 1001, 65536, 65537, 3 << 20} {
		res := b.run(t, providers.Command{
			Shell: fmt.Sprintf("head -c %d /dev/zero | tr '\\0' x; head -c %d /dev/zero >&2", size, size), MaxOutput: 1000,
		})
		want := strings.Repeat("x", int(min(size, 1000)))
		if string(res.Stdout) != want || res.StdoutBytes != size || res.StderrBytes != size ||
			res.Truncated() != (size > 1000) {
			t.Errorf("of %d bytes %d were kept, and %d and %d counted", size, len(res.Stdout), res.StdoutBytes, res.StderrBytes)
		}
	}
	all := b.run(t, providers.Command{Shell: "head -c 3000000 /dev/urandom | tee copy", MaxOutput: 5 << 20})
	if copied, err := os.ReadFile(filepath.Join(b.dir, "copy")); err != nil || !bytes.Equal(copied, all.Stdout) ||
		all.Truncated() {
		t.Errorf("3,000,000 bytes came as %d, counted %d, %v", len(all.Stdout), all.StdoutBytes, err)
	}
}

func TestInputOfAnySize(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	for _, size := range []int{0, 1, 5000, 40 << 10, 1 << 20} {
		text := bytes.Repeat([]byte("\x00\xff ü\n"), size/6+1)[:size]
		if res := b.run(t, providers.Command{Shell: "cat", Stdin: text}); !bytes.Equal(res.Stdout, text) {
			t.Errorf("%d bytes came back as %d", size, len(res.Stdout))
		}
	}
	if res := b.run(t, providers.Command{Shell: "exit 4", Stdin: make([]byte, 1<<20)}); res.ExitCode != 4 {
		t.Errorf("a command that does not read exits with %d", res.ExitCode)
	}
	long := strings.Repeat("x", 100<<10)
	if res := b.run(t, providers.Command{Argv: []string{"printf", "%s%s", long, long}}); string(res.Stdout) != long+long {
		t.Errorf("a command of %d bytes printed %d", 2*len(long), len(res.Stdout))
	}
	left, err := filepath.Glob(fmt.Sprintf("/tmp/.sandyard-in-spool-%d-*", os.Getpid()))
	if err != nil || len(left) != 0 {
		t.Errorf("left in /tmp: %v, %v", left, err)
	}
}

func TestSignalsAndExitCodes(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	for script, want := range map[string]string{
		"exit 0": "0 ", "exit 127": "127 ", "kill -KILL $$": "137 SIGKILL",
		"kill -SEGV $$": "139 SIGSEGV", "kill -INT $$": "130 SIGINT",
		"exit 255": "255 ",
	} {
		if res := b.run(t, providers.Command{Shell: script}); fmt.Sprintf("%d %s", res.ExitCode, res.Signal) != want {
			t.Errorf("%s: %d %s, want %s", script, res.ExitCode, res.Signal, want)
		}
	}
}

func TestRefused(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	for class, cmds := range map[providers.Class][]providers.Command{
		providers.NoCommand: {
			{Argv: []string{"no-such-program"}},
			{Argv: []string{"./none"}},
			{Argv: []string{"/tmp"}},
			{Argv: []string{""}},
			{Argv: []string{"A=b"}},
			{Argv: []string{"ls"}, Env: map[string]string{"PATH": "/none"}},
		},
		providers.NoDir:  {{Shell: "true", Dir: "none"}, {Shell: "true", Dir: "/etc/passwd"}},
		providers.NoUser: {{Shell: "true", User: "root"}, {Shell: "true", User: "a b"}},
		providers.Invalid: {
			{},
			{Shell: "true", Argv: []string{"x"}},
			{Argv: []string{"echo", "a\x00b"}},
			{Shell: "\xff"},
			{Shell: strings.Repeat("x", 1<<17)},
		},
	} {
		for _, cmd := range cmds {
			cmd.Name = name(t)
			for range 2 { // the second time it attaches
				_, err := b.Run(t.Context(), cmd)
				wantClass(t, err, class)
			}
		}
	}
	for _, bad := range []string{"", "a/b", "..", "-x", "a b", strings.Repeat("n", 200)} {
		_, err := b.Run(t.Context(), providers.Command{Name: bad, Shell: "true"})
		wantClass(t, err, providers.Invalid)
		if err := errors.Join(b.Kill(t.Context(), bad), b.Forget(t.Context(), bad)); err != nil {
			t.Errorf("kill and forget %q: %v", bad, err)
		}
	}
}

// TestStartedOnce runs one name from many sides at once, and again afterwards.
func TestStartedOnce(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	cmd := providers.Command{Name: name(t), Shell: "printf x >>once; sleep 0.2; printf same; exit 5"}
	var all sync.WaitGroup
	for range 6 {
		all.Go(func() {
			if res, err := b.Run(t.Context(), cmd); err != nil || string(res.Stdout) != "same" || res.ExitCode != 5 {
				t.Errorf("got %+v, %v", res, err)
			}
		})
	}
	all.Wait()
	b.run(t, cmd)
	if text, err := os.ReadFile(filepath.Join(b.dir, "once")); err != nil || string(text) != "x" {
		t.Errorf("it was started %d times, %v", len(text), err)
	}
}

// TestACutCallLosesNothing kills the process group of the script that has started the command.
func TestACutCallLosesNothing(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	cmd := providers.Command{Name: name(t), Shell: "printf begin; printf x >>begun; until [ -e go ]; do sleep 0.1; done; printf end; exit 7"}
	begun := b.has("begun")
	b.cut.Store(&begun)
	_, err := b.Run(t.Context(), cmd)
	wantClass(t, err, providers.Unavailable)
	if err := os.WriteFile(filepath.Join(b.dir, "go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if res := b.run(t, cmd); string(res.Stdout) != "beginend" || res.ExitCode != 7 {
		t.Errorf("after the cut: %+v", res)
	}
	if text, err := os.ReadFile(filepath.Join(b.dir, "begun")); err != nil || string(text) != "x" {
		t.Errorf("it was started %d times, %v", len(text), err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cmd = providers.Command{Name: name(t), Shell: "touch second; sleep 1; echo on"}
	ended := make(chan error, 1)
	go func() { _, err := b.Run(ctx, cmd); ended <- err }()
	eventually(t, "the second command has begun", b.has("second"))
	cancel()
	wantClass(t, <-ended, providers.Unavailable)
	if res := b.run(t, cmd); string(res.Stdout) != "on\n" {
		t.Errorf("after the caller has left: %+v", res)
	}
}

func TestForgottenNamesStayTaken(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	cmd := providers.Command{Name: name(t), Shell: "printf x >>once; printf out"}
	b.run(t, cmd)
	for range 2 {
		if err := b.Forget(t.Context(), cmd.Name); err != nil {
			t.Fatal(err)
		}
	}
	if res, err := b.Run(t.Context(), cmd); err != nil || len(res.Stdout) != 0 || res.StdoutBytes != 3 {
		t.Errorf("run again: %+v, %v", res, err)
	}
	if text, _ := os.ReadFile(filepath.Join(b.dir, "once")); string(text) != "x" {
		t.Errorf("it ran %d times", len(text))
	}
	if left, _ := os.ReadDir(spoolDir(cmd.Name)); len(left) != 1 {
		t.Errorf("left of it: %v", left)
	}
	busy := providers.Command{Name: name(t), Shell: "touch busy; sleep 60"}
	ended := make(chan error, 1)
	go func() { _, err := b.Run(t.Context(), busy); ended <- err }()
	eventually(t, "it runs", b.has("busy"))
	wantClass(t, b.Forget(t.Context(), busy.Name), providers.Busy)
	if err := errors.Join(b.Kill(t.Context(), busy.Name), <-ended, b.Forget(t.Context(), busy.Name)); err != nil {
		t.Error(err)
	}
}

func TestStartDoesNotWait(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	cmd := providers.Command{Name: name(t), Shell: "touch started; sleep 0.5; printf late"}
	for range 2 {
		if err := b.Start(t.Context(), cmd); err != nil {
			t.Fatal(err)
		}
	}
	if b.has("late")() {
		t.Error("it waited")
	}
	if res := b.run(t, cmd); string(res.Stdout) != "late" {
		t.Errorf("got %+v", res)
	}
	wantClass(
		t,
		b.Start(t.Context(), providers.Command{Name: name(t), Argv: []string{"no-such-program"}}),
		providers.NoCommand,
	)
}

func TestStartedIsToldOnce(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	told := make(chan struct{}, 10)
	b.run(t, providers.Command{Shell: "while [ ! -e go ]; do sleep 0.1; done", Started: func() {
		told <- struct{}{}
		if err := os.WriteFile(filepath.Join(b.dir, "go"), nil, 0o644); err != nil {
			t.Error(err)
		}
	}})
	b.run(t, providers.Command{Shell: "true", Started: func() { told <- struct{}{} }})
	if len(told) != 2 {
		t.Errorf("it was told %d times", len(told))
	}
}

// TestOtherShells runs the scripts by what else sh may be.
func TestOtherShells(t *testing.T) {
	t.Parallel()
	for _, shell := range []string{"bash", "busybox sh"} {
		t.Run(shell, func(t *testing.T) {
			t.Parallel()
			b := newBox(t)
			b.shell = strings.Fields(shell)
			if _, err := exec.LookPath(b.shell[0]); err != nil {
				t.Skipf("skipped: %v", err)
			}
			res := b.run(
				t,
				providers.Command{Shell: "cat; head -c 70000 /dev/zero >&2; exit 9", Stdin: []byte("in"), MaxOutput: 100},
			)
			if string(res.Stdout) != "in" || len(res.Stderr) != 100 || res.StderrBytes != 70000 || res.ExitCode != 9 {
				t.Errorf("got %+v", res)
			}
			long := unlike()
			res = b.run(t, providers.Command{Shell: "setsid " + long + " & " + long, Timeout: 300 * time.Millisecond})
			if left := alive(t, long); !res.TimedOut || len(left) != 0 {
				t.Errorf("got %+v, left behind: %v", res, left)
			}
		})
	}
}
