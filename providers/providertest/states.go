package providertest

import (
	"context"
	"errors"
	"testing"

	"sandyard/dev/testenv"
	"sandyard/providers"
	"sandyard/providers/providertest/fixture"
)

// pause checks that a paused sandbox does nothing and keeps everything, or all but its processes.
func pause(t *testing.T, s *fixture.Suite) {
	if s.Caps.Pause == providers.Unsupported {
		t.Skip("skipped: the provider declares pause unsupported")
	}
	t.Run("keeps what it is to keep", func(t *testing.T) { t.Parallel(); pauseKeeps(t, s) })
	t.Run("twice", func(t *testing.T) {
		t.Parallel()
		r := s.NewRoom(t)
		p := pauser(t, r.Worker)
		for _, step := range []func(context.Context, string) error{p.Resume, p.Pause, p.Pause, p.Resume, p.Resume} {
			if err := step(fixture.Within(t), r.ID); err != nil {
				t.Fatal(err)
			}
		}
		fixture.Shell(t, fixture.MustOpen(t, r.Worker, r.ID), s.Script.Exit(0))
	})
	t.Run("create and delete while paused", func(t *testing.T) {
		t.Parallel()
		r := s.NewRoom(t)
		if err := pauser(t, r.Worker).Pause(fixture.Within(t), r.ID); err != nil {
			t.Fatal(err)
		}
		again, err := r.Worker.Create(fixture.Within(t), providers.Spec{ID: r.ID, Image: s.Image})
		if err != nil || again.State != providers.StatePaused {
			t.Errorf("create adopts %+v, %v; want it paused", again, err)
		}
		if err := r.Worker.Delete(fixture.Within(t), r.ID); err != nil {
			t.Errorf("delete: %v", err)
		}
		if found := listed(t, r.Worker, r.ID); len(found) != 0 {
			t.Errorf("still listed: %+v", found)
		}
	})
}

func pauser(t *testing.T, p providers.Provider) providers.Pauser {
	t.Helper()
	pauser, ok := fixture.Pauser(p)
	if !ok {
		t.Fatal("the provider declares pause and does not implement it")
	}
	return pauser
}

func pauseKeeps(t *testing.T, s *fixture.Suite) {
	r := s.NewRoom(t)
	cmd := providers.Command{
		Name: fixture.NewID(t),
		Shell: s.Script.Append("begun", "x") + "; " + s.Script.Await("go") + "; " +
			s.Script.Append("after", "x") + "; " + s.Script.Print("kept", ""),
	}
	ended := make(chan error, 1)
	go func() {
		_, err := r.Run(fixture.Within(t), cmd)
		ended <- err
	}()
	testenv.Eventually(
		t,
		"the command has begun",
		func() bool { _, err := r.Stat(t.Context(), "begun"); return err == nil },
	)
	p := pauser(t, r.Worker)
	if err := p.Pause(fixture.Within(t), r.ID); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; !errors.Is(err, providers.ErrPaused) {
		t.Errorf("the run ends with %v, want ErrPaused", err)
	}
	for name, worker := range map[string]providers.Provider{"same worker": r.Worker, "another worker": s.Open(t)} {
		if _, err := worker.Open(fixture.Within(t), r.ID); !errors.Is(err, providers.ErrPaused) {
			t.Errorf("%s: open answers %v, want ErrPaused", name, err)
		}
	}
	if found := listed(t, r.Worker, r.ID); len(found) != 1 || found[0].State != providers.StatePaused {
		t.Errorf("listed as %+v", found)
	}
	if err := p.Resume(fixture.Within(t), r.ID); err != nil {
		t.Fatal(err)
	}
	box := fixture.MustOpen(t, r.Worker, r.ID)
	fixture.MustWrite(t, box, "go", "")
	res := fixture.Run(t, box, cmd)
	fixture.WantFile(t, box, "begun", "x") // once, whatever became of it
	if s.Caps.PauseMemory == providers.Unsupported && res.ExitCode > 128 && res.Signal != "" {
		_, err := box.Stat(fixture.Within(t), "after")
		fixture.WantClass(t, err, providers.FileNotFound) // it was ended by the pause
		return
	}
	if string(res.Stdout) != "kept" || res.ExitCode != 0 {
		t.Errorf("after resume got %s", fixture.Show(res))
	}
	fixture.WantFile(t, box, "after", "x")
}

// gone checks what is said of a sandbox after its end.
func gone(t *testing.T, s *fixture.Suite) {
	r := s.NewRoom(t)
	fixture.Shell(t, r, s.Script.Exit(0))
	other := s.Open(t)
	fixture.MustOpen(t, other, r.ID)
	if err := other.Delete(fixture.Within(t), r.ID); err != nil {
		t.Fatal(err)
	}
	for name, worker := range map[string]providers.Provider{"that deleted": other, "that had it open": r.Worker} {
		if _, err := worker.Open(fixture.Within(t), r.ID); !errors.Is(err, providers.ErrNotFound) {
			t.Errorf("worker %s: open answers %v", name, err)
		}
		if p, ok := fixture.Pauser(worker); ok {
			fixture.WantClass(t, p.Pause(fixture.Within(t), r.ID), providers.NotFound)
			fixture.WantClass(t, p.Resume(fixture.Within(t), r.ID), providers.NotFound)
		}
	}
	for name, call := range insideCalls(r) {
		t.Run(name, func(t *testing.T) { fixture.WantClass(t, call(fixture.Within(t)), providers.NotFound, providers.Lost) })
	}
}

func insideCalls(r fixture.Room) map[string]func(context.Context) error {
	return map[string]func(context.Context) error{
		"run": func(ctx context.Context) error {
			_, err := r.Run(ctx, providers.Command{Name: "late", Shell: "true"})
			return err
		},
		"kill":   func(ctx context.Context) error { return r.Kill(ctx, "late") },
		"forget": func(ctx context.Context) error { return r.Forget(ctx, "late") },
		"read":   func(ctx context.Context) error { _, err := r.ReadFile(ctx, "f", 1); return err },
		"write":  func(ctx context.Context) error { _, err := r.WriteFile(ctx, "f", nil, 0); return err },
		"stat":   func(ctx context.Context) error { _, err := r.Stat(ctx, "f"); return err },
		"list":   func(ctx context.Context) error { _, err := r.ListDir(ctx, ".", 1); return err },
		"mkdir":  func(ctx context.Context) error { _, err := r.MakeDir(ctx, "d"); return err },
		"move":   func(ctx context.Context) error { _, err := r.Move(ctx, "f", "g"); return err },
		"remove": func(ctx context.Context) error { return r.Remove(ctx, "f") },
	}
}
