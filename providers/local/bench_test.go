package local_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"testing"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/client"

	"sandyard/dev/abbench"
	"sandyard/providers"
	"sandyard/providers/local"
)

// BenchmarkLifecycle makes a sandbox, runs a program in it and removes it; beside it the same through the Engine API,
// in containers with the limits that a sandbox has.
func BenchmarkLifecycle(b *testing.B) {
	y := newYard(b)
	p, e := y.open(b), newEngine(b)
	b.Run("one_client/vs_docker", func(b *testing.B) {
		abbench.Latency(b, abbench.Turns{Rounds: 20, Ours: 3, Base: 1},
			abbench.Timed(func() error { return lifecycle(b.Context(), p) }),
			abbench.Timed(func() error { return e.lifecycle(b.Context()) }))
	})
	b.Run("4_clients/vs_docker", func(b *testing.B) {
		abbench.Load{Callers: 4, Rounds: 3, Turn: 2e9}.Run(b, "sandboxes/s",
			func(int) error { return lifecycle(b.Context(), p) },
			func(int) error { return e.lifecycle(b.Context()) })
	})
}

// BenchmarkExec runs a program in a sandbox that is there.
func BenchmarkExec(b *testing.B) {
	p, e := newYard(b).open(b), newEngine(b)
	_, box := create(b, p)
	id, err := e.start(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { e.remove(b, id) })
	b.Run("idle/vs_docker_exec", func(b *testing.B) {
		abbench.Latency(b, abbench.Turns{Rounds: 30, Ours: 10, Base: 1},
			abbench.Timed(func() error { return runTrue(b.Context(), box) }),
			abbench.Timed(func() error { return e.exec(b.Context(), id) }))
	})
}

func lifecycle(ctx context.Context, p *local.Provider) error {
	id := newID()
	if _, err := p.Create(ctx, providers.Spec{ID: id, Image: image}); err != nil {
		return err
	}
	box, err := p.Open(ctx, id)
	if err != nil {
		return err
	}
	if err := runTrue(ctx, box); err != nil {
		return err
	}
	return p.Delete(ctx, id)
}

func runTrue(ctx context.Context, box providers.Commands) error {
	name := newID()
	res, err := box.Run(ctx, providers.Command{Name: name, Argv: []string{"true"}})
	if err != nil {
		return err
	}
	if res.ExitCode != 0 {
		return fmt.Errorf("true ended with %d", res.ExitCode)
	}
	return box.Forget(ctx, name)
}

// engine is Docker's, as its own client uses it.
type engine struct{ api *client.Client }

func newEngine(b *testing.B) engine {
	b.Helper()
	api, err := client.NewClientWithOpts(client.FromEnv, client.WithAPIVersionNegotiation())
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = api.Close() })
	if _, err := api.ImageInspect(b.Context(), image); err != nil {
		b.Fatalf("no image %s; run make image first: %v", image, err)
	}
	return engine{api}
}

func (e engine) lifecycle(ctx context.Context) error {
	id, err := e.start(ctx)
	if err != nil {
		return err
	}
	if err := e.exec(ctx, id); err != nil {
		return err
	}
	return e.api.ContainerRemove(ctx, id, container.RemoveOptions{Force: true})
}

func (e engine) start(ctx context.Context) (string, error) {
	pids := int64(256)
	made, err := e.api.ContainerCreate(ctx, &container.Config{
		Image: image, Entrypoint: []string{"sleep", "3600"}, User: "1000:1000", Labels: map[string]string{"sandyard.bench": "local"},
	}, &container.HostConfig{
		NetworkMode: "none", ReadonlyRootfs: true, CapDrop: []string{"ALL"}, SecurityOpt: []string{"no-new-privileges"},
		LogConfig: container.LogConfig{Type: "none"}, Tmpfs: map[string]string{"/workspace": "size=256m", "/tmp": "size=64m"},
		Resources: container.Resources{Memory: 512 << 20, MemorySwap: 512 << 20, NanoCPUs: 1e9, PidsLimit: &pids},
	}, nil, nil, "")
	if err != nil {
		return "", err
	}
	return made.ID, e.api.ContainerStart(ctx, made.ID, container.StartOptions{})
}

func (e engine) remove(b *testing.B, id string) {
	b.Helper()
	if err := e.api.ContainerRemove(context.WithoutCancel(b.Context()), id, container.RemoveOptions{Force: true}); err != nil {
		b.Errorf("remove: %v", err)
	}
}

func (e engine) exec(ctx context.Context, id string) error {
	made, err := e.api.ContainerExecCreate(ctx, id, container.ExecOptions{Cmd: []string{"true"}, AttachStdout: true, AttachStderr: true})
	if err != nil {
		return err
	}
	attached, err := e.api.ContainerExecAttach(ctx, made.ID, container.ExecAttachOptions{})
	if err != nil {
		return err
	}
	defer attached.Close()
	var out bytes.Buffer
	if _, err := io.Copy(&out, attached.Reader); err != nil {
		return err
	}
	ended, err := e.api.ContainerExecInspect(ctx, made.ID)
	if err != nil || ended.ExitCode != 0 {
		return fmt.Errorf("true ended with %d: %w", ended.ExitCode, err)
	}
	return nil
}
