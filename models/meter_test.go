package models_test

import (
	"testing"
	"time"

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

// TestSamples: what a running sandbox uses is kept for a while, as shares of what it may use, and goes with it.
func TestSamples(t *testing.T) {
	t.Parallel()
	s, db := openBeside(t)
	box := newSandbox()
	create(t, s, box)
	exec(t, db, "UPDATE sandboxes SET state = 'running', cpus = 2, started_at = now() - interval '1000 seconds'")
	long := time.Hour
	read := func(cpu float64, sampled bool) {
		t.Helper()
		list := []models.Meter{{SandboxID: box.ID, CPUMS: cpu, Sampled: sampled, Memory: 3 << 30, Cache: 2, Files: 1}, {SandboxID: "nobody", Sampled: true}}
		if err := s.AddMeters(t.Context(), list); err != nil {
			t.Fatal(err)
		}
	}
	want := func(percents ...float64) (last time.Time) {
		t.Helper()
		all, err := s.Samples(t.Context(), box.ID, time.Now().Add(-long), time.Now().Add(long))
		if err != nil || len(all) != len(percents) {
			t.Fatalf("samples %+v, %v, want %v", all, err, percents)
		}
		for i, a := range all {
			// The machine may have been slow meanwhile.
			if a.CPUPercent > percents[i]*1.001 || a.CPUPercent < percents[i]/2 || a.Memory != 3<<30 || a.Cache != 2 || a.Files != 1 {
				t.Errorf("sample %d is %+v, want %g %%", i, a, percents[i])
			}
			last = a.At
		}
		return last
	}
	rest := func() { exec(t, db, "UPDATE usage_meters SET measured_at = measured_at - interval '1000 seconds'") }
	read(200_000, true) // of 1000 s of two cores
	want(10)
	read(200_000, false)
	rest()
	read(1_200_000, true)
	want(10, 50)
	rest()
	read(1_100_000, true) // that of a worker which was slow
	read(9_000_000, true) // more than there is
	last := want(10, 50, 100)
	if all, err := s.Samples(t.Context(), box.ID, last, last); err != nil || len(all) != 1 {
		t.Errorf("of one moment there are %+v, %v", all, err)
	}

	exec(t, db, "UPDATE usage_samples SET at = at - interval '2 hours' WHERE cpu_percent < 90")
	for _, left := range []int{1, 1, 0} {
		if n, err := s.PruneSamples(t.Context(), long, 1); err != nil || n != left {
			t.Fatalf("%d are forgotten, %v, want %d", n, err, left)
		}
	}
	want(100)
	exec(t, db, "DELETE FROM jobs")
	exec(t, db, "DELETE FROM sandboxes")
	want()
}
