package providertest

import (
	"context"
	"errors"
	"testing"
	"time"

	"sandyard/providers"
)

// pause checks that a paused sandbox does nothing and keeps everything, or all but its processes.
func pause(t *testing.T, s *suite) {
	if s.caps.Pause == providers.Unsupported {
		t.Skip("skipped: the provider declares pause unsupported")
	}
	t.Run("keeps what it is to keep", func(t *testing.T) { t.Parallel(); pauseKeeps(t, s) })
	t.Run("twice", func(t *testing.T) {
		t.Parallel()
		r := s.room(t)
		p := pauser(t, r.worker)
		for _, step := range []func(context.Context, string) error{p.Resume, p.Pause, p.Pause, p.Resume, p.Resume} {
			if err := step(within(t), r.id); err != nil {
				t.Fatal(err)
			}
		}
		shell(t, mustOpen(t, r.worker, r.id), s.Script.Exit(0))
	})
	t.Run("create and delete while paused", func(t *testing.T) {
		t.Parallel()
		r := s.room(t)
		if err := pauser(t, r.worker).Pause(within(t), r.id); err != nil {
			t.Fatal(err)
		}
		again, err := r.worker.Create(within(t), providers.Spec{ID: r.id, Image: s.Image})
		if err != nil || again.State != providers.StatePaused {
			t.Errorf("create adopts %+v, %v; want it paused", again, err)
		}
		if err := r.worker.Delete(within(t), r.id); err != nil {
			t.Errorf("delete: %v", err)
		}
		if found := listed(t, r.worker, r.id); len(found) != 0 {
			t.Errorf("still listed: %+v", found)
		}
	})
}

func pauser(t *testing.T, p providers.Provider) providers.Pauser {
	t.Helper()
	pauser, ok := p.(providers.Pauser)
	if !ok {
		t.Fatal("the provider declares pause and does not implement it")
	}
	return pauser
}

func pauseKeeps(t *testing.T, s *suite) {
	r := s.room(t)
	cmd := providers.Command{Name: newID(t), Shell: s.Script.Append("begun", "x") + "; " + s.Script.Sleep(time.Second) + "; " + s.Script.Append("after", "x") + "; " + s.Script.Print("kept", "")}
	ended := make(chan error, 1)
	go func() {
		_, err := r.Run(within(t), cmd)
		ended <- err
	}()
	eventually(t, "the command has begun", func() bool { _, err := r.Stat(t.Context(), "begun"); return err == nil })
	p := pauser(t, r.worker)
	if err := p.Pause(within(t), r.id); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; !errors.Is(err, providers.ErrPaused) {
		t.Errorf("the run ends with %v, want ErrPaused", err)
	}
	for name, worker := range map[string]providers.Provider{"same worker": r.worker, "another worker": s.open(t)} {
		if _, err := worker.Open(within(t), r.id); !errors.Is(err, providers.ErrPaused) {
			t.Errorf("%s: open answers %v, want ErrPaused", name, err)
		}
	}
	if found := listed(t, r.worker, r.id); len(found) != 1 || found[0].State != providers.StatePaused {
		t.Errorf("listed as %+v", found)
	}
	if err := p.Resume(within(t), r.id); err != nil {
		t.Fatal(err)
	}
	box := mustOpen(t, r.worker, r.id)
	res := run(t, box, cmd)
	wantFile(t, box, "begun", "x") // once, whatever became of it
	if s.caps.PauseMemory == providers.Unsupported && res.ExitCode > 128 && res.Signal != "" {
		_, err := box.Stat(within(t), "after")
		wantClass(t, err, providers.FileNotFound) // it was ended by the pause
		return
	}
	if string(res.Stdout) != "kept" || res.ExitCode != 0 {
		t.Errorf("after resume got %s", show(res))
	}
	wantFile(t, box, "after", "x")
}

// gone checks what is said of a sandbox after its end.
func gone(t *testing.T, s *suite) {
	r := s.room(t)
	shell(t, r, s.Script.Exit(0))
	other := s.open(t)
	mustOpen(t, other, r.id)
	if err := other.Delete(within(t), r.id); err != nil {
		t.Fatal(err)
	}
	for name, worker := range map[string]providers.Provider{"that deleted": other, "that had it open": r.worker} {
		if _, err := worker.Open(within(t), r.id); !errors.Is(err, providers.ErrNotFound) {
			t.Errorf("worker %s: open answers %v", name, err)
		}
		if p, ok := worker.(providers.Pauser); ok {
			wantClass(t, p.Pause(within(t), r.id), providers.NotFound)
			wantClass(t, p.Resume(within(t), r.id), providers.NotFound)
		}
	}
	for name, call := range insideCalls(r) {
		t.Run(name, func(t *testing.T) { wantClass(t, call(within(t)), providers.NotFound, providers.Lost) })
	}
}

func insideCalls(r room) map[string]func(context.Context) error {
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
