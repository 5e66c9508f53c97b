package docker_test

import (
	"testing"
	"time"

	"sandyard/providers"
)

// TestMeasure reads what a program has taken that has ended, from the control group and from the engine, also of a
// paused sandbox and by another worker.
func TestMeasure(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	p := y.open(t)
	id, box := create(t, p)
	burn := `python3 -c "import time
x = bytearray(40 << 20)
while time.process_time() < 0.5: pass"`
	if res, err := box.Run(t.Context(), providers.Command{Name: newID(), Shell: burn}); err != nil || res.ExitCode != 0 {
		t.Fatalf("the program ended with %+v, %v", res, err)
	}
	made := instance(t, p, id)
	check := func(who string, u providers.Used, ok bool) {
		t.Helper()
		if !ok || u.CPU < 500*time.Millisecond || u.CPU > 30*time.Second || u.Memory <= 0 || u.MemoryPeak < max(u.Memory, 40<<20) {
			t.Errorf("%s says %+v, %v", who, u, ok)
		}
	}
	for range 2 {
		used := p.Measure(t.Context(), []providers.Instance{{ID: "none", Ref: "none"}, made, {ID: "empty"}})
		if len(used) != 1 || used[0].ID != id {
			t.Fatalf("measured %+v", used)
		}
		check("the worker", used[0], true)
		stats, ok := p.EngineStats(t.Context(), made.Ref)
		check("the engine", stats, ok)
		pause(t, p, id)
		p = y.open(t)
	}
}

// instance is what the provider lists of a sandbox.
func instance(t *testing.T, p providers.Provider, id string) providers.Instance {
	t.Helper()
	list, err := p.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, i := range list {
		if i.ID == id {
			return i
		}
	}
	t.Fatalf("sandbox %s is not listed", id)
	return providers.Instance{}
}
