package jobs

import (
	"context"
	"time"

	"sandyard/models"
	"sandyard/providers"
)

const (
	// meterEvery is the time between readings of what a node's sandboxes have used.
	meterEvery   = 30 * time.Second
	meterTimeout = 10 * time.Second
	// sampledEach is how many readings come to one that is kept as a sample.
	sampledEach = 2
	// sampleAge is how long a sample is kept.
	sampleAge = 24 * time.Hour
)

// meterLoop writes down what the sandboxes of this node have used, all in one statement, and keeps samples of it.
func (w *Worker) meterLoop(ctx context.Context, meter providers.Meter, every time.Duration) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for n := 1; ; n++ {
		select {
		case <-tick.C:
		case <-w.quit:
			return
		}
		if err := w.measureAll(ctx, meter, n%sampledEach == 0); err != nil {
			w.log.WarnContext(ctx, "sandbox usage not stored, the next sample includes it", "error", err)
		}
	}
}

func (w *Worker) measureAll(ctx context.Context, meter providers.Meter, sampled bool) error {
	ctx, cancel := w.living(ctx, meterTimeout)
	defer cancel()
	boxes, err := w.store.Metered(ctx, w.node.ID)
	if err != nil || len(boxes) == 0 {
		return err
	}
	all := readings(ctx, meter, boxes)
	running := map[string]bool{}
	for _, b := range boxes {
		running[b.ID] = b.State == models.SandboxRunning
	}
	for i := range all {
		all[i].Sampled = sampled && running[all[i].SandboxID]
	}
	return w.store.AddMeters(ctx, all)
}

// measureLast writes down what a sandbox has used that is about to be removed: nobody can tell afterwards.
func (a *attempt) measureLast(ctx context.Context) error {
	meter, ok := a.w.provider.(providers.Meter)
	if !ok {
		return nil
	}
	box, err := a.w.store.Sandbox(ctx, a.job.TenantID, a.job.SandboxID)
	if err != nil || box.EndedAt != nil || box.StartedAt == nil {
		return err
	}
	reading, cancel := context.WithTimeout(ctx, meterTimeout)
	defer cancel()
	return a.w.store.AddMeters(ctx, readings(reading, meter, []models.Sandbox{box}))
}

func readings(ctx context.Context, meter providers.Meter, boxes []models.Sandbox) []models.Meter {
	list := make([]providers.Instance, len(boxes))
	for i, b := range boxes {
		list[i].ID = b.ID
		if b.ProviderRef != nil {
			list[i].Ref = *b.ProviderRef
		}
	}
	var all []models.Meter
	for _, u := range meter.Measure(ctx, list) {
		const mib = 1 << 20
		all = append(all, models.Meter{
			SandboxID: u.ID, CPUMS: float64(u.CPU) / float64(time.Millisecond), MemoryMB: float64(u.Memory) / mib, PeakMB: float64(u.MemoryPeak) / mib,
			Memory: u.Memory, Cache: u.Cache, Files: u.Files,
		})
	}
	return all
}
