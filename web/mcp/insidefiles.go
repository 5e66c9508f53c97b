package mcp

import (
	"context"
	"encoding/base64"

	"sandyard/jobs/kind"
	"sandyard/providers"
	"sandyard/toolset"
)

// ReadFile implements toolset.Box.
func (w *inside) ReadFile(ctx context.Context, path string) (toolset.File, error) {
	var res kind.ReadResult
	job, err := w.do(ctx, &kind.Read{Path: path}, &res)
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
		&kind.Write{Path: path, Content: base64.StdEncoding.EncodeToString(data), Encoding: "base64", Mode: mode},
		&info,
	)
	return info, err
}

// Edit implements toolset.Box.
func (w *inside) Edit(ctx context.Context, path string, edit providers.Replacement) (providers.Edited, error) {
	var res kind.EditResult
	_, err := w.do(ctx, &kind.Edit{Path: path, Edits: []kind.Replacement{{
		OldString: string(edit.Old), NewString: string(edit.New), ReplaceAll: edit.All,
	}}}, &res)
	return providers.Edited(res), err
}

// List implements toolset.Box.
func (w *inside) List(ctx context.Context, path string, depth int) ([]providers.FileInfo, error) {
	var res kind.ListResult
	_, err := w.do(ctx, &kind.List{Path: path, Depth: depth}, &res)
	return res.Entries, err
}

// Remove implements toolset.Box.
func (w *inside) Remove(ctx context.Context, path string) error {
	_, err := w.do(ctx, &kind.Remove{Path: path}, nil)
	return err
}

// Glob implements toolset.Box.
func (w *inside) Glob(ctx context.Context, path, pattern string) (providers.Globbed, error) {
	var res kind.GlobResult
	_, err := w.do(ctx, &kind.Glob{Pattern: pattern, Path: path}, &res)
	return providers.Globbed(res), err
}

// Grep implements toolset.Box.
func (w *inside) Grep(ctx context.Context, g providers.Grep) (providers.Grepped, error) {
	var res kind.GrepResult
	_, err := w.do(ctx, &kind.Grep{
		Pattern: g.Pattern, Fixed: g.Fixed, IgnoreCase: g.IgnoreCase, Path: g.Path, Include: g.Include, Hidden: g.Hidden,
		Context: g.Context, MaxMatches: g.Limit,
	}, &res)
	return providers.Grepped(res), err
}
