package models_test

import (
	"testing"

	"golang.org/x/sync/errgroup"

	"sandyard/models"
)

// TestMetersCountOnce writes readings down late, twice, by several workers and after an end, while they are folded.
func TestMetersCountOnce(t *testing.T) {
	t.Parallel()
	s, db := openBeside(t)
	box := newSandbox()
	box.Labels = map[string]string{"user": "ann"}
	create(t, s, box)
	exec(t, db, "UPDATE sandboxes SET state = 'running', started_at = now() - interval '100 seconds'")
	read := func(cpu, memory, peak float64) {
		t.Helper()
		list := []models.Meter{{SandboxID: box.ID, CPUMS: cpu, MemoryMB: memory, PeakMB: peak}, {SandboxID: "nobody", CPUMS: 1}}
		if err := s.AddMeters(t.Context(), list); err != nil {
			t.Fatal(err)
		}
	}
	want := func(cpu, peak float64) {
		t.Helper()
		for range 2 {
			u := usage(t, s, "user")
			if len(u) != 1 || u[0].User != "ann" || !near(u[0].CPUUsedSeconds, cpu) || u[0].MemoryPeakMB != peak {
				t.Fatalf("usage is %+v, want %g s and a peak of %g", u, cpu, peak)
			}
			fold(t, s, 1)
		}
	}
	read(1000, 64, 100)
	want(1, 100)
	if u := total(t, s); u.MemoryUsed < 64*100./1024 || u.MemoryUsed > 64*200./1024 {
		t.Errorf("100 s with 64 MiB are %g GiB s", u.MemoryUsed)
	}
	read(2500, 64, 90)
	want(2.5, 100)
	read(2500, 64, 90)
	read(2000, 64, 90) // that of a worker which was slow
	want(2.5, 100)
	var all errgroup.Group
	for i := range 20 {
		all.Go(func() error {
			return s.AddMeters(t.Context(), []models.Meter{{SandboxID: box.ID, CPUMS: 3000 + float64(i%5)*100, PeakMB: 200}})
		})
	}
	if err := all.Wait(); err != nil {
		t.Fatal(err)
	}
	exec(t, db, "UPDATE sandboxes SET state = 'deleted', ended_at = now()")
	read(3500, 0, 200)
	want(3.5, 200)
}
