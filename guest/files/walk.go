package files

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"sandyard/guest/match"
	"sandyard/guest/protocol"
	"sandyard/guest/saferoot"
)

// Bounds of one search, whatever code in the sandbox has put in its way.
const (
	searchPatience = 20 * time.Second
	maxVisited     = 1_000_000 // entries of directories
	maxPending     = 8 << 20   // bytes of what was read of directories and not looked at yet
	pendingCost    = 96        // of one such, beside its name
	readAtOnce     = 512       // entries
	maxDepth       = 200       // directories below the root: to open one costs as many steps
)

// errEnough ends a walk that has found what it may.
var errEnough = errors.New("enough was found")

// walk goes through what a pattern selects below a directory, sorted by path. It follows no links, so it cannot go in
// circles, and lists a directory before it opens what is in it, so it holds one descriptor at a time.
type walk struct {
	ctx     context.Context
	root    *saferoot.Root
	pattern *match.Pattern
	hidden  bool
	found   func(p place, kind fs.FileMode) error

	deadline   time.Time
	visited    int
	pending    int
	unreadable int
	truncated  bool
	full       bool // the directory that is read has more than there is memory for
}

// step is something to look at: an entry that is selected, or what lies below a directory.
type step struct {
	name  string // with a slash at the end for what lies below
	kind  fs.FileMode
	below match.State
}

func newWalk(ctx context.Context, root *saferoot.Root, pattern *match.Pattern, hidden bool) *walk {
	return &walk{ctx: ctx, root: root, pattern: pattern, hidden: hidden, deadline: time.Now().Add(searchPatience)}
}

// run walks below dir. It is no error that not everything could be found.
func (w *walk) run(dir place) error {
	steps, err := w.read(dir, w.pattern.Start())
	if err == nil {
		err = w.take(dir, steps)
	}
	if errors.Is(err, errEnough) {
		w.truncated, err = true, nil
	}
	return err
}

func (w *walk) take(dir place, steps []step) error {
	for _, s := range steps {
		w.pending -= len(s.name) + pendingCost
		p := dir.join(s.name)
		if len(p.abs) > maxPath || strings.Count(p.rel, "/") > maxDepth {
			w.truncated = true
			continue
		}
		err := w.one(p, s)
		if err != nil {
			return err
		}
	}
	return nil
}

func (w *walk) one(p place, s step) error {
	if s.below == nil {
		return w.found(p, s.kind)
	}
	steps, err := w.read(p, s.below)
	if err != nil {
		if w.passes(err) {
			w.unreadable++
			return nil
		}
		return err
	}
	return w.take(p, steps)
}

// passes says whether an error is about what it was met at alone: it cannot be read, or has changed meanwhile.
func (w *walk) passes(err error) bool {
	return !errors.Is(err, errEnough) && w.ctx.Err() == nil
}

// read lists what is to be done in a directory.
func (w *walk) read(dir place, state match.State) ([]step, error) {
	f, err := w.root.OpenDir(dir.rel)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var steps []step
	for w.full = false; ; {
		entries, err := f.ReadDir(readAtOnce)
		for _, e := range entries {
			steps = w.plan(steps, state, e)
		}
		switch {
		case isEOF(err) || w.full:
			slices.SortFunc(steps, func(a, b step) int { return cmp.Compare(a.name, b.name) })
			return steps, nil
		case err != nil:
			return nil, err
		}
		if err := w.goOn(len(entries)); err != nil {
			return nil, err
		}
	}
}

// plan adds what the pattern wants of an entry. Memory that is full ends the listing; what is in it is still looked at.
func (w *walk) plan(steps []step, state match.State, e fs.DirEntry) []step {
	selected, below := w.pattern.Step(state, e.Name(), w.hidden)
	if selected {
		steps = w.add(steps, step{name: e.Name(), kind: e.Type()})
	}
	if len(below) > 0 && e.IsDir() {
		steps = w.add(steps, step{name: e.Name() + "/", below: below})
	}
	return steps
}

func (w *walk) add(steps []step, s step) []step {
	cost := len(s.name) + pendingCost
	if w.pending+cost > maxPending {
		w.full, w.truncated = true, true
		return steps
	}
	w.pending += cost
	return append(steps, s)
}

// goOn says whether there is patience for more.
func (w *walk) goOn(visited int) error {
	w.visited += visited
	if err := w.ctx.Err(); err != nil {
		return err
	}
	if w.visited > maxVisited || time.Now().After(w.deadline) {
		return errEnough
	}
	return nil
}

func (p place) join(name string) place {
	return place{abs: filepath.Join(p.abs, name), root: p.root, rel: filepath.Join(p.rel, name), apart: p.apart}
}

// begin finds the directory that a pattern begins in. It answers false for one that only the pattern names and that
// does not exist: then nothing is selected.
func (t *Tree) begin(path, glob string) (dir string, pattern *match.Pattern, exists bool, err error) {
	base, rest := match.Split(glob)
	if pattern, err = match.Compile(rest); err != nil {
		return "", nil, false, err
	}
	switch {
	case base == "":
		return path, pattern, true, nil
	case filepath.IsAbs(base):
		dir = base
	default:
		dir = filepath.Join(path, base)
	}
	info, err := t.stat(dir)
	if reason, ok := errors.AsType[*protocol.Error](err); ok &&
		(reason.Reason == protocol.ReasonFileNotFound || reason.Reason == protocol.ReasonNotADir) {
		_, err = t.stat(path)
		return "", nil, false, err
	}
	return dir, pattern, err == nil && info.IsDir(), err
}

// stat describes what a path leads to.
func (t *Tree) stat(path string) (fs.FileInfo, error) {
	return inRoot(t, path, true, func(root *saferoot.Root, p place) (fs.FileInfo, error) { return root.Lstat(p.rel) })
}
