package docker

import (
	"context"
	"strings"

	"golang.org/x/sys/unix"

	"sandyard/providers"
	"sandyard/providers/confine"
	"sandyard/providers/docker/engineerr"
)

// remotePids is the kernel's default limit of processes, for an engine on another machine.
const remotePids = 32768

// Host implements providers.HostReporter. On the engine's own machine it sees to it that sandboxes cannot use up the kernel's
// open files.
func (p *engine) Host(ctx context.Context) (providers.Host, error) {
	ctx, stop := context.WithTimeout(ctx, question)
	defer stop()
	info, err := p.api.Info(ctx)
	if err != nil {
		return providers.Host{}, engineerr.Translate(err, "ask the docker engine")
	}
	h := providers.Host{CPUs: info.NCPU, MemoryMB: info.MemTotal >> 20, Pids: remotePids}
	if !strings.HasPrefix(p.api.DaemonHost(), "unix://") {
		return h, nil
	}
	here, err := confine.ThisHost()
	if err != nil {
		return h, err
	}
	h.Pids = here.Pids
	confine.RaiseOpenFiles(ctx, h.Pids, p.cfg.Logger)
	return h, nil
}

// disk is what the engine's directory lies on, for an engine on this machine whose directory can be seen from here.
func (p *engine) disk(ctx context.Context) (fs unix.Statfs_t, err error) {
	unknown := providers.NotSupported.Errorf("the engine's data directory is not visible to this worker")
	if !strings.HasPrefix(p.api.DaemonHost(), "unix://") {
		return fs, unknown
	}
	dir := p.root.Load()
	if dir == nil {
		info, err := p.api.Info(ctx)
		if err != nil {
			return fs, engineerr.Translate(err, "ask the docker engine")
		}
		dir = &info.DockerRootDir
		p.root.Store(dir)
	}
	if err := unix.Statfs(*dir, &fs); err != nil {
		return fs, unknown
	}
	return fs, nil
}
