package providertest

import (
	"context"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"sandyard/providers"
	"sandyard/providers/providertest/fixture"
)

func lifecycle(t *testing.T, s *fixture.Suite) {
	t.Run("create is listed and takes commands", func(t *testing.T) {
		t.Parallel()
		r := s.NewRoom(t)
		if res := fixture.Shell(t, r, s.Script.Print("up", "")); string(res.Stdout) != "up" {
			t.Errorf("stdout %q, want up", res.Stdout)
		}
		found := listed(t, r.Worker, r.ID)
		if len(found) != 1 || found[0].State != providers.StateRunning || found[0].Ref == "" || found[0].CreatedAt.IsZero() {
			t.Errorf("listed as %+v, want it once, running, with a ref and a time", found)
		}
	})
	t.Run("says what it uses", func(t *testing.T) {
		t.Parallel()
		gauge, ok := s.NewRoom(t).Sandbox.(providers.Gauge)
		if !ok {
			t.Skip("sandboxes of this provider do not say what they use")
		}
		g, err := gauge.Gauge(fixture.Within(t))
		if err != nil || g.CPUs < 1 || g.CPUPercent < 0 || g.MemUsed <= 0 || g.MemUsed > g.MemTotal || g.DiskTotal <= 0 ||
			g.DiskUsed > g.DiskTotal {
			t.Errorf("it says %+v, %v", g, err)
		}
	})
	t.Run("its document says what it can do", func(t *testing.T) { t.Parallel(); document(t, s) })
	t.Run("its own clock is told of timeouts", func(t *testing.T) { t.Parallel(); clock(t, s) })
	t.Run("create again adopts", func(t *testing.T) {
		t.Parallel()
		r := s.NewRoom(t)
		fixture.Shell(t, r, s.Script.Append("mark", "x"))
		for name, worker := range map[string]providers.Provider{"same worker": r.Worker, "another worker": s.Open(t)} {
			again, err := worker.Create(fixture.Within(t), providers.Spec{ID: r.ID, Image: s.Image})
			if err != nil || again.ID != r.ID || again.State != providers.StateRunning {
				t.Fatalf("%s: create again: %+v, %v", name, again, err)
			}
			if data, err := fixture.MustOpen(t, worker, r.ID).ReadFile(fixture.Within(t), "mark", 10); err != nil ||
				string(data) != "x" {
				t.Errorf("%s: adopted another sandbox: mark is %q, %v", name, data, err)
			}
		}
		if found := listed(t, r.Worker, r.ID); len(found) != 1 {
			t.Errorf("listed %d times, want once", len(found))
		}
	})
	t.Run("concurrent creates make one", func(t *testing.T) { t.Parallel(); concurrentCreates(t, s) })
	t.Run("cancelled create leaves what can be found", func(t *testing.T) { t.Parallel(); cancelledCreate(t, s) })
	t.Run("delete twice", func(t *testing.T) {
		t.Parallel()
		r := s.NewRoom(t)
		for range 2 {
			if err := r.Worker.Delete(fixture.Within(t), r.ID); err != nil {
				t.Fatalf("delete: %v", err)
			}
		}
		if found := listed(t, r.Worker, r.ID); len(found) != 0 {
			t.Errorf("still listed after delete: %+v", found)
		}
	})
	t.Run("delete what never was", func(t *testing.T) {
		t.Parallel()
		if err := s.Open(t).Delete(fixture.Within(t), fixture.NewID(t)); err != nil {
			t.Errorf("delete: %v", err)
		}
	})
	t.Run("unknown image", func(t *testing.T) {
		t.Parallel()
		worker, id := s.Open(t), fixture.NewID(t)
		s.DeleteAfter(t, worker, id)
		_, err := worker.Create(fixture.Within(t), providers.Spec{ID: id, Image: "sandyard/" + id + ":none"})
		fixture.WantClass(t, err, providers.ImageMissing)
		if found := listed(t, worker, id); len(found) != 0 {
			t.Errorf("left behind %+v", found)
		}
	})
	t.Run("bad specs", func(t *testing.T) { t.Parallel(); badSpecs(t, s) })
	t.Run("open what never was", func(t *testing.T) {
		t.Parallel()
		_, err := s.Open(t).Open(fixture.Within(t), fixture.NewID(t))
		fixture.WantClass(t, err, providers.NotFound)
	})
}

func concurrentCreates(t *testing.T, s *fixture.Suite) {
	id := fixture.NewID(t)
	workers := []providers.Provider{s.Open(t), s.Open(t)}
	s.DeleteAfter(t, workers[0], id)
	errs := make([]error, 6)
	var wg sync.WaitGroup
	for i := range errs {
		wg.Go(func() { _, errs[i] = workers[i%2].Create(fixture.Within(t), providers.Spec{ID: id, Image: s.Image}) })
	}
	wg.Wait()
	// Two workers never get the same create at once for long: who lost the race may have to ask again.
	for _, err := range errs {
		if err != nil && !providers.AsError(err).Retryable() {
			t.Errorf("create: %v", err)
		}
	}
	if !slices.Contains(errs, nil) {
		t.Errorf("no create succeeded: %v", errs)
	}
	if found := listed(t, workers[0], id); len(found) != 1 {
		t.Errorf("listed %d times, want once", len(found))
	}
	fixture.Shell(t, fixture.MustOpen(t, workers[0], id), s.Script.Exit(0))
}

func cancelledCreate(t *testing.T, s *fixture.Suite) {
	worker := s.Open(t)
	spec := providers.Spec{ID: fixture.NewID(t), Image: s.Image}
	s.DeleteAfter(t, worker, spec.ID)
	ctx, cancel := context.WithTimeout(fixture.Within(t), 3*time.Millisecond)
	defer cancel()
	_, err := worker.Create(ctx, spec)
	if err != nil && !providers.AsError(err).Retryable() {
		t.Errorf("cancelled create answers %v, want a retryable error", err)
	}
	if _, err := worker.Create(fixture.Within(t), spec); err != nil {
		t.Fatalf("create again: %v", err)
	}
	if found := listed(t, worker, spec.ID); len(found) != 1 {
		t.Errorf("listed %d times, want once", len(found))
	}
	fixture.Shell(t, fixture.MustOpen(t, worker, spec.ID), s.Script.Exit(0))
}

func badSpecs(t *testing.T, s *fixture.Suite) {
	worker := s.Open(t)
	bad := map[string]providers.Spec{
		"id with a slash":   {ID: "a/b", Image: s.Image},
		"empty id":          {Image: s.Image},
		"relative work dir": {ID: fixture.NewID(t), Image: s.Image, WorkDir: "work"},
		"env with NUL":      {ID: fixture.NewID(t), Image: s.Image, Env: map[string]string{"A": "\x00"}},
		"negative memory":   {ID: fixture.NewID(t), Image: s.Image, Resources: providers.Resources{MemoryMB: -1}},
	}
	if s.Caps.Images != providers.Unsupported { // else the backend has a template for it
		bad["no image"] = providers.Spec{ID: fixture.NewID(t)}
	}
	for name, spec := range bad {
		_, err := worker.Create(fixture.Within(t), spec)
		if e := providers.AsError(err); err == nil || e.Class != providers.Invalid {
			t.Errorf("%s: got %v, want class %s", name, err, providers.Invalid)
		}
	}
}

func listed(t *testing.T, worker providers.Provider, id string) []providers.Instance {
	t.Helper()
	all, err := worker.List(fixture.Within(t))
	if err != nil {
		t.Fatalf("list: %v", err)
	}
	return slices.DeleteFunc(all, func(i providers.Instance) bool { return i.ID != id })
}

// clock sets the end that the backend itself keeps: lists must show it, for nobody else looks whether it is the right
// one.
func clock(t *testing.T, s *fixture.Suite) {
	r := s.NewRoom(t)
	timer, ok := r.Worker.(providers.Timer)
	if !ok {
		t.Skip("skipped: this backend ends no sandboxes by a clock of its own")
	}
	end := func() time.Time {
		t.Helper()
		found := listed(t, r.Worker, r.ID)
		if len(found) != 1 || found[0].Until.IsZero() {
			t.Fatalf("listed as %+v, want it once, with its end", found)
		}
		return found[0].Until
	}
	before := end()
	if err := timer.SetTimeout(fixture.Within(t), r.ID, 10*time.Minute); err != nil {
		t.Fatal(err)
	}
	if sooner := end(); !sooner.Before(before.Add(-20 * time.Minute)) {
		t.Errorf("it ends at %v, and at %v after it was given ten minutes in place of an hour", before, sooner)
	}
	err := timer.SetTimeout(fixture.Within(t), fixture.NewID(t), time.Minute)
	if providers.AsError(err).Class != providers.NotFound {
		t.Errorf("the timeout of one that never was: %v", err)
	}
}

// document compares what a provider declares with the interfaces that it and its sandboxes have.
func document(t *testing.T, s *fixture.Suite) {
	r := s.NewRoom(t)
	_, background := r.Sandbox.(providers.Background)
	_, processes := r.Sandbox.(providers.Processes)
	_, terminals := r.Sandbox.(providers.Terminals)
	_, watch := r.Sandbox.(providers.Watcher)
	_, ports := r.Sandbox.(interface {
		DialPort(ctx context.Context, port uint16) (net.Conn, error)
	})
	_, builds := r.Worker.(providers.Builder)
	_, pauses := r.Worker.(providers.Pauser)
	for _, c := range []struct {
		name     string
		declared providers.Support
		has      bool
	}{
		{"background", s.Caps.Background, background},
		{"processes", s.Caps.Processes, processes},
		{"terminals", s.Caps.Terminals, terminals},
		{"watch", s.Caps.Watch, watch},
		{"ports", s.Caps.Ports, ports},
		{"builds", s.Caps.Builds, builds},
		{"pause", s.Caps.Pause, pauses},
	} {
		if c.declared == "" || (c.declared != providers.Unsupported) != c.has {
			t.Errorf("%s is declared as %q, and the interface is there: %v", c.name, c.declared, c.has)
		}
	}
}
