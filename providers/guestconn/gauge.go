package guestconn

import (
	"context"

	"sandyard/providers"
	"sandyard/providers/envd"
)

// Gauge implements providers.Gauge.
func (s *Sandbox[B]) Gauge(ctx context.Context) (providers.Gauged, error) {
	return via(ctx, s, true, func(in *envd.Sandbox) (providers.Gauged, error) { return in.Gauge(ctx) })
}
