package models

import (
	"errors"
	"slices"
	"sync"
	"time"
)

// ErrClosed says that the store takes no submissions any more.
var ErrClosed = errors.New("the store is closed")

const (
	// maxGroup bounds one transaction: past it the gain is gone and the latency is not.
	maxGroup = 128
	// maxGroupBytes bounds what one transaction sends, apart from a single submission that is larger.
	maxGroupBytes = 8 << 20
	// largeSubmission is the size from which a submission does not share the main line: the others would wait while it is
	// sent.
	largeSubmission = 256 << 10
	// lockPatience is how long a submission waits for a row that somebody else has locked.
	lockPatience = 15 * time.Second
)

// groupCommit lets concurrent submissions share transactions. There is no timer: a transaction starts as soon as the
// one before it is done, with all that has come meanwhile, so a lone caller waits for nobody.
//
// Submissions stand in lines, one transaction of each line at a time. The main line never waits for a locked row and
// sends nothing large. A submission that meets a locked row moves to a line of that row; one that is large, or ends a
// sandbox with all that waits for it, stands in a line of its tenant. So neither delays the submissions of others.
type groupCommit struct {
	flush func(group []*submission, l line) (locked []*submission)
	slots chan struct{} // connections that the lines beside the main one may use

	mu     sync.Mutex
	lines  map[line][]*submission // who waits; a line exists as long as a goroutine works on it
	closed bool
	work   sync.WaitGroup
}

// line names a line. The zero value is the main line.
type line struct {
	large  string // the tenant whose submissions are large, or end much
	locked string // the sandbox, or the tenant of a new one
}

func newGroupCommit(slots int, flush func([]*submission, line) []*submission) *groupCommit {
	return &groupCommit{flush: flush, slots: make(chan struct{}, max(1, slots)), lines: map[line][]*submission{}}
}

// do hands s over and waits until it is committed or refused.
func (g *groupCommit) do(s *submission) error {
	if !g.enter(s) {
		return ErrClosed
	}
	<-s.committed
	return nil
}

func (g *groupCommit) enter(s *submission) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return false
	}
	g.stand(g.lineOf(s), s)
	return true
}

func (g *groupCommit) isClosed() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.closed
}

// lineOf is the line for a submission that comes: that of its sandbox where others wait for it already.
func (g *groupCommit) lineOf(s *submission) line {
	locked := line{locked: s.row()}
	switch _, waits := g.lines[locked]; {
	case waits:
		return locked
	case s.bytes > largeSubmission, s.End != nil: // an end writes all jobs that wait
		return line{large: s.TenantID}
	}
	return line{}
}

// stand puts a submission at the end of a line.
func (g *groupCommit) stand(l line, s *submission) {
	waiting, works := g.lines[l]
	g.lines[l] = append(waiting, s)
	if !works {
		g.work.Go(func() { g.run(l) })
	}
}

// close waits for the submissions under way and refuses others.
func (g *groupCommit) close() {
	g.mu.Lock()
	g.closed = true
	g.mu.Unlock()
	g.work.Wait()
}

func (g *groupCommit) run(l line) {
	for group := g.next(l); len(group) > 0; group = g.next(l) {
		g.commit(group, l)
	}
}

// next takes the next group out of a line. Without one the line is over.
func (g *groupCommit) next(l line) []*submission {
	g.mu.Lock()
	defer g.mu.Unlock()
	waiting := g.lines[l]
	n, bytes := 0, 0
	for n < min(len(waiting), maxGroup) && (n == 0 || bytes+waiting[n].bytes <= maxGroupBytes) {
		bytes += waiting[n].bytes
		n++
	}
	if n == 0 {
		delete(g.lines, l)
		return nil
	}
	g.lines[l] = waiting[n:]
	return waiting[:n:n]
}

func (g *groupCommit) commit(group []*submission, l line) {
	if l != (line{}) {
		g.slots <- struct{}{}
		defer func() { <-g.slots }()
	}
	locked := g.flush(group, l)
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, s := range group {
		if slices.Contains(locked, s) {
			g.stand(line{locked: s.row()}, s)
		} else {
			close(s.committed)
		}
	}
}
