package guestconn

import (
	"context"

	"sandyard/providers"
	"sandyard/providers/envd"
)

// Edit implements providers.FileTools. The guest knows by its name an edit that was made.
func (s *Sandbox[B]) Edit(ctx context.Context, e providers.Edit) (providers.Edited, error) {
	return via(ctx, s, e.Name != "", func(in *envd.Sandbox) (providers.Edited, error) { return in.Edit(ctx, e) })
}

// Glob implements providers.FileTools.
func (s *Sandbox[B]) Glob(ctx context.Context, g providers.Glob) (providers.Globbed, error) {
	return via(ctx, s, true, func(in *envd.Sandbox) (providers.Globbed, error) { return in.Glob(ctx, g) })
}

// Grep implements providers.FileTools.
func (s *Sandbox[B]) Grep(ctx context.Context, g providers.Grep) (providers.Grepped, error) {
	return via(ctx, s, true, func(in *envd.Sandbox) (providers.Grepped, error) { return in.Grep(ctx, g) })
}

// WriteFiles implements providers.FileTools.
func (s *Sandbox[B]) WriteFiles(ctx context.Context, files []providers.FileWrite) ([]providers.FileOutcome, error) {
	return via(ctx, s, true, func(in *envd.Sandbox) ([]providers.FileOutcome, error) { return in.WriteFiles(ctx, files) })
}

// ReadFiles implements providers.FileTools.
func (s *Sandbox[B]) ReadFiles(ctx context.Context, paths []string, limit int64) ([]providers.FileOutcome, error) {
	return via(ctx, s, true, func(in *envd.Sandbox) ([]providers.FileOutcome, error) {
		return in.ReadFiles(ctx, paths, limit)
	})
}
