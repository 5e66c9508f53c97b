package local

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"sandyard/providers"
	"sandyard/providers/confine"
	"sandyard/providers/guestconn"
	"sandyard/providers/local/cgroup"
	"sandyard/providers/local/shim"
)

const (
	// createTimeout bounds a create that nobody waits for any more.
	createTimeout = time.Minute
	removeTimeout = 30 * time.Second
	// greeting is how long a new guest may take to answer, on a machine busy with other starts.
	greeting = 15 * time.Second
)

// Create implements providers.Provider. A cancelled ctx ends the wait but not a create that has begun: that one
// finishes in the sandbox's directory, where the next Create or Delete finds it.
func (p *Provider) Create(ctx context.Context, spec providers.Spec) (providers.Instance, error) {
	spec, err := p.complete(spec)
	if err != nil {
		return providers.Instance{}, err
	}
	img, err := p.image(spec.Image)
	if err != nil {
		return providers.Instance{}, err
	}
	unlock, err := p.lock(ctx, spec.ID, true)
	if err != nil {
		return providers.Instance{}, err
	}
	late := func(err error) error { return providers.Unavailable.Errorf("wait for the new sandbox: %w", err) }
	work := func(own context.Context) (providers.Instance, error) {
		defer unlock()
		return p.create(own, spec, img)
	}
	return guestconn.Detached(ctx, p.life, &p.work, createTimeout, late, work)
}

// create makes the sandbox, or takes the one there is. The caller holds its lock and has made its directory.
func (p *Provider) create(ctx context.Context, spec providers.Spec, img image) (providers.Instance, error) {
	b, err := p.inspect(spec.ID)
	if err != nil {
		return providers.Instance{}, err
	}
	switch b.status {
	case statusPaused:
		return b.instance(), nil
	case statusRunning:
		if _, err := p.guests.Link(ctx, b); !errors.Is(err, providers.ErrLost) {
			return b.instance(), err
		}
	case statusHalfMade, statusGone: // start again from nothing
	}
	if err := p.end(ctx, b); err != nil {
		return providers.Instance{}, err
	}
	select {
	case p.starts <- struct{}{}:
		defer func() { <-p.starts }()
	case <-ctx.Done():
		return providers.Instance{}, providers.Busy.Errorf("wait for other sandboxes to start: %w", ctx.Err())
	}
	if err := p.start(ctx, b, spec, img); err != nil {
		p.cfg.Logger.WarnContext(ctx, "sandbox did not start", "sandbox_id", spec.ID, "error", err)
		return providers.Instance{}, errors.Join(err, p.remove(ctx, b))
	}
	p.cfg.Logger.InfoContext(ctx, "sandbox started", "sandbox_id", spec.ID, "image", spec.Image)
	b.status = statusRunning
	return b.instance(), nil
}

func (p *Provider) start(ctx context.Context, b box, spec providers.Spec, img image) error {
	if err := prepareBox(b); err != nil {
		return providers.Internal.Errorf("create the files of the sandbox: %w", err)
	}
	if err := p.startShim(ctx, b, spec.Resources, p.order(b, spec, img)); err != nil {
		return err
	}
	raw, err := attach(b)
	if err != nil {
		return err
	}
	if err := p.guests.Greet(ctx, b.id, raw, greeting); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(b.dir, readyFile), []byte(bootID()), 0o600); err != nil {
		return providers.Internal.Errorf("write the ready file of the sandbox: %w", err)
	}
	return nil
}

// prepareBox leaves of an earlier attempt nothing but the lock.
func prepareBox(b box) error {
	for _, name := range []string{readyFile, shim.AliveFile, shim.SocketFile, shim.EndFile} {
		if err := os.RemoveAll(filepath.Join(b.dir, name)); err != nil {
			return err
		}
	}
	return os.MkdirAll(filepath.Join(b.dir, shim.RootDir), 0o700)
}

// startShim returns when the guest runs. The control group is made while the shim's program is loaded.
func (p *Provider) startShim(ctx context.Context, b box, r providers.Resources, order shim.Order) error {
	k, err := p.launch()
	if err != nil {
		return providers.Internal.Errorf("start the shim: %w", err)
	}
	defer k.answer.Close()
	stop := context.AfterFunc(ctx, func() { _ = k.answer.Close() })
	defer stop()
	err = b.group.Make(cgroup.Limits{Memory: r.MemoryMB << 20, CPUs: r.CPUs, Pids: r.Pids + confine.GuestPids})
	if err != nil {
		err = fmt.Errorf("create the cgroup: %w", err)
	} else {
		_, err = k.order.Write(order.Text())
	}
	// Without an order it ends.
	if err = errors.Join(err, k.order.Close()); err != nil {
		return providers.Internal.Errorf("start the sandbox: %w", err)
	}
	return k.awaitReady(ctx)
}

// launched is a shim that waits for its order.
type launched struct{ order, answer *os.File }

// launch starts a shim. It has a session of its own: signals for this process are not for it.
func (p *Provider) launch() (l launched, err error) {
	orderEnd, order, err := os.Pipe()
	if err != nil {
		return l, err
	}
	defer orderEnd.Close()
	answer, answerEnd, err := os.Pipe()
	if err != nil {
		return l, errors.Join(err, order.Close())
	}
	defer answerEnd.Close()
	cmd := exec.Command(filepath.Join(p.programs.dir, shim.Program))
	cmd.Env, cmd.Dir = []string{"GOMAXPROCS=1", "GOGC=25"}, "/" // there are many shims, and they have little to do
	cmd.Stdin, cmd.Stdout, cmd.Stderr = orderEnd, answerEnd, answerEnd
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return l, errors.Join(err, order.Close(), answer.Close())
	}
	p.children.adopt(cmd.Process)
	return launched{order: order, answer: answer}, nil
}

func (l launched) awaitReady(ctx context.Context) error {
	said, err := io.ReadAll(io.LimitReader(l.answer, 4<<10))
	if err != nil {
		return providers.Unavailable.Errorf("wait for the shim: %w", errors.Join(ctx.Err(), err))
	}
	if string(said) != shim.Ready {
		return providers.Internal.Errorf("the sandbox did not start: %s", strings.TrimSpace(string(said)))
	}
	return nil
}
