package fake

import (
	"context"
	"io"
	"net"
	"time"

	"sandyard/providers"
)

// sandbox is one sandbox as a worker has it open.
type sandbox struct {
	p  *Provider
	id string
}

// Run implements providers.Commands.
func (s *sandbox) Run(ctx context.Context, cmd providers.Command) (providers.Result, error) {
	var e *execution
	err := s.inside(ctx, OpRun, func(b *box) error {
		var err error
		e, err = s.p.state.launch(b, cmd)
		return err
	})
	if err != nil {
		return providers.Result{}, err
	}
	if cmd.Started != nil {
		cmd.Started()
	}
	return s.await(ctx, e, cmd.Timeout)
}

// Gauge implements providers.Gauge by figures that never change.
func (s *sandbox) Gauge(ctx context.Context) (g providers.Gauged, err error) {
	err = s.inside(ctx, OpRun, func(*box) error {
		g = providers.Gauged{CPUs: 1, CPUPercent: 12.5, MemTotal: 512 << 20, MemUsed: 64 << 20, MemCache: 8 << 20, DiskTotal: 256 << 20, DiskUsed: 1 << 20}
		return nil
	})
	return g, err
}

// Start implements providers.Starter.
func (s *sandbox) Start(ctx context.Context, cmd providers.Command) error {
	return s.inside(ctx, OpRun, func(b *box) error {
		_, err := s.p.state.launch(b, cmd)
		return err
	})
}

// await waits for the end of a command, or for its time to run out. A pause ends the wait.
func (s *sandbox) await(ctx context.Context, e *execution, timeout time.Duration) (providers.Result, error) {
	for halt := e.box.halt(); ; {
		var alarm <-chan time.Time
		if timeout > 0 {
			timer := time.NewTimer(max(timeout-time.Since(e.begun), 0))
			defer timer.Stop()
			alarm = timer.C
		}
		select {
		case <-e.done:
			return e.result(s.id)
		case <-ctx.Done():
			return providers.Result{}, detached(ctx.Err())
		case <-s.p.closed:
			return providers.Result{}, s.p.usable(ctx)
		case <-halt:
			return providers.Result{}, providers.ErrPaused
		case <-alarm:
			e.timeOut()
			timeout = 0
		}
	}
}

func (e *execution) timeOut() {
	e.box.mu.Lock()
	e.timed = true
	e.box.mu.Unlock()
	e.kill()
}

// result is the end of a command whose done is closed.
func (e *execution) result(id string) (providers.Result, error) {
	e.box.mu.Lock()
	defer e.box.mu.Unlock()
	if e.box.state == providers.StateStopped {
		return providers.Result{}, providers.Lost.Errorf("sandbox %s died while the command ran", id)
	}
	res := e.res
	res.TimedOut = e.timed && res.Signal == "SIGTERM"
	if e.forgot {
		res.Stdout, res.Stderr = nil, nil
	}
	return res, nil
}

// Kill implements providers.Commands.
func (s *sandbox) Kill(ctx context.Context, name string) error {
	return s.inside(ctx, OpKill, func(b *box) error {
		if e := b.exec(name); e != nil {
			e.kill()
		}
		return nil
	})
}

// Forget implements providers.Commands.
func (s *sandbox) Forget(ctx context.Context, name string) error {
	return s.inside(ctx, OpForget, func(b *box) error {
		b.mu.Lock()
		defer b.mu.Unlock()
		if e := b.execs[name]; e != nil {
			e.forgot = true
		}
		return nil
	})
}

// SetNetwork implements providers.Networker. Nothing leads anywhere in memory.
func (s *sandbox) SetNetwork(ctx context.Context, _ bool) error {
	return s.inside(ctx, OpNetwork, func(*box) error { return nil })
}

// DialPort is what ports are reached by. Nothing listens on any.
func (s *sandbox) DialPort(ctx context.Context, port uint16) (net.Conn, error) {
	return nil, s.inside(ctx, OpPort, func(*box) error {
		return providers.Invalid.Errorf("nothing listens on port %d of the sandbox", port)
	})
}

func (b *box) exec(name string) *execution {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.execs[name]
}

// inside runs one call in a running sandbox, with the faults set for it.
func (s *sandbox) inside(ctx context.Context, op Op, do func(*box) error) error {
	return s.p.Call(ctx, op, s.id, func() error {
		b, err := s.p.state.running(s.id)
		if err != nil {
			return err
		}
		return do(b)
	})
}

func (s *sandbox) file(ctx context.Context, do func(*tree) error) error {
	return s.inside(ctx, OpFile, func(b *box) error { return do(b.files) })
}

// ReadFile implements providers.Files.
func (s *sandbox) ReadFile(ctx context.Context, path string, limit int64) (data []byte, err error) {
	err = s.file(ctx, func(t *tree) error { data, err = t.read(path, limit); return err })
	return data, err
}

// WriteFile implements providers.Files.
func (s *sandbox) WriteFile(ctx context.Context, path string, data []byte, mode uint32) (info providers.FileInfo, err error) {
	err = s.file(ctx, func(t *tree) error { info, err = t.write(path, data, mode); return err })
	return info, err
}

// Stat implements providers.Files.
func (s *sandbox) Stat(ctx context.Context, path string) (info providers.FileInfo, err error) {
	err = s.file(ctx, func(t *tree) error { info, err = t.stat(path); return err })
	return info, err
}

// ListDir implements providers.Files.
func (s *sandbox) ListDir(ctx context.Context, path string, depth int) (infos []providers.FileInfo, err error) {
	err = s.file(ctx, func(t *tree) error { infos, err = t.list(path, depth); return err })
	return infos, err
}

// MakeDir implements providers.Files.
func (s *sandbox) MakeDir(ctx context.Context, path string) (info providers.FileInfo, err error) {
	err = s.file(ctx, func(t *tree) error { info, err = t.makeDir(path); return err })
	return info, err
}

// Move implements providers.Files.
func (s *sandbox) Move(ctx context.Context, from, to string) (info providers.FileInfo, err error) {
	err = s.file(ctx, func(t *tree) error { info, err = t.move(from, to); return err })
	return info, err
}

// Remove implements providers.Files.
func (s *sandbox) Remove(ctx context.Context, path string) error {
	return s.file(ctx, func(t *tree) error { return t.remove(path) })
}

// OpenFile implements providers.Streams.
func (s *sandbox) OpenFile(ctx context.Context, path string, offset, length int64) (f providers.FileStream, err error) {
	err = s.file(ctx, func(t *tree) error { f, err = t.open(path, offset, length); return err })
	return f, err
}

// SaveFile implements providers.Streams.
func (s *sandbox) SaveFile(ctx context.Context, path string, r io.Reader, size int64, mode uint32) (info providers.FileInfo, err error) {
	data, err := io.ReadAll(r)
	if err != nil || size >= 0 && int64(len(data)) != size {
		return info, providers.Invalid.Errorf("the upload was interrupted after %d bytes: %w", len(data), err)
	}
	return s.WriteFile(ctx, path, data, mode)
}

// OpenTree implements providers.Streams.
func (s *sandbox) OpenTree(ctx context.Context, path string, zip bool) (archive io.ReadCloser, err error) {
	err = s.file(ctx, func(t *tree) error { archive, err = t.pack(path, zip); return err })
	return archive, err
}

// SaveTree implements providers.Streams.
func (s *sandbox) SaveTree(ctx context.Context, path string, r io.Reader) (report providers.TreeReport, err error) {
	err = s.file(ctx, func(t *tree) error { report, err = t.unpack(path, r); return err })
	return report, err
}
