package node

import (
	"cmp"
	"context"
	"time"

	"sandyard/models"
	"sandyard/providers"
)

const (
	// usualUsageEvery is the time between readings of what a node's sandboxes have used.
	usualUsageEvery = 30 * time.Second
	meterTimeout    = 10 * time.Second
	// sampledEach is how many readings come to one that is kept as a sample.
	sampledEach = 2
)

// Usage writes down what the sandboxes of this node have used, all in one statement, and keeps samples of it.
type Usage struct {
	Base
	Every time.Duration // between two readings; 0 = half a minute
}

// Run reads until the life ends, if the provider measures sandboxes.
func (u *Usage) Run(ctx context.Context) {
	meter, ok := u.Provider.(providers.Meter)
	if !ok {
		return
	}
	n := 0
	u.Life.Every(cmp.Or(u.Every, usualUsageEvery), nil, func() {
		n++
		if err := u.measureAll(ctx, meter, n%sampledEach == 0); err != nil {
			u.Log.WarnContext(ctx, "sandbox usage not stored, the next sample includes it", "error", err)
		}
	})
}

func (u *Usage) measureAll(ctx context.Context, meter providers.Meter, sampled bool) error {
	ctx, cancel := u.Life.Within(ctx, meterTimeout)
	defer cancel()
	boxes, err := u.Store.Metered(ctx, u.Node.ID)
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
	return u.Store.AddMeters(ctx, all)
}

// Last writes down what a sandbox has used that is about to be removed: nobody can tell afterwards.
func (u *Usage) Last(ctx context.Context, tenantID, sandboxID string) error {
	meter, ok := u.Provider.(providers.Meter)
	if !ok {
		return nil
	}
	box, err := u.Store.Sandbox(ctx, tenantID, sandboxID)
	if err != nil || box.EndedAt != nil || box.StartedAt == nil {
		return err
	}
	reading, cancel := context.WithTimeout(ctx, meterTimeout)
	defer cancel()
	return u.Store.AddMeters(ctx, readings(reading, meter, []models.Sandbox{box}))
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
			SandboxID: u.ID, CPUMS: float64(u.CPU) / float64(time.Millisecond), MemoryMB: float64(u.Memory) / mib,
			PeakMB: float64(u.MemoryPeak) / mib,
			Memory: u.Memory, Cache: u.Cache, Files: u.Files,
		})
	}
	return all
}
