package local

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"sandyard/providers"
	"sandyard/providers/confine"
	"sandyard/providers/local/cgroup"
	"sandyard/providers/local/shim"
)

// status is where a sandbox is in its life.
type status string

const (
	statusHalfMade status = "still being created" // nobody has spoken with its guest yet
	statusRunning  status = "running"
	statusPaused   status = "paused"
	statusGone     status = "ended"
)

// readyFile is there once the guest has answered for the first time. It holds the machine's bootID of then.
const readyFile = "ready"

// box is what the machine holds of one sandbox.
type box struct {
	id        string
	dir       string
	group     cgroup.Group
	status    status
	ended     string // why it is gone
	createdAt time.Time
}

func (b box) instance() providers.Instance {
	state := providers.StateStopped
	switch b.status {
	case statusRunning:
		state = providers.StateRunning
	case statusPaused:
		state = providers.StatePaused
	case statusHalfMade, statusGone:
	}
	return providers.Instance{ID: b.id, Ref: b.dir, State: state, CreatedAt: b.createdAt, Ended: b.ended}
}

// SandboxID implements guestconn.Body.
func (b box) SandboxID() string { return b.id }

// Usable implements guestconn.Body: nil for a running sandbox, and of any other what is wrong.
func (b box) Usable() error {
	switch b.status {
	case statusRunning:
		return nil
	case statusPaused:
		return providers.ErrPaused
	case statusGone:
		return providers.Died(b.ended)
	case statusHalfMade:
	}
	return providers.Busy.Errorf("the sandbox is %s; try again", b.status)
}

// inspect looks at what there is of sandbox id.
func (p *Provider) inspect(id string) (box, error) {
	if !confine.ValidID(id) {
		return box{}, providers.ErrNotFound
	}
	b := box{id: id, dir: filepath.Join(p.fleetDir(), id), group: cgroup.Group{Hierarchy: p.groups, Name: p.groupName(id)}}
	info, err := os.Stat(filepath.Join(b.dir, lockFile)) // made with the sandbox and never written to
	if errors.Is(err, fs.ErrNotExist) {
		return box{}, providers.ErrNotFound
	}
	if err != nil {
		return box{}, providers.Internal.Errorf("inspect the sandbox: %w", err)
	}
	b.createdAt = info.ModTime()
	b.status, err = b.look()
	if err != nil {
		return box{}, providers.Internal.Errorf("inspect the sandbox: %w", err)
	}
	if b.status == statusGone {
		b.ended = b.why()
	}
	return b, nil
}

// why says why a sandbox is gone. A shim that was killed has left no word of it.
func (b box) why() string {
	end, _ := os.ReadFile(filepath.Join(b.dir, shim.EndFile))
	then, _ := os.ReadFile(filepath.Join(b.dir, readyFile))
	switch {
	case strings.HasPrefix(string(end), shim.OutOfMemory):
		return providers.EndedByMemory
	case len(end) == 0 && len(then) > 0 && string(then) != bootID():
		return providers.EndedByMachine
	}
	var code int
	if _, err := fmt.Sscanf(string(end), shim.ExitStatus+"%d", &code); err == nil {
		return providers.EndedByItself(code)
	}
	return providers.EndedByKill
}

// bootID is another one each time the machine is started; empty = not known.
func bootID() string {
	id, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return string(id)
}

func (b box) look() (status, error) {
	if _, err := os.Stat(filepath.Join(b.dir, readyFile)); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return statusHalfMade, nil
		}
		return "", err
	}
	if _, alive := shim.Alive(b.dir); !alive {
		return statusGone, nil
	}
	frozen, err := b.group.Frozen()
	if frozen {
		return statusPaused, err
	}
	return statusRunning, err
}

// List implements providers.Provider.
func (p *Provider) List(context.Context) ([]providers.Instance, error) {
	p.children.reap()
	entries, err := os.ReadDir(p.fleetDir())
	if err != nil {
		return nil, providers.Unavailable.Errorf("list the sandboxes: %w", err)
	}
	instances := []providers.Instance{}
	for _, entry := range entries {
		b, err := p.inspect(entry.Name())
		if errors.Is(err, providers.ErrNotFound) {
			continue // removed meanwhile, or not a sandbox's
		}
		if err != nil {
			return nil, err
		}
		instances = append(instances, b.instance())
	}
	return instances, nil
}
