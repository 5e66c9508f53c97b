package web_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/docker/docker/api/types"
	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/pkg/stdcopy"
)

// attachWrite moves data through a container's standard input into a file. It is the least that a file costs which takes
// the engine's way to a guest: nothing is framed, checked or multiplexed.
func (y *dockerYard) attachWrite(data []byte) (time.Duration, error) {
	return y.attached(fmt.Sprintf("echo; head -c %d > large; echo", len(data)), func(a types.HijackedResponse, out *bufio.Reader) error {
		if _, err := a.Conn.Write(data); err != nil {
			return err
		}
		_, err := out.ReadByte()
		return err
	})
}

// attachRead moves n bytes of a file through a container's standard output.
func (y *dockerYard) attachRead(n int) (time.Duration, error) {
	script := fmt.Sprintf("head -c %d /dev/zero > large; echo; read go; cat large; read end", n)
	return y.attached(script, func(a types.HijackedResponse, out *bufio.Reader) error {
		if _, err := io.WriteString(a.Conn, "\n"); err != nil {
			return err
		}
		_, err := io.ReadFull(out, make([]byte, n))
		return err
	})
}

// attached times what is done with a container that runs a script, from its first line of output on.
func (y *dockerYard) attached(script string, do func(types.HijackedResponse, *bufio.Reader) error) (time.Duration, error) {
	ctx := context.Background()
	config, host := *y.model.Config, *y.model.HostConfig
	config.Hostname, config.Entrypoint, config.Cmd, config.OpenStdin = "", []string{"sh", "-c", script}, nil, true
	c, err := y.engine.ContainerCreate(ctx, &config, &host, nil, nil, "")
	if err != nil {
		return 0, err
	}
	took, err := y.timed(ctx, c.ID, do)
	return took, errors.Join(err, y.drop(c.ID))
}

func (y *dockerYard) timed(ctx context.Context, id string, do func(types.HijackedResponse, *bufio.Reader) error) (time.Duration, error) {
	a, err := y.engine.ContainerAttach(ctx, id, container.AttachOptions{Stream: true, Stdin: true, Stdout: true, Stderr: true})
	if err != nil {
		return 0, err
	}
	defer a.Close()
	if err := y.engine.ContainerStart(ctx, id, container.StartOptions{}); err != nil {
		return 0, err
	}
	said, say := io.Pipe()
	defer said.Close()
	go func() {
		_, err := stdcopy.StdCopy(say, io.Discard, a.Reader)
		_ = say.CloseWithError(err)
	}()
	out := bufio.NewReaderSize(said, 64<<10)
	if _, err := out.ReadByte(); err != nil {
		return 0, err
	}
	began := time.Now()
	err = do(a, out)
	return time.Since(began), err
}
