package docker

import (
	"context"
	"encoding/json"
	"time"

	"github.com/docker/docker/api/types/container"

	"sandyard/providers"
	"sandyard/providers/meter"
)

// Measure implements providers.Meter. Where the containers' control groups can be seen from here, the engine has no part
// in it; else it is asked for one after the other.
func (p *Provider) Measure(ctx context.Context, boxes []providers.Instance) []providers.Used {
	var all []providers.Used
	for _, b := range boxes {
		u, ok := p.measure(ctx, b.Ref)
		if u.ID = b.ID; ok {
			all = append(all, u)
		}
	}
	return all
}

func (p *Provider) measure(ctx context.Context, ref string) (providers.Used, bool) {
	if ref == "" {
		return providers.Used{}, false
	}
	// As cgroupfs and systemd name them.
	for _, path := range []string{"docker/" + ref, "system.slice/docker-" + ref + ".scope"} {
		if u, ok := meter.System.Read(path); ok && u.CPU > 0 {
			return u, true
		}
	}
	return p.engineStats(ctx, ref)
}

// engineStats asks the engine. One that has ended has used nothing, as far as it knows.
func (p *Provider) engineStats(ctx context.Context, ref string) (providers.Used, bool) {
	answer, err := p.api.ContainerStatsOneShot(ctx, ref)
	if err != nil {
		return providers.Used{}, false
	}
	defer answer.Body.Close()
	var s container.StatsResponse
	if json.NewDecoder(answer.Body).Decode(&s) != nil || s.CPUStats.CPUUsage.TotalUsage == 0 {
		return providers.Used{}, false
	}
	m := s.MemoryStats
	file, shared := m.Stats["file"], m.Stats["shmem"]
	if v1, ok := m.Stats["total_cache"]; ok {
		file, shared = v1, m.Stats["total_shmem"]
	}
	u := providers.Used{CPU: time.Duration(s.CPUStats.CPUUsage.TotalUsage)}
	meter.Divide(&u, int64(m.Usage), int64(file), int64(shared))
	u.MemoryPeak = max(int64(m.MaxUsage), u.Memory)
	return u, true
}
