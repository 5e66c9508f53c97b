package files

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"path/filepath"
	"strings"

	"sandyard/guest/match"
	"sandyard/guest/protocol"
	"sandyard/guest/saferoot"
)

const (
	// MaxMatches is how many lines one Grep answers with at most.
	MaxMatches = 10_000
	// MaxContext is how many lines it shows before and after each.
	MaxContext = 50
	// maxSearched is how much of one file is searched, in bytes.
	maxSearched = 256 << 20
)

// Grep searches the lines of files. Files that are binary are passed over and counted, and so is what cannot be read.
func (t *Tree) Grep(ctx context.Context, r protocol.GrepRequest) (protocol.GrepReply, error) {
	search, err := match.NewSearch(r)
	if err != nil {
		return protocol.GrepReply{}, err
	}
	info, err := t.stat(r.Path)
	if err != nil {
		return protocol.GrepReply{}, err
	}
	if !info.IsDir() {
		return t.grepFile(ctx, r, search)
	}
	dir, pattern, exists, err := t.begin(r.Path, filesOf(r.Include))
	if err != nil || !exists {
		return protocol.GrepReply{}, err
	}
	return inRoot(t, dir, true, func(root *saferoot.Root, p place) (protocol.GrepReply, error) {
		w := newWalk(ctx, root, pattern, r.Hidden)
		g := newGrep(w, search, r.Limit)
		w.found = g.file
		err := w.run(p)
		return g.answer(), unreadable(err, dir)
	})
}

// filesOf is the pattern that an include stands for: without a slash it is of names at any depth.
func filesOf(include string) string {
	switch {
	case include == "":
		return "**"
	case !strings.Contains(include, "/"):
		return "**/" + include
	}
	return include
}

// grepFile searches the one file that the request names.
func (t *Tree) grepFile(ctx context.Context, r protocol.GrepRequest, search *match.Search) (protocol.GrepReply, error) {
	f, _, err := t.Open(r.Path, -1)
	if err != nil {
		return protocol.GrepReply{}, err
	}
	defer f.Close()
	p, err := t.locate(r.Path, true)
	if err != nil {
		return protocol.GrepReply{}, err
	}
	w := newWalk(ctx, nil, nil, r.Hidden)
	g := newGrep(w, search, r.Limit)
	if err = g.read(f, p.abs); errors.Is(err, errEnough) {
		w.truncated, err = true, nil
	}
	return g.answer(), unreadable(err, r.Path)
}

type grep struct {
	walk   *walk
	search *match.Search
	budget match.Budget
	reply  protocol.GrepReply
}

func newGrep(w *walk, search *match.Search, limit int) *grep {
	return &grep{walk: w, search: search, budget: match.Budget{Matches: min(limit, MaxMatches), Bytes: maxAnswer}}
}

func (g *grep) answer() protocol.GrepReply {
	g.reply.Unreadable, g.reply.Truncated = g.walk.unreadable, g.walk.truncated
	return g.reply
}

// file searches a file that the walk has found. A FIFO or a device has no lines, and to open one may wait or do things.
func (g *grep) file(p place, kind fs.FileMode) error {
	if !kind.IsRegular() {
		return nil
	}
	f, err := openRegular(g.walk.root, p.rel, filepath.Base(p.rel), -1)
	if err != nil {
		g.walk.unreadable++
		return g.walk.goOn(0)
	}
	defer f.Close()
	return g.read(f, p.abs)
}

func (g *grep) read(f io.Reader, path string) error {
	body := &patient{r: io.LimitReader(f, maxSearched+1), walk: g.walk}
	found, more, err := g.search.File(body, strings.ToValidUTF8(path, "\uFFFD"), &g.budget)
	switch {
	case errors.Is(err, match.ErrBinary):
		g.reply.Binary++
		return nil
	case err != nil && g.walk.passes(err):
		g.walk.unreadable++
		return nil
	case err != nil:
		return err
	}
	g.reply.Searched++
	g.reply.Matches = append(g.reply.Matches, found...)
	g.walk.truncated = g.walk.truncated || body.n > maxSearched
	if more {
		return errEnough
	}
	return nil
}

// patient reads for as long as the walk has patience.
type patient struct {
	r    io.Reader
	walk *walk
	n    int64
}

func (p *patient) Read(b []byte) (int, error) {
	if err := p.walk.goOn(0); err != nil {
		return 0, err
	}
	n, err := p.r.Read(b)
	p.n += int64(n)
	return n, err
}
