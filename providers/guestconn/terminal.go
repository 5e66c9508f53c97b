package guestconn

import (
	"context"

	"sandyard/providers"
	"sandyard/providers/envd"
)

// Tail implements providers.Terminals.
func (s *Sandbox[B]) Tail(ctx context.Context, name string, offset int64) (providers.Tail, error) {
	return via(ctx, s, true, func(in *envd.Sandbox) (providers.Tail, error) { return in.Tail(ctx, name, offset) })
}

// Resize implements providers.Terminals.
func (s *Sandbox[B]) Resize(ctx context.Context, name string, size providers.TerminalSize) error {
	return s.do(ctx, true, func(in *envd.Sandbox) error { return in.Resize(ctx, name, size) })
}
