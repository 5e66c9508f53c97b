package emulated

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"path"
	"slices"
	"strings"

	"sandyard/guest/match"
	"sandyard/guest/protocol"
	"sandyard/providers"
)

const (
	maxVisited = 20_000  // entries that one search looks at
	maxShown   = 2 << 20 // bytes of lines in an answer
)

// errEnough ends a search that has found what it may.
var errEnough = errors.New("enough was found")

// Glob implements providers.FileTools.
func (t tools) Glob(ctx context.Context, g providers.Glob) (providers.Globbed, error) {
	var found providers.Globbed
	w, err := t.search(ctx, g.Path, g.Pattern, g.Hidden, func(f providers.FileInfo) error {
		if len(found.Entries) >= g.Limit {
			return errEnough
		}
		found.Entries = append(found.Entries, f)
		return nil
	})
	found.Unreadable, found.Truncated = w.unreadable, w.truncated
	return found, err
}

// Grep implements providers.FileTools.
func (t tools) Grep(ctx context.Context, g providers.Grep) (providers.Grepped, error) {
	search, err := match.NewSearch(protocol.GrepRequest(g))
	if err != nil {
		return providers.Grepped{}, translated(err)
	}
	at, err := t.files.Stat(ctx, g.Path)
	if err != nil {
		return providers.Grepped{}, err
	}
	var found providers.Grepped
	budget := match.Budget{Matches: g.Limit, Bytes: maxShown}
	unreadable := 0
	file := func(f providers.FileInfo) error {
		if f.Type != "file" {
			return nil
		}
		content, err := t.files.ReadFile(ctx, f.Path, maxFile)
		if err != nil {
			unreadable++
			_, err = ofFile(err)
			return err
		}
		matches, more, err := search.File(bytes.NewReader(content), f.Path, &budget)
		if errors.Is(err, match.ErrBinary) {
			found.Binary++
			return nil
		}
		found.Searched++
		for _, m := range matches {
			found.Matches = append(found.Matches, providers.Match(m))
		}
		if more {
			return errEnough
		}
		return err
	}
	if at.Type != "directory" {
		err = file(at)
		found.Truncated = errors.Is(err, errEnough)
		return found, unlessEnough(err)
	}
	w, err := t.search(ctx, g.Path, include(g.Include), g.Hidden, file)
	found.Unreadable, found.Truncated = w.unreadable+unreadable, w.truncated
	return found, err
}

func include(glob string) string {
	switch {
	case glob == "":
		return "**"
	case !strings.Contains(glob, "/"):
		return "**/" + glob
	}
	return glob
}

func unlessEnough(err error) error {
	if errors.Is(err, errEnough) {
		return nil
	}
	return err
}

// walk is one search.
type walk struct {
	files      providers.Files
	pattern    *match.Pattern
	hidden     bool
	found      func(providers.FileInfo) error
	visited    int
	unreadable int
	truncated  bool
}

// search calls found for what a pattern selects, sorted by path.
func (t tools) search(
	ctx context.Context,
	from, glob string,
	hidden bool,
	found func(providers.FileInfo) error,
) (*walk, error) {
	w := &walk{files: t.files, hidden: hidden, found: found}
	base, rest := match.Split(glob)
	var err error
	if w.pattern, err = match.Compile(rest); err != nil {
		return w, translated(err)
	}
	dir := from
	switch {
	case path.IsAbs(base):
		dir = base
	case base != "":
		dir = path.Join(from, base)
	}
	err = w.below(ctx, dir, w.pattern.Start())
	if base != "" &&
		(errors.Is(err, providers.ErrFileNotFound) || errors.Is(err, &providers.Error{Class: providers.NotADir})) {
		_, err = t.files.Stat(ctx, from)
	}
	w.truncated = w.truncated || errors.Is(err, errEnough)
	return w, unlessEnough(err)
}

// step is an entry that is selected or, with a slash behind its name, what lies below it.
type step struct {
	name  string
	info  providers.FileInfo
	below match.State
}

func (w *walk) below(ctx context.Context, dir string, state match.State) error {
	entries, err := w.files.ListDir(ctx, dir, 1)
	if err != nil {
		return err
	}
	if w.visited += len(entries); w.visited > maxVisited {
		return errEnough
	}
	var steps []step
	for _, e := range entries {
		selected, below := w.pattern.Step(state, e.Name, w.hidden)
		if selected {
			steps = append(steps, step{name: e.Name, info: e})
		}
		if len(below) > 0 && e.Type == "directory" {
			steps = append(steps, step{name: e.Name + "/", info: e, below: below})
		}
	}
	slices.SortFunc(steps, func(a, b step) int { return cmp.Compare(a.name, b.name) })
	for _, s := range steps {
		if err := w.one(ctx, s); err != nil {
			return err
		}
	}
	return nil
}

func (w *walk) one(ctx context.Context, s step) error {
	if s.below == nil {
		return w.found(s.info)
	}
	err := w.below(ctx, s.info.Path, s.below)
	if file, call := ofFile(err); file != nil {
		w.unreadable++
		w.truncated = w.truncated || file.Class == providers.TooLarge
		return call
	}
	return err
}
