package mcp

import (
	"context"
	"encoding/base64"

	"sandyard/jobs"
	"sandyard/providers"
	"sandyard/toolset"
)

// ReadFile implements toolset.Box.
func (w *inside) ReadFile(ctx context.Context, path string) (toolset.File, error) {
	var res jobs.ReadResult
	job, err := w.do(ctx, &jobs.Read{Path: path}, &res)
	return toolset.File{Path: res.Path, Data: job.Content}, err
}

// WriteFile implements toolset.Box.
func (w *inside) WriteFile(
	ctx context.Context,
	path string,
	data []byte,
	mode string,
) (info providers.FileInfo, err error) {
	_, err = w.do(
		ctx,
		&jobs.Write{Path: path, Content: base64.StdEncoding.EncodeToString(data), Encoding: "base64", Mode: mode},
		&info,
	)
	return info, err
}

// Edit implements toolset.Box.
func (w *inside) Edit(ctx context.Context, path string, edit providers.Replacement) (providers.Edited, error) {
	var res jobs.EditResult
	_, err := w.do(ctx, &jobs.Edit{Path: path, Edits: []jobs.Replacement{{
		OldString: string(edit.Old), NewString: string(edit.New), ReplaceAll: edit.All,
	}}}, &res)
	return providers.Edited(res), err
}

// List implements toolset.Box.
func (w *inside) List(ctx context.Context, path string, depth int) ([]providers.FileInfo, error) {
	var res jobs.ListResult
	_, err := w.do(ctx, &jobs.List{Path: path, Depth: depth}, &res)
	return res.Entries, err
}

// Remove implements toolset.Box.
func (w *inside) Remove(ctx context.Context, path string) error {
	_, err := w.do(ctx, &jobs.Remove{Path: path}, nil)
	return err
}

// Glob implements toolset.Box.
func (w *inside) Glob(ctx context.Context, path, pattern string) (providers.Globbed, error) {
	var res jobs.GlobResult
	_, err := w.do(ctx, &jobs.Glob{Pattern: pattern, Path: path}, &res)
	return providers.Globbed(res), err
}

// Grep implements toolset.Box.
func (w *inside) Grep(ctx context.Context, g providers.Grep) (providers.Grepped, error) {
	var res jobs.GrepResult
	_, err := w.do(ctx, &jobs.Grep{
		Pattern: g.Pattern, Fixed: g.Fixed, IgnoreCase: g.IgnoreCase, Path: g.Path, Include: g.Include, Hidden: g.Hidden,
		Context: g.Context, MaxMatches: g.Limit,
	}, &res)
	return providers.Grepped(res), err
}
