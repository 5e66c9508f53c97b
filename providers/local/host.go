package local

import (
	"context"

	"sandyard/providers"
	"sandyard/providers/confine"
)

// Host implements providers.HostReporter, and sees to it that sandboxes cannot use up the kernel's open files.
func (p *Provider) Host(ctx context.Context) (providers.Host, error) {
	h, err := confine.ThisHost()
	if err == nil {
		confine.RaiseOpenFiles(ctx, h.Pids, p.cfg.Logger)
	}
	return h, err
}
