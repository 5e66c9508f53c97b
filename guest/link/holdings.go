package link

import (
	"errors"
	"slices"
	"sync"
	"time"
)

const (
	// strangerHolds is how much may wait in a stream that the guest has opened and nobody has accepted, in bytes: what
	// such a stream asks for is much shorter.
	strangerHolds = 4 << 10
	// linkHolds is how much may wait in all streams of a link together, in bytes; buffers that grow may take twice as
	// much.
	linkHolds = 8 << 20
	// crowdRoom is what is made free at once where the streams of a full link are closed, and crowdShare how much one
	// must hold to be worth it.
	crowdRoom, crowdShare = linkHolds / 8, 32 << 10
	// crowdPatience is how long a full link waits for those that read from its streams, and then for the ends of those
	// that it closes because nobody does.
	crowdPatience = time.Second
	// maxOvers is how many ends of streams a guest may leave unread.
	maxOvers = 4096
)

// errFull says that the backlog of a link has no room.
var errFull = errors.New("too many new streams of the sandbox are pending")

// verdict is what becomes of a message's body.
type verdict int

const (
	taken verdict = iota
	gone          // nobody would read it
	over          // there is no room, and its stream ends
	full          // it waits until others have ended
)

// holdings counts what waits in the streams of one link to be read.
type holdings struct {
	mu      sync.Mutex
	streams map[uint32]*holding
	strange int // streams that wait to be accepted
	held    int // the sum of what all keep
	current *holding
	freed   chan struct{} // told when something was read or given back
	quit    chan struct{}
	overs   []uint32 // streams of whose end the guest is to be told
	ended   bool
	closers sync.WaitGroup
}

// holding is what one stream holds.
type holding struct {
	stream *Stream // nil until it is accepted
	ours   bool    // not opened by the guest
	unread int
	kept   int       // the most that was unread since the memory was given back: buffers do not shrink by themselves
	since  time.Time // when somebody last read, or the first of what is unread came
	barred bool      // nothing more is taken
}

func newInbox() *inbox {
	return &inbox{
		holdings: holdings{streams: map[uint32]*holding{}, freed: make(chan struct{}, 1), quit: make(chan struct{})},
	}
}

// admit notes a stream that the guest opens. Its ids are even, and none is used twice at a time.
func (b *holdings) admit(id uint32) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case id%2 != 0 || b.streams[id] != nil:
		return errStreams
	case b.strange == backlog:
		return errFull
	}
	b.strange++
	b.streams[id] = &holding{}
	return nil
}

// note notes a stream that we open.
func (b *holdings) note(id uint32) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.streams[id] = &holding{ours: true}
}

func (b *holdings) accepted(s *Stream) {
	b.mu.Lock()
	defer b.mu.Unlock()
	h := b.streams[s.id]
	if h == nil { // cannot be: a header came before
		return
	}
	if !h.ours {
		b.strange--
	}
	h.stream = s
}

// take counts what comes for a stream, where it has room or soon gets it. Of a full link it returns the streams that
// are to be closed first; again says that this has been done.
func (b *holdings) take(id uint32, n int, again bool) (verdict, []*holding) {
	b.mu.Lock()
	defer b.mu.Unlock()
	h := b.streams[id]
	if h == nil || h.barred {
		return gone, nil
	}
	if h.stream == nil && !h.ours && h.unread+n > strangerHolds {
		h.barred = true
		return over, nil
	}
	more := func() int { return max(h.unread+n-h.kept, 0) }
	if !b.await(func() bool { return b.held+more() <= linkHolds }) {
		if slow := b.slowest(); len(slow) > 0 && !again {
			return full, slow
		}
		h.barred = true
		return over, nil
	}
	if b.streams[id] != h {
		return gone, nil // it was closed meanwhile
	}
	if h.unread == 0 {
		h.since = time.Now()
	}
	b.current = h
	b.held += more()
	h.unread += n
	h.kept = max(h.kept, h.unread)
	return taken, nil
}

// await gives the memory of empty streams back until enough says that it suffices, or nobody reads any more. The caller
// holds the lock, which is let go meanwhile.
func (b *holdings) await(enough func() bool) bool {
	if enough() {
		return true
	}
	late := time.NewTimer(crowdPatience)
	defer late.Stop()
	for b.shrink(); !enough(); b.shrink() {
		b.mu.Unlock()
		var stop bool
		select {
		case <-b.freed:
		case <-late.C:
			stop = true
		case <-b.quit:
			stop = true
		}
		b.mu.Lock()
		if stop {
			return enough()
		}
	}
	return true
}

// shrink gives the memory of streams back in which nothing waits.
func (b *holdings) shrink() {
	for _, h := range b.streams {
		if h.stream != nil && h.unread == 0 && h.kept > 0 {
			h.stream.shrink()
			b.release(h)
		}
	}
}

func (b *holdings) release(h *holding) {
	b.held -= h.kept
	h.kept = h.unread
	b.held += h.kept
}

// slowest returns the streams from which nobody has read for longest, as many as give back what is made free at once,
// among those that it helps to close.
func (b *holdings) slowest() (slow []*holding) {
	for _, h := range b.streams {
		if h.stream != nil && !h.barred && h.unread >= crowdShare {
			slow = append(slow, h)
		}
	}
	slices.SortFunc(slow, func(x, y *holding) int { return x.since.Compare(y.since) })
	sum := 0
	for i, h := range slow {
		h.barred = true
		if sum += h.kept; sum >= crowdRoom {
			return slow[:i+1]
		}
	}
	return slow
}

// tellOver tells the guest that a stream is over. It must not wait for the guest, who may wait for us to read.
func (b *holdings) tellOver(j *joined, id uint32) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.overs = append(b.overs, id)
	switch len(b.overs) {
	case 1:
		b.ask(func() {
			for id, any := b.nextOver(false); any; id, any = b.nextOver(true) {
				_ = j.breakOff(id) // fails where the link has ended
			}
		})
	case maxOvers:
		return errStreams
	}
	return nil
}

// nextOver returns the first of those that are over, after the one that has been told.
func (b *holdings) nextOver(told bool) (id uint32, any bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if told {
		b.overs = b.overs[1:]
	}
	if len(b.overs) == 0 {
		return 0, false
	}
	return b.overs[0], true
}

// ask does something that may take its time. The caller holds the lock.
func (b *holdings) ask(f func()) {
	if !b.ended {
		b.closers.Go(f)
	}
}

// less counts what was read.
func (b *holdings) less(s *Stream, n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	h := b.streams[s.id]
	if h == nil || h.stream != s {
		return
	}
	h.unread -= n
	h.since = time.Now()
	b.tell()
}

func (b *holdings) tell() {
	select {
	case b.freed <- struct{}{}:
	default:
	}
}

// forget gives the memory of a closed stream back, which yamux keeps until the guest has closed it, too.
func (b *holdings) forget(s *Stream) {
	b.mu.Lock()
	defer b.mu.Unlock()
	h := b.streams[s.id]
	if h == nil || h.stream != s {
		return
	}
	delete(b.streams, s.id)
	if h.kept > 0 {
		b.ask(func() {
			s.empty() // waits for the rest of a message that is on its way
			b.given(h)
		})
	}
}

// abandon gives the memory of a stream back that is over for lack of room, whatever its users are about.
func (b *holdings) abandon(s *Stream) {
	s.of.release(s.mux.Swap(nil))
	b.mu.Lock()
	defer b.mu.Unlock()
	if h := b.streams[s.id]; h != nil && h.stream == s {
		delete(b.streams, s.id)
		h.unread = 0
		b.release(h)
	}
}

func (b *holdings) given(h *holding) {
	b.mu.Lock()
	defer b.mu.Unlock()
	h.unread = 0
	b.release(h)
	b.tell()
}

// arrived is called when all of a message has come. Where its stream was closed meanwhile, nobody else would give it
// back.
func (b *holdings) arrived() {
	b.mu.Lock()
	defer b.mu.Unlock()
	h := b.current
	b.current = nil
	if h != nil && h.stream != nil && h.stream.closed.Load() {
		b.ask(h.stream.empty)
	}
}

func (b *holdings) stop() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.ended {
		b.ended = true
		close(b.quit)
	}
}
