package fake_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"testing"
	"time"

	"go.uber.org/goleak"

	"sandyard/providers"
	"sandyard/providers/fake"
	"sandyard/providers/providertest"
	"sandyard/providers/providertest/fixture"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func script() fixture.Script {
	return fixture.Script{
		Print:  func(out, err string) string { return "fake:stdout " + out + "; fake:stderr " + err },
		Exit:   func(code int) string { return fmt.Sprintf("fake:exit %d", code) },
		Sleep:  func(d time.Duration) string { return "fake:sleep " + d.String() },
		Await:  func(path string) string { return "fake:await " + path },
		Append: func(path, text string) string { return "fake:append " + path + " " + text },
		Env:    func(name string) string { return "fake:env " + name },
		Pwd:    func() string { return "fake:pwd" },
		Cat:    func() string { return "fake:cat" },
	}
}

func newState(t *testing.T) *fake.State {
	t.Helper()
	state := fake.NewState()
	t.Cleanup(state.Close)
	return state
}

func TestConformance(t *testing.T) {
	t.Parallel()
	state := newState(t)
	open := func(t *testing.T) providers.Provider {
		t.Helper()
		p := fake.New(fake.Options{State: state})
		t.Cleanup(func() { _ = p.Close() })
		return p
	}
	providertest.Run(t, open, fixture.Options{Image: "fake", Script: script()})
}

func TestImageScripts(t *testing.T) {
	t.Parallel()
	for image, want := range map[string][]providers.Class{
		"fake":                       {""},
		"fake:busy 2":                {providers.Busy, providers.Busy, ""},
		"fake:unavailable 1":         {providers.Unavailable, ""},
		"fake:lost-answer 1":         {providers.Unavailable, ""},
		"fake:capacity; slow 1ms":    {providers.Capacity, "", ""},
		"fake:invalid":               {providers.Invalid, providers.Invalid, providers.Invalid},
		"fake:busy 1; unavailable 1": {providers.Busy, providers.Unavailable, ""},
		"fake:nonsense":              {providers.ImageMissing},
		"python":                     {providers.ImageMissing},
	} {
		t.Run(image, func(t *testing.T) {
			t.Parallel()
			p := fake.New(fake.Options{State: newState(t)})
			for i, class := range want {
				_, err := p.Create(t.Context(), providers.Spec{ID: "a", Image: image})
				if got := classOf(err); got != class {
					t.Errorf("create %d answers %q, want %q", i, got, class)
				}
			}
		})
	}
}

func classOf(err error) providers.Class {
	if err == nil {
		return ""
	}
	return providers.AsError(err).Class
}

func TestLostAnswerLeavesTheSandbox(t *testing.T) {
	t.Parallel()
	p := fake.New(fake.Options{State: newState(t)})
	if _, err := p.Create(t.Context(), providers.Spec{ID: "a", Image: "fake:lost-answer"}); err == nil {
		t.Fatal("the answer was not lost")
	}
	if found, err := p.List(t.Context()); err != nil || len(found) != 1 {
		t.Errorf("listed %v, %v; want the sandbox", found, err)
	}
}

func TestHangEndsWithTheCaller(t *testing.T) {
	t.Parallel()
	p := fake.New(fake.Options{State: newState(t)})
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	_, err := p.Create(ctx, providers.Spec{ID: "a", Image: "fake:hang"})
	if !errors.Is(err, context.DeadlineExceeded) || classOf(err) != providers.Unavailable {
		t.Errorf("got %v", err)
	}
	if found, err := p.List(t.Context()); err != nil || len(found) != 0 {
		t.Errorf("listed %v, %v; want nothing", found, err)
	}
}

func TestInjectedFaultsStrikeTheirOperationOnly(t *testing.T) {
	t.Parallel()
	state := newState(t)
	p, box := started(t, state)
	state.Inject(fake.Fault{Op: fake.OpRun, Times: 2, After: true, Err: providers.Unavailable.Errorf("lost")})
	state.Inject(fake.Fault{Op: fake.OpFile, Sandbox: "other", Err: providers.ErrLost})
	cmd := providers.Command{Name: "job", Shell: "fake:append log x; fake:exit 2"}
	for _, want := range []providers.Class{providers.Unavailable, providers.Unavailable, ""} {
		if _, err := box.Run(t.Context(), cmd); classOf(err) != want {
			t.Errorf("run answers %v, want %q", err, want)
		}
	}
	if data, err := box.ReadFile(t.Context(), "log", 10); err != nil || string(data) != "x" || state.Starts("job") != 1 {
		t.Errorf("log is %q, %v, after %d starts; want one", data, err, state.Starts("job"))
	}
	if state.Calls(fake.OpRun) != 3 || p.Capabilities().PerNode {
		t.Errorf("counted %d runs", state.Calls(fake.OpRun))
	}
}

func started(t *testing.T, state *fake.State) (*fake.Provider, providers.Sandbox) {
	t.Helper()
	p := fake.New(fake.Options{State: state})
	if _, err := p.Create(t.Context(), providers.Spec{ID: "a", Image: "fake"}); err != nil {
		t.Fatal(err)
	}
	box, err := p.Open(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	return p, box
}

func TestCrashAndVanish(t *testing.T) {
	t.Parallel()
	state := newState(t)
	p, box := started(t, state)
	if _, err := box.Run(t.Context(), providers.Command{Name: "c", Shell: "fake:crash"}); !errors.Is(err, providers.ErrLost) {
		t.Errorf("run over a crash answers %v", err)
	}
	if _, err := p.Open(t.Context(), "a"); !errors.Is(err, providers.ErrLost) {
		t.Errorf("open after a crash answers %v", err)
	}
	state.Vanish("a")
	if _, err := p.Open(t.Context(), "a"); !errors.Is(err, providers.ErrNotFound) {
		t.Errorf("open of what vanished answers %v", err)
	}
}

func TestScriptedEnds(t *testing.T) {
	t.Parallel()
	_, box := started(t, newState(t))
	for shell, want := range map[string]providers.Result{
		"fake:signal SIGSEGV":            {ExitCode: 139, Signal: "SIGSEGV"},
		"fake:oom":                       {ExitCode: 137, Signal: "SIGKILL", OOMKilled: true},
		"fake:exit 9; fake:stdout never": {ExitCode: 9},
		"fake:fill 30":                   {StdoutBytes: 30},
	} {
		res, err := box.Run(t.Context(), providers.Command{Name: shell, Shell: shell, MaxOutput: 10})
		if err != nil || res.ExitCode != want.ExitCode || res.Signal != want.Signal || res.OOMKilled != want.OOMKilled || res.StdoutBytes != want.StdoutBytes || len(res.Stdout) > 10 {
			t.Errorf("%s: %+v, %v", shell, res, err)
		}
	}
}

func TestPauseEndsTheWait(t *testing.T) {
	t.Parallel()
	state := newState(t)
	p, box := started(t, state)
	ended := make(chan error, 1)
	cmd := providers.Command{Name: "slow", Shell: "fake:sleep 1h", Timeout: time.Hour}
	go func() {
		_, err := box.Run(t.Context(), cmd)
		ended <- err
	}()
	for state.Starts("slow") == 0 {
		runtime.Gosched()
	}
	if err := p.Pause(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; !errors.Is(err, providers.ErrPaused) {
		t.Errorf("with the pause the run answers %v", err)
	}
	if err := p.Resume(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	cmd.Timeout = time.Millisecond
	if res, err := box.Run(t.Context(), cmd); err != nil || !res.TimedOut {
		t.Errorf("after resume got %+v, %v; want that its time is over", res, err)
	}
}
