package guestconn

import (
	"context"
	"time"

	"sandyard/providers"
	"sandyard/providers/envd"
)

// Launch implements providers.Background. One that may start anew is not repeated: the first may have ended already.
func (s *Sandbox[B]) Launch(ctx context.Context, cmd providers.Command) (providers.Exec, error) {
	return via(ctx, s, !cmd.Anew, func(in *envd.Sandbox) (providers.Exec, error) { return in.Launch(ctx, cmd) })
}

// Execs implements providers.Background.
func (s *Sandbox[B]) Execs(ctx context.Context) ([]providers.Exec, error) {
	return via(ctx, s, true, func(in *envd.Sandbox) ([]providers.Exec, error) { return in.Execs(ctx) })
}

// Exec implements providers.Background.
func (s *Sandbox[B]) Exec(ctx context.Context, name string, wait time.Duration) (providers.Exec, error) {
	return via(ctx, s, true, func(in *envd.Sandbox) (providers.Exec, error) { return in.Exec(ctx, name, wait) })
}

// Output implements providers.Background.
func (s *Sandbox[B]) Output(ctx context.Context, name string, q providers.OutputQuery) (providers.Output, error) {
	return via(ctx, s, true, func(in *envd.Sandbox) (providers.Output, error) { return in.Output(ctx, name, q) })
}

// Feed implements providers.Background.
func (s *Sandbox[B]) Feed(ctx context.Context, name string, input providers.Input) (providers.Fed, error) {
	return via(ctx, s, true, func(in *envd.Sandbox) (providers.Fed, error) { return in.Feed(ctx, name, input) })
}

// Settle implements providers.Background.
func (s *Sandbox[B]) Settle(ctx context.Context, name, id string) (providers.Fed, error) {
	return via(ctx, s, true, func(in *envd.Sandbox) (providers.Fed, error) { return in.Settle(ctx, name, id) })
}

// Signal implements providers.Background.
func (s *Sandbox[B]) Signal(ctx context.Context, name, id, signal string) error {
	return s.do(ctx, true, func(in *envd.Sandbox) error { return in.Signal(ctx, name, id, signal) })
}
