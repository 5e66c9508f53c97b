package docker_test

import (
	"context"
	"io"
	"testing"
	"time"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/pkg/stdcopy"

	"sandyard/dev/abbench"
	"sandyard/providers"
	"sandyard/providers/codecontext"
)

// BenchmarkProvider measures the provider alone, without queue and records, beside the Engine API.
func BenchmarkProvider(b *testing.B) {
	b.Run("exec true/vs docker exec", func(b *testing.B) {
		y := newYard(b)
		id, box := create(b, y.open(b))
		abbench.Latency(b, abbench.Turns{Rounds: 40, Ours: 5, Base: 2}, abbench.Timed(func() error {
			name := newID()
			_, err := box.Run(context.Background(), providers.Command{Name: name, Argv: []string{"true"}, Timeout: time.Minute})
			return err
		}), abbench.Timed(func() error { return y.exec("sandyard-"+id, "true") }))
	})
	b.Run("python cell/vs docker exec python3", func(b *testing.B) { // which keeps no state
		y := newYard(b)
		id, box := create(b, y.open(b))
		notebook, err := codecontext.In(box)
		if err != nil {
			b.Fatal(err)
		}
		abbench.Latency(b, abbench.Turns{Rounds: 20, Ours: 5, Base: 2}, abbench.Timed(func() error {
			c := codecontext.Cell{ID: newID(), Language: codecontext.Python, Code: "1 + 1", Timeout: time.Minute, MaxOutput: 1 << 20}
			_, err := codecontext.Run(context.Background(), notebook, c, nil)
			return err
		}), abbench.Timed(func() error { return y.exec("sandyard-"+id, "python3", "-c", "1 + 1") }))
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
