package files

import (
	"context"
	"errors"
	"io/fs"

	"sandyard/guest/protocol"
	"sandyard/guest/saferoot"
)

const (
	// MaxGlob is how many entries one Glob answers with at most.
	MaxGlob = 10_000
	// maxAnswer bounds the paths and lines in the answer to one search, in bytes.
	maxAnswer = 2 << 20
	// entryCost is what an entry adds to its path in an answer.
	entryCost = 150
)

// Globbed is what a glob selects, sorted by path.
type Globbed struct {
	Entries    []Entry
	Unreadable int  // directories
	Truncated  bool // there is more
}

// Glob finds what a pattern selects. Links are found and not followed.
func (t *Tree) Glob(ctx context.Context, r protocol.GlobRequest) (Globbed, error) {
	dir, pattern, exists, err := t.begin(r.Path, r.Pattern)
	if err != nil || !exists {
		return Globbed{}, err
	}
	return inRoot(t, dir, true, func(root *saferoot.Root, p place) (Globbed, error) {
		var g Globbed
		describe, room := newDescriber(), maxAnswer
		describe.room = 0 // for metadata, which nobody reads here
		w := newWalk(ctx, root, pattern, r.Hidden)
		w.found = func(p place, _ fs.FileMode) error {
			if room -= len(p.abs) + entryCost; room < 0 || len(g.Entries) >= min(r.Limit, MaxGlob) {
				return errEnough
			}
			entry, err := describe.entry(root, p)
			if err == nil {
				g.Entries = append(g.Entries, entry)
			}
			return w.goOn(0)
		}
		err := w.run(p)
		g.Unreadable, g.Truncated = w.unreadable, w.truncated
		return g, unreadable(err, dir)
	})
}

// unreadable explains that a search could not even begin.
func unreadable(err error, dir string) error {
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return protocol.Errorf(protocol.ReasonBusy, "the search in '%s' was stopped before it ended", dir)
	}
	return err
}
