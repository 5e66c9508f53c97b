package docker_test

import (
	"context"
	"testing"
	"time"

	"github.com/docker/docker/api/types/container"

	"sandyard/dev/abbench"
	"sandyard/providers"
	"sandyard/providers/docker/pool"
)

// BenchmarkPool measures the provider alone: a create that finds a container waiting, beside create and start of one
// like it through the Engine API. Both wait for the refill first and outside their time.
func BenchmarkPool(b *testing.B) {
	b.Run("create/vs docker run", func(b *testing.B) {
		y := newYard(b)
		p := y.openPool(b, pool.Config{Size: 2})
		model, _ := create(b, p)
		like, err := y.api.ContainerInspect(b.Context(), "sandyard-"+model)
		if err != nil {
			b.Fatal(err)
		}
		plain(&like)
		full := func() { await(b, func() bool { return p.Waiting() == 2 }) }
		abbench.Latency(b, abbench.Turns{Rounds: 20, Ours: 1, Base: 1}, func() (time.Duration, error) {
			full()
			id, began := newID(), time.Now()
			_, err := p.Create(b.Context(), providers.Spec{ID: id, Image: image})
			took := time.Since(began)
			if err != nil {
				return took, err
			}
			return took, p.Delete(b.Context(), id)
		}, func() (time.Duration, error) {
			full()
			return y.run(b.Context(), like)
		})
	})
}

// plain makes the model of a container what docker run --network none would make, with a sandbox's limits.
func plain(like *container.InspectResponse) {
	like.Config.Hostname, like.Config.NetworkDisabled = "", false
	like.HostConfig.Mounts = like.HostConfig.Mounts[:1] // without our /etc/hosts, for it gets the engine's
}

// run makes and starts a container through the Engine API, and then removes it.
func (y *yard) run(ctx context.Context, like container.InspectResponse) (time.Duration, error) {
	began := time.Now()
	made, err := y.api.ContainerCreate(ctx, like.Config, like.HostConfig, nil, nil, "")
	if err != nil {
		return 0, err
	}
	err = y.api.ContainerStart(ctx, made.ID, container.StartOptions{})
	took := time.Since(began)
	if err != nil {
		return took, err
	}
	return took, y.api.ContainerRemove(ctx, made.ID, container.RemoveOptions{Force: true})
}
