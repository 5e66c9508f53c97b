package inside

import (
	"cmp"
	"context"
	"strconv"

	"sandyard/providers"
	"sandyard/toolset"
)

const (
	maxRead    = 16 << 20 // bytes of one file
	maxFound   = 1000     // entries of a glob
	maxContext = 20       // lines around a match
)

// ReadFile implements toolset.Box.
func (b *box) ReadFile(ctx context.Context, path string) (toolset.File, error) {
	data, err := b.in.ReadFile(ctx, path, maxRead)
	return toolset.File{Path: path, Data: data}, err
}

// WriteFile implements toolset.Box.
func (b *box) WriteFile(ctx context.Context, path string, data []byte, mode string) (providers.FileInfo, error) {
	bits, err := strconv.ParseUint(cmp.Or(mode, "644"), 8, 32)
	if err != nil || bits == 0 || bits > 0o777 {
		return providers.FileInfo{}, toolset.Invalid("mode", "%q is not a file mode such as 0644", mode)
	}
	return b.in.WriteFile(ctx, path, data, uint32(bits))
}

// Edit implements toolset.Box.
func (b *box) Edit(ctx context.Context, path string, edit providers.Replacement) (providers.Edited, error) {
	if len(edit.Old) == 0 {
		return providers.Edited{}, toolset.Invalid("old_str", "is empty; use file_write to create or fill a file")
	}
	return b.in.Edit(ctx, providers.Edit{Name: newID("edit_"), Path: path, Edits: []providers.Replacement{edit}})
}

// List implements toolset.Box.
func (b *box) List(ctx context.Context, path string, depth int) ([]providers.FileInfo, error) {
	return b.in.ListDir(ctx, cmp.Or(path, "."), depth)
}

// Remove implements toolset.Box.
func (b *box) Remove(ctx context.Context, path string) error { return b.in.Remove(ctx, path) }

// Glob implements toolset.Box.
func (b *box) Glob(ctx context.Context, path, pattern string) (providers.Globbed, error) {
	if pattern == "" {
		return providers.Globbed{}, toolset.Invalid("pattern", "is empty")
	}
	return b.in.Glob(ctx, providers.Glob{Path: cmp.Or(path, "."), Pattern: pattern, Limit: maxFound})
}

// Grep implements toolset.Box.
func (b *box) Grep(ctx context.Context, g providers.Grep) (providers.Grepped, error) {
	if g.Pattern == "" {
		return providers.Grepped{}, toolset.Invalid("pattern", "is empty")
	}
	if g.Context < 0 || g.Context > maxContext {
		return providers.Grepped{}, toolset.Invalid("context", "must be between 0 and %d", maxContext)
	}
	g.Path = cmp.Or(g.Path, ".")
	return b.in.Grep(ctx, g)
}
