package jobs_test

import (
	"encoding/json"
	"maps"
	"math"
	"testing"
	"time"

	"sandyard/dev/jobsrig"
	"sandyard/jobs/kind"
	"sandyard/jobs/worker"
	"sandyard/models"
	"sandyard/providers"
)

// usedCPU is the processor time that the tenant's sandboxes have taken, in seconds.
func (r *rig) usedCPU() float64 {
	r.T.Helper()
	rows, err := r.Store.Usage(r.T.Context(), models.UsageQuery{
		Tenant: jobsrig.Tenant, From: time.Now().Add(-2 * time.Hour), To: time.Now().Add(2 * time.Hour), Limit: 10,
	})
	r.Must(err)
	if len(rows) == 0 {
		return 0
	}
	return rows[0].CPUUsedSeconds
}

func (r *rig) wantCPU(seconds float64) {
	r.T.Helper()
	r.Eventually("processor time is counted", func() bool { return math.Abs(r.usedCPU()-seconds) < 1e-6 })
}

// TestUsageIsMeasured has a sandbox measured by its worker, by the next one, which adopts it, and at its end.
func TestUsageIsMeasured(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.Scheduler()
	often := func(c *worker.Config) { c.MeterEvery = 10 * time.Millisecond }
	first := r.Worker(4, often)
	box := r.readied()
	r.State.SetUsed(box, providers.Used{CPU: 1500 * time.Millisecond, Memory: 1 << 20})
	r.wantCPU(1.5)
	r.Wait(r.Submit(box, &kind.Pause{}, jobsrig.Options()))
	r.State.SetUsed(box, providers.Used{CPU: 1600 * time.Millisecond, Memory: 1 << 20})
	r.wantCPU(1.6)
	r.Wait(r.Submit(box, &kind.Resume{}, jobsrig.Options()))

	first.Stop(t.Context())
	second := r.Worker(4, often)
	r.State.SetUsed(box, providers.Used{CPU: 2 * time.Second, Memory: 1 << 20})
	r.wantCPU(2)
	second.Stop(t.Context())

	r.Worker(4) // whose first reading would come much later
	r.State.SetUsed(box, providers.Used{CPU: 2500 * time.Millisecond, Memory: 1 << 20})
	out, err := r.Client.Delete(t.Context(), box, false, jobsrig.Options())
	r.Must(err)
	r.Wait(out.Jobs[0].ID)
	r.wantCPU(2.5)
}

// TestSamplesAreTaken has a worker keep samples of a sandbox, while that runs.
func TestSamplesAreTaken(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.Worker(4, func(c *worker.Config) { c.MeterEvery = 10 * time.Millisecond })
	box := r.readied()
	r.State.SetUsed(box, providers.Used{CPU: time.Second, Memory: 3 << 20, Cache: 2 << 20, Files: 1 << 20})
	taken := func() []models.Sample {
		all, err := r.Store.Samples(t.Context(), box, time.Now().Add(-time.Hour), time.Now().Add(time.Hour))
		r.Must(err)
		return all
	}
	r.Eventually("samples are taken", func() bool { return len(taken()) >= 2 })
	if s := taken()[0]; s.Memory != 3<<20 || s.Cache != 2<<20 || s.Files != 1<<20 {
		t.Errorf("the first is %+v", s)
	}
	r.Wait(r.Submit(box, &kind.Pause{}, jobsrig.Options()))
	paused := -1
	for i := range 5 { // of these readings the first one may have begun before
		r.State.SetUsed(box, providers.Used{CPU: time.Duration(i+2) * time.Second, Memory: 3 << 20})
		r.wantCPU(float64(i + 2))
		if n := len(taken()); i == 0 {
			paused = n
		} else if n != paused {
			t.Fatalf("while it is paused there come samples: %d after %d", n, paused)
		}
	}
	r.Wait(r.Submit(box, &kind.Resume{}, jobsrig.Options()))
	r.Eventually("samples are taken again", func() bool { return len(taken()) > paused })

	r.SQL("UPDATE usage_samples SET at = now() - interval '2 days' WHERE sandbox_id = $1", box)
	r.Scheduler() // which keeps the house at once
	r.Eventually("those of yesterday are forgotten", func() bool {
		return r.countRows("usage_samples WHERE at < now() - interval '1 day'") == 0
	})
}

// TestCellsCountAsPrograms compares the time in programs with what their results say.
func TestCellsCountAsPrograms(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.Worker(4)
	box := r.readied()
	want := map[string]float64{"code": 0, "exec": 0, "create": 0}
	for _, j := range []models.Job{r.Wait(r.Cell(box, "fake:sleep 200ms")), r.Wait(r.Exec(box, "fake:sleep 200ms"))} {
		var res struct {
			MS float64 `json:"duration_ms"`
		}
		r.Must(json.Unmarshal(j.Result, &res))
		if want[j.Kind] = res.MS / 1000; res.MS < 100 {
			t.Fatalf("the result of the %s is %s", j.Kind, j.Result)
		}
	}
	rows, err := r.Store.Usage(t.Context(), models.UsageQuery{
		Tenant: jobsrig.Tenant, From: time.Now().Add(-2 * time.Hour), To: time.Now().Add(2 * time.Hour), Limit: 10,
	})
	r.Must(err)
	if got := execSeconds(t, rows[0]); !maps.Equal(got, want) {
		t.Errorf("the seconds in programs are %v, want %v", got, want)
	}
}

// execSeconds are the seconds in programs by kind of job.
func execSeconds(t *testing.T, u models.Usage) map[string]float64 {
	t.Helper()
	var list []models.JobUsage
	if err := json.Unmarshal(u.Jobs, &list); err != nil {
		t.Fatal(err)
	}
	seconds := map[string]float64{}
	for _, j := range list {
		seconds[j.Kind] += j.ExecSeconds
	}
	return seconds
}
