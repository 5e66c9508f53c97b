package docker_test

import (
	"context"
	"io"
	"testing"
	"time"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/pkg/stdcopy"

	"sandyard/dev/versus"
	"sandyard/providers"
)

// BenchmarkProvider measures the provider alone, without queue and records, beside the Engine API.
func BenchmarkProvider(b *testing.B) {
	b.Run("exec true/vs docker exec", func(b *testing.B) {
		y := newYard(b)
		id, box := create(b, y.open(b))
		versus.Latency(b, versus.Turns{Rounds: 40, Ours: 5, Base: 2}, versus.Timed(func() error {
			name := newID()
			_, err := box.Run(context.Background(), providers.Command{Name: name, Argv: []string{"true"}, Timeout: time.Minute})
			return err
		}), versus.Timed(func() error { return y.exec("sandyard-"+id, "true") }))
	})
}

// exec runs a program through the Engine API, with its output and exit code.
func (y *yard) exec(name string, argv ...string) error {
	ctx := context.Background()
	made, err := y.api.ContainerExecCreate(ctx, name, container.ExecOptions{Cmd: argv, AttachStdout: true, AttachStderr: true})
	if err != nil {
		return err
	}
	attached, err := y.api.ContainerExecAttach(ctx, made.ID, container.ExecAttachOptions{})
	if err != nil {
		return err
	}
	defer attached.Close()
	if _, err := stdcopy.StdCopy(io.Discard, io.Discard, attached.Reader); err != nil {
		return err
	}
	_, err = y.api.ContainerExecInspect(ctx, made.ID)
	return err
}
