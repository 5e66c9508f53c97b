package guestconn

import (
	"context"

	"sandyard/providers"
	"sandyard/providers/envd"
)

var _ providers.Processes = (*Sandbox[Body])(nil)

// Processes implements providers.Processes.
func (s *Sandbox[B]) Processes(ctx context.Context) (providers.ProcessList, error) {
	return via(ctx, s, true, func(in *envd.Sandbox) (providers.ProcessList, error) { return in.Processes(ctx) })
}

// SignalProcess implements providers.Processes.
func (s *Sandbox[B]) SignalProcess(ctx context.Context, signal providers.ProcessSignal) error {
	return s.do(ctx, true, func(in *envd.Sandbox) error { return in.SignalProcess(ctx, signal) })
}
