package providertest

import (
	"context"
	"testing"
	"time"

	"sandyard/providers"
)

// names checks the heart of the contract: a name is started once, and whoever asks later gets the same run.
func names(t *testing.T, s *suite) {
	r := s.room(t)
	t.Run("started once", func(t *testing.T) {
		t.Parallel()
		cmd := providers.Command{Name: newID(t), Shell: s.Script.Append("once", "x") + "; " + s.Script.Print("done", "") + "; " + s.Script.Exit(5)}
		for range 3 {
			if res := run(t, r, cmd); string(res.Stdout) != "done" || res.ExitCode != 5 {
				t.Errorf("got %s", show(res))
			}
		}
		wantFile(t, r, "once", "x")
	})
	t.Run("forgotten, the name stays taken", func(t *testing.T) {
		t.Parallel()
		cmd := providers.Command{Name: newID(t), Shell: s.Script.Append("forgotten", "x")}
		run(t, r, cmd)
		for range 2 {
			if err := r.Forget(within(t), cmd.Name); err != nil {
				t.Fatalf("forget: %v", err)
			}
		}
		// What a second run answers is the provider's affair; that the command does not start is not.
		_, _ = r.Run(within(t), cmd)
		wantFile(t, r, "forgotten", "x")
	})
	t.Run("cancelled run goes on", func(t *testing.T) { t.Parallel(); cancelledRun(t, s, r) })
	t.Run("concurrent runs of one name", func(t *testing.T) { t.Parallel(); concurrentRuns(t, s, r) })
	t.Run("another worker takes over", func(t *testing.T) { t.Parallel(); takeOver(t, s) })
}

func cancelledRun(t *testing.T, s *suite, r room) {
	cmd := providers.Command{
		Name:  newID(t),
		Shell: s.Script.Append("detached", "a") + "; " + s.Script.Print("begin", "") + "; " + s.Script.Sleep(time.Second) + "; " + s.Script.Print("end", "") + "; " + s.Script.Exit(7),
	}
	ctx, cancel := context.WithCancel(within(t))
	ended := make(chan error, 1)
	go func() {
		_, err := r.Run(ctx, cmd)
		ended <- err
	}()
	eventually(t, "the command has begun", func() bool { _, err := r.Stat(t.Context(), "detached"); return err == nil })
	cancel()
	if err := <-ended; err == nil {
		t.Error("a cancelled run answers no error")
	}
	res := run(t, r, cmd)
	if string(res.Stdout) != "beginend" || res.ExitCode != 7 {
		t.Errorf("after the detour got %s", show(res))
	}
	wantFile(t, r, "detached", "a")
}

func concurrentRuns(t *testing.T, s *suite, r room) {
	cmd := providers.Command{Name: newID(t), Shell: s.Script.Append("shared", "x") + "; " + s.Script.Sleep(100*time.Millisecond) + "; " + s.Script.Print("same", "")}
	type answer struct {
		res providers.Result
		err error
	}
	answers := make(chan answer)
	for range 5 {
		go func() {
			res, err := r.Run(t.Context(), cmd)
			answers <- answer{res, err}
		}()
	}
	for range 5 {
		if a := <-answers; a.err != nil || string(a.res.Stdout) != "same" {
			t.Errorf("got %s, %v", show(a.res), a.err)
		}
	}
	wantFile(t, r, "shared", "x")
}

func takeOver(t *testing.T, s *suite) {
	r := s.room(t)
	cmd := providers.Command{
		Name:  newID(t),
		Shell: s.Script.Append("taken", "a") + "; " + s.Script.Print("begin ", "") + "; " + s.Script.Sleep(time.Second) + "; " + s.Script.Print("end", "late"),
	}
	first := make(chan error, 1)
	go func() {
		_, err := r.Run(t.Context(), cmd)
		first <- err
	}()
	eventually(t, "the command has begun", func() bool { _, err := r.Stat(t.Context(), "taken"); return err == nil })
	second := mustOpen(t, s.open(t), r.id)
	res := run(t, second, cmd)
	if string(res.Stdout) != "begin end" || string(res.Stderr) != "late" || res.ExitCode != 0 {
		t.Errorf("the second worker got %s", show(res))
	}
	// The first may have been put out, which it then says in a way that can be tried again.
	if err := <-first; err != nil && !providers.AsError(err).Retryable() {
		t.Errorf("the first worker got %v", err)
	}
	wantFile(t, mustOpen(t, r.worker, r.id), "taken", "a")
}

func wantFile(t *testing.T, box providers.Files, path, want string) {
	t.Helper()
	if data, err := box.ReadFile(within(t), path, 1000); err != nil || string(data) != want {
		t.Errorf("%s holds %q, %v; want %q", path, data, err, want)
	}
}
