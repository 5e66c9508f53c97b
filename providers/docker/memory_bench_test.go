package docker_test

import (
	"context"
	"encoding/json"
	"slices"
	"testing"
	"time"

	"github.com/docker/docker/api/types/container"

	"sandyard/providers"
)

// BenchmarkIdle measures what a sandbox costs that nobody uses: the memory that its container is charged for, beside
// that of a container like it which only sleeps.
func BenchmarkIdle(b *testing.B) {
	b.Run("memory of a sandbox/vs sleep in a container", func(b *testing.B) {
		const each = 5
		y := newYard(b)
		p := y.open(b)
		var ours, base []float64
		for range each {
			id, box := create(b, p)
			if _, err := box.Run(b.Context(), providers.Command{Name: newID(), Argv: []string{"true"}}); err != nil {
				b.Fatal(err)
			}
			rested(b)
			ours = append(ours, y.charged(b, "sandyard-"+id))
			base = append(base, y.sleeper(b, "sandyard-"+id))
		}
		for who, all := range map[string][]float64{"ours": ours, "base": base} {
			slices.Sort(all)
			b.ReportMetric(all[each/2], who+"-p50-MiB")
		}
		b.ReportMetric(0, "ns/op")
	})
}

// rested waits until the guest has given back what it did not need, a second after the last call.
func rested(b *testing.B) {
	b.Helper()
	select {
	case <-time.After(2 * time.Second):
	case <-b.Context().Done():
	}
}

// sleeper is the memory of a container like the sandbox's that runs nothing but sleep.
func (y *yard) sleeper(b *testing.B, name string) float64 {
	b.Helper()
	ctx := context.WithoutCancel(b.Context())
	like, err := y.api.ContainerInspect(ctx, name)
	if err != nil {
		b.Fatal(err)
	}
	like.Config.Hostname, like.Config.Entrypoint, like.Config.Cmd = "", []string{"sleep", "3600"}, nil
	like.Config.Labels["sandyard.sandbox"] = newID()
	made, err := y.api.ContainerCreate(ctx, like.Config, like.HostConfig, nil, nil, "")
	if err != nil {
		b.Fatal(err)
	}
	defer func() {
		if err := y.api.ContainerRemove(ctx, made.ID, container.RemoveOptions{Force: true}); err != nil {
			b.Error(err)
		}
	}()
	if err := y.api.ContainerStart(ctx, made.ID, container.StartOptions{}); err != nil {
		b.Fatal(err)
	}
	return y.charged(b, made.ID)
}

// charged is the memory of a container as the kernel counts it, in MiB.
func (y *yard) charged(b *testing.B, id string) float64 {
	b.Helper()
	answer, err := y.api.ContainerStatsOneShot(b.Context(), id)
	if err != nil {
		b.Fatal(err)
	}
	defer answer.Body.Close()
	var stats container.StatsResponse
	if err := json.NewDecoder(answer.Body).Decode(&stats); err != nil {
		b.Fatal(err)
	}
	return float64(stats.MemoryStats.Usage) / (1 << 20)
}
