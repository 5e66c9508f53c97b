package providertest

import (
	"context"
	"testing"
	"time"

	"sandyard/dev/testenv"
	"sandyard/providers"
	"sandyard/providers/providertest/fixture"
)

// names checks the heart of the contract: a name is started once, and whoever asks later gets the same run.
func names(t *testing.T, s *fixture.Suite) {
	r := s.NewRoom(t)
	t.Run("started once", func(t *testing.T) {
		t.Parallel()
		cmd := providers.Command{
			Name:  fixture.NewID(t),
			Shell: s.Script.Append("once", "x") + "; " + s.Script.Print("done", "") + "; " + s.Script.Exit(5),
		}
		for range 3 {
			if res := fixture.Run(t, r, cmd); string(res.Stdout) != "done" || res.ExitCode != 5 {
				t.Errorf("got %s", fixture.Show(res))
			}
		}
		fixture.WantFile(t, r, "once", "x")
	})
	t.Run("forgotten, the name stays taken", func(t *testing.T) {
		t.Parallel()
		cmd := providers.Command{Name: fixture.NewID(t), Shell: s.Script.Append("forgotten", "x")}
		fixture.Run(t, r, cmd)
		for range 2 {
			if err := r.Forget(fixture.Within(t), cmd.Name); err != nil {
				t.Fatalf("forget: %v", err)
			}
		}
		// What a second run answers is the provider's affair; that the command does not start is not.
		_, _ = r.Run(fixture.Within(t), cmd)
		fixture.WantFile(t, r, "forgotten", "x")
	})
	t.Run("cancelled run goes on", func(t *testing.T) { t.Parallel(); cancelledRun(t, s, r) })
	t.Run("concurrent runs of one name", func(t *testing.T) { t.Parallel(); concurrentRuns(t, s, r) })
	t.Run("another worker takes over", func(t *testing.T) { t.Parallel(); takeOver(t, s) })
}

func cancelledRun(t *testing.T, s *fixture.Suite, r fixture.Room) {
	for pause := time.Second; ; pause *= 4 { // on a busy machine a command may end before it is cancelled
		file := "detached-" + pause.String()
		cmd := providers.Command{
			Name: fixture.NewID(t),
			Shell: s.Script.Append(file, "a") + "; " + s.Script.Print("begin", "") + "; " +
				s.Script.Sleep(pause) + "; " + s.Script.Print("end", "") + "; " + s.Script.Exit(7),
		}
		early := cancelRun(t, r, cmd, file)
		res := fixture.Run(t, r, cmd)
		if string(res.Stdout) != "beginend" || res.ExitCode != 7 {
			t.Errorf("after the detour got %s", fixture.Show(res))
		}
		fixture.WantFile(t, r, file, "a")
		if early {
			return
		}
		if pause > time.Minute {
			t.Fatal("no cancelled run answers an error")
		}
	}
}

// cancelRun gives a command up when its file is there, and says whether that was before its end.
func cancelRun(t *testing.T, r fixture.Room, cmd providers.Command, file string) (early bool) {
	t.Helper()
	ctx, cancel := context.WithCancel(fixture.Within(t))
	defer cancel()
	ended := make(chan error, 1)
	go func() {
		_, err := r.Run(ctx, cmd)
		ended <- err
	}()
	testenv.Eventually(
		t,
		"the command has begun",
		func() bool { _, err := r.Stat(t.Context(), file); return err == nil },
	)
	cancel()
	return <-ended != nil
}

func concurrentRuns(t *testing.T, s *fixture.Suite, r fixture.Room) {
	cmd := providers.Command{
		Name: fixture.NewID(t),
		Shell: s.Script.Append("shared", "x") + "; " + s.Script.Sleep(100*time.Millisecond) + "; " +
			s.Script.Print("same", ""),
	}
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
			t.Errorf("got %s, %v", fixture.Show(a.res), a.err)
		}
	}
	fixture.WantFile(t, r, "shared", "x")
}

func takeOver(t *testing.T, s *fixture.Suite) {
	r := s.NewRoom(t)
	cmd := providers.Command{
		Name: fixture.NewID(t),
		Shell: s.Script.Append("taken", "a") + "; " + s.Script.Print("begin ", "") + "; " +
			s.Script.Sleep(time.Second) + "; " + s.Script.Print("end", "late"),
	}
	first := make(chan error, 1)
	go func() {
		_, err := r.Run(t.Context(), cmd)
		first <- err
	}()
	testenv.Eventually(
		t,
		"the command has begun",
		func() bool { _, err := r.Stat(t.Context(), "taken"); return err == nil },
	)
	second := fixture.MustOpen(t, s.Open(t), r.ID)
	res := fixture.Run(t, second, cmd)
	if string(res.Stdout) != "begin end" || string(res.Stderr) != "late" || res.ExitCode != 0 {
		t.Errorf("the second worker got %s", fixture.Show(res))
	}
	// The first may have been put out, which it then says in a way that can be tried again.
	if err := <-first; err != nil && !providers.AsError(err).Retryable() {
		t.Errorf("the first worker got %v", err)
	}
	fixture.WantFile(t, fixture.MustOpen(t, r.Worker, r.ID), "taken", "a")
}
