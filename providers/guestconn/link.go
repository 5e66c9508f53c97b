package guestconn

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"sandyard/providers"
	"sandyard/providers/envd"
)

const (
	// silence is how long a guest may leave a question unanswered.
	silence = 2 * time.Second
	// lastChance is how long it may do so before its sandbox is ended: that cannot be taken back, and a guest on a machine
	// with too much to do may only be slow.
	lastChance = 15 * time.Second
	// quick is how long an existing link gets to prove itself, or its end, before the backend is asked.
	quick = 300 * time.Millisecond
	// freshFor is how long the last answer of a guest counts as a sign of life.
	freshFor = time.Second
	// watchEvery is the time between questions to a guest nobody else talks to.
	watchEvery = 5 * time.Second
	// endTime bounds what is done about a guest that fell silent while nobody talked to it.
	endTime = 30 * time.Second
)

// Link is one conversation with the guest of a sandbox.
type Link struct {
	Inside *envd.Sandbox
	id     string
	raw    Stream
	letGo  atomic.Bool  // ended by this process
	heard  atomic.Int64 // when the guest last answered a call, in Unix nanoseconds
}

func (l *Link) ended() bool {
	select {
	case <-l.Inside.Done():
		return true
	default:
		return false
	}
}

// takenOver says that the link ended although neither we nor the backend ended it: the guest now talks to another
// worker. To take it back would only be answered in kind.
func (l *Link) takenOver() bool { return !l.letGo.Load() && !l.raw.Torn() }

func (l *Link) close() {
	if !l.ended() {
		l.letGo.Store(true)
	}
	_ = l.Inside.Close()
	_ = l.raw.Close()
}

// ends waits a moment for the end of a link on which a call just failed: the failure comes a little before it.
func (l *Link) ends(ctx context.Context) bool {
	timer := time.NewTimer(quick)
	defer timer.Stop()
	select {
	case <-l.Inside.Done():
		return true
	case <-timer.C:
		return false
	case <-ctx.Done():
		return false
	}
}

// fresh says that the guest answered a moment ago, so that there is no need to ask it whether it lives.
func (l *Link) fresh() bool {
	return !l.ended() && time.Since(time.Unix(0, l.heard.Load())) < freshFor
}

// answers says whether the guest gives a sign of life. Where much is under way an answer may be late; whatever else
// comes meanwhile does as well.
func (l *Link) answers(ctx context.Context, within time.Duration) bool {
	began := time.Now()
	ctx, stop := context.WithTimeout(ctx, within)
	defer stop()
	if l.Inside.Ping(ctx) != nil && (l.ended() || !l.Inside.HeardSince(began)) {
		return false
	}
	l.heard.Store(time.Now().UnixNano())
	return true
}

// links holds the one link of every sandbox this process talks to.
type links struct {
	mu     sync.Mutex
	byID   map[string]*Link
	closed bool
}

func (s *links) get(id string) *Link {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.byID[id]
	if l == nil || l.ended() {
		return nil
	}
	return l
}

// put makes l the link of its sandbox and calls watch, which closeAll then comes after. It answers false after
// closeAll.
func (s *links) put(l *Link, watch func()) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	if s.byID == nil {
		s.byID = make(map[string]*Link)
	}
	s.byID[l.id] = l
	watch()
	return true
}

// drop closes and forgets the link of id: only if it is l, or whichever it is when l is nil.
func (s *links) drop(id string, l *Link) {
	s.mu.Lock()
	held := s.byID[id]
	if l == nil || held == l {
		delete(s.byID, id)
	}
	s.mu.Unlock()
	if l == nil {
		l = held
	}
	if l != nil {
		l.close()
	}
}

func (s *links) closeAll() {
	s.mu.Lock()
	s.closed = true
	held := s.byID
	s.byID = nil
	s.mu.Unlock()
	for _, l := range held {
		l.close()
	}
}

// reach returns a live link to a running sandbox.
func (g *Guests[B]) reach(ctx context.Context, id string) (*Link, error) {
	if l := g.links.get(id); l != nil {
		return l, nil
	}
	var l *Link
	err := g.backend.Change(ctx, id, func(b B) error {
		var err error
		l, err = g.Link(ctx, b)
		return err
	})
	return l, err
}

// Link returns the link of a running sandbox, making it where there is none. It is called within the backend's Change.
//
// A guest that greets nobody in a running sandbox is out of order, or beset by the code it guards: after a second
// attempt over a fresh stream the sandbox is ended, so that nothing goes on unwatched.
func (g *Guests[B]) Link(ctx context.Context, b B) (*Link, error) {
	if err := b.Usable(); err != nil {
		return nil, err
	}
	if l := g.links.get(b.SandboxID()); l != nil {
		return l, nil
	}
	err := g.attach(ctx, b, silence)
	if err != nil && ctx.Err() == nil {
		err = g.attach(ctx, b, lastChance)
	}
	if err == nil {
		if l := g.links.get(b.SandboxID()); l != nil {
			return l, nil
		}
		return nil, providers.Unavailable.Errorf("the link to the sandbox closed right after it opened; try again")
	}
	if ctx.Err() != nil {
		return nil, err
	}
	return nil, g.giveUp(ctx, b, err)
}

func (g *Guests[B]) attach(ctx context.Context, b B, patience time.Duration) error {
	raw, err := g.backend.Attach(ctx, b)
	if err != nil {
		return err
	}
	return g.Greet(ctx, b.SandboxID(), raw, patience)
}

// giveUp ends a sandbox whose guest did not answer, unless the backend tells a better reason.
func (g *Guests[B]) giveUp(ctx context.Context, b B, cause error) error {
	silent := providers.AsError(cause).Class == providers.Lost
	if !silent {
		g.backend.Settle(ctx, b)
	}
	if err := g.explain(ctx, b.SandboxID(), nil); err != nil {
		return err
	}
	if !silent {
		return cause
	}
	g.log.WarnContext(ctx, "guest does not answer, its sandbox is ended", "sandbox_id", b.SandboxID(), "error", cause)
	if err := g.backend.End(ctx, b); err != nil {
		return err
	}
	return providers.Lost.Errorf("the sandbox stopped responding and was ended")
}

// explain prefers what there is of a sandbox over the error of a link that ended.
func (g *Guests[B]) explain(ctx context.Context, id string, cause error) error {
	now, err := g.backend.Inspect(ctx, id)
	if err != nil {
		return err
	}
	if err := now.Usable(); err != nil {
		return err
	}
	return cause
}

// watch forgets a link that ended, and questions one that is quiet.
func (g *Guests[B]) watch(ctx context.Context, l *Link) {
	defer g.links.drop(l.id, l)
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	for {
		select {
		case <-l.Inside.Done():
			return
		case <-tick.C:
			if !l.answers(ctx, silence) && !l.ended() && !g.excused(ctx, l) {
				return
			}
		}
	}
}

// excused decides over a link whose guest is silent. True means leave it, because the backend cannot be asked.
// Otherwise the link is done with, and a guest that stays silent over a new one loses its sandbox.
func (g *Guests[B]) excused(ctx context.Context, l *Link) bool {
	ctx, stop := g.life.Own(ctx, endTime)
	defer stop()
	err := g.backend.Change(ctx, l.id, func(b B) error {
		g.links.drop(l.id, l)
		_, err := g.Link(ctx, b)
		return err
	})
	return err != nil && providers.AsError(err).Class == providers.Unavailable && !l.ended()
}
