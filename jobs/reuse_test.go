package jobs_test

import (
	"errors"
	"slices"
	"strconv"
	"sync"
	"testing"

	"sandyard/dev/jobsrig"
	"sandyard/jobs"
	"sandyard/jobs/kind"
	"sandyard/models"
)

// TestSandboxesAreReusedByTheirLabels: creates at the same time make one, later ones find it, and one that ends, or has other
// labels or another tenant, is not found.
func TestSandboxesAreReusedByTheirLabels(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.Scheduler()
	r.Worker(8)
	wish := jobs.CreateSandbox{Labels: map[string]string{"thread": "18"}, Reuse: true}
	create := func(wish jobs.CreateSandbox, o jobs.Options) models.Submitted {
		t.Helper()
		out, err := r.Client.Create(t.Context(), wish, o)
		r.Must(err)
		return out
	}
	const callers, threads = 60, 6 // several threads, so that some creates of one share a transaction
	got := make([]string, callers)
	var all sync.WaitGroup
	for i := range callers {
		all.Go(func() {
			one := jobs.CreateSandbox{Labels: map[string]string{"thread": strconv.Itoa(18 + i%threads)}, Reuse: true}
			out, err := r.Client.Create(t.Context(), one, jobsrig.Options())
			if err != nil {
				t.Error(err)
			}
			got[i] = out.Sandbox.ID
		})
	}
	all.Wait()
	first := got[0]
	slices.Sort(got)
	if made := slices.Compact(got); made[0] == "" || len(made) != threads {
		t.Fatalf("creates at the same time made %v, want %d", made, threads)
	}
	again := create(wish, jobsrig.Options())
	if again.Sandbox.ID != first || !again.Existing || len(again.Jobs) != 1 || again.Jobs[0].Kind != models.KindCreate {
		t.Errorf("the next one answers %+v", again)
	}
	r.Wait(again.Jobs[0].ID)
	other := create(jobs.CreateSandbox{Labels: map[string]string{"thread": "18", "of": "more"}, Reuse: true}, jobsrig.Options())
	if other.Sandbox.ID == first || other.Existing {
		t.Error("one with more labels is the same")
	}
	if out := create(wish, jobsrig.Options()); out.Sandbox.ID != other.Sandbox.ID {
		t.Error("of two that have the labels the older one is found")
	}
	if out := create(wish, r.neighbour()); out.Sandbox.ID == first || out.Sandbox.ID == other.Sandbox.ID {
		t.Error("another tenant finds it")
	}
	for _, box := range []string{first, other.Sandbox.ID} {
		_, err := r.Client.Delete(t.Context(), box, true, jobsrig.Options())
		r.Must(err)
	}
	if out := create(wish, jobsrig.Options()); out.Sandbox.ID == first || out.Sandbox.ID == other.Sandbox.ID {
		t.Error("one that ends is found")
	}
	for _, wrong := range []jobs.CreateSandbox{{Reuse: true}, {Reuse: true, Key: "k", Labels: map[string]string{"a": "b"}}} {
		_, err := r.Client.Create(t.Context(), wrong, jobsrig.Options())
		if invalid := (*kind.InvalidError)(nil); !errors.As(err, &invalid) || invalid.Field != "reuse" {
			t.Errorf("%+v answers %v", wrong, err)
		}
	}
}
