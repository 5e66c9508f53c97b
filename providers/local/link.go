package local

import (
	"context"
	"net"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"sandyard/providers"
	"sandyard/providers/envd"
	"sandyard/providers/local/keeper"
)

const (
	// silence is how long a guest may leave a question unanswered.
	silence = 2 * time.Second
	// quick is how long an existing link gets to prove itself, or its end, before the sandbox is looked at.
	quick = 300 * time.Millisecond
	// watchEvery is the time between questions to a guest nobody else talks to.
	watchEvery = 5 * time.Second
)

// link is one conversation with the guest of a sandbox.
type link struct {
	id     string
	inside *envd.Sandbox
	raw    *stream
	letGo  atomic.Bool // ended by this process
}

func (l *link) ended() bool {
	select {
	case <-l.inside.Done():
		return true
	default:
		return false
	}
}

// takenOver says that the link ended although neither we nor the sandbox ended it: the guest now talks to another
// worker. To take it back would only be answered in kind.
func (l *link) takenOver() bool { return !l.letGo.Load() && !l.raw.torn.Load() }

func (l *link) close() {
	if !l.ended() {
		l.letGo.Store(true)
	}
	_ = l.inside.Close()
	_ = l.raw.Close()
}

// ends waits a moment for the end of a link on which a call just failed: the failure comes a little before it.
func (l *link) ends(ctx context.Context) bool {
	timer := time.NewTimer(quick)
	defer timer.Stop()
	select {
	case <-l.inside.Done():
		return true
	case <-timer.C:
		return false
	case <-ctx.Done():
		return false
	}
}

func (l *link) answers(ctx context.Context, within time.Duration) bool {
	ctx, stop := context.WithTimeout(ctx, within)
	defer stop()
	return l.inside.Ping(ctx) == nil
}

// links holds the one link of every sandbox this process talks to.
type links struct {
	mu     sync.Mutex
	byID   map[string]*link
	closed bool
}

func (s *links) get(id string) *link {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.byID[id]
	if l == nil || l.ended() {
		return nil
	}
	return l
}

// put makes l the link of its sandbox. It answers false after closeAll.
func (s *links) put(l *link) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	if s.byID == nil {
		s.byID = make(map[string]*link)
	}
	s.byID[l.id] = l
	return true
}

// drop closes and forgets the link of id: only if it is l, or whichever it is when l is nil.
func (s *links) drop(id string, l *link) {
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
func (p *Provider) reach(ctx context.Context, id string) (*link, error) {
	if l := p.links.get(id); l != nil {
		return l, nil
	}
	var l *link
	err := p.change(ctx, id, func(b box) error {
		var err error
		l, err = p.link(ctx, b)
		return err
	})
	return l, err
}

// link returns the link of a running sandbox, making it where there is none. The caller holds the sandbox's lock.
//
// A guest that greets nobody in a running sandbox is out of order, or beset by the code it guards: after a second
// attempt the sandbox is ended, so that nothing goes on unwatched.
func (p *Provider) link(ctx context.Context, b box) (*link, error) {
	if err := b.usable(); err != nil {
		return nil, err
	}
	if l := p.links.get(b.id); l != nil {
		return l, nil
	}
	err := p.greet(ctx, b, silence)
	if err != nil && ctx.Err() == nil {
		err = p.greet(ctx, b, silence)
	}
	if err == nil {
		if l := p.links.get(b.id); l != nil {
			return l, nil
		}
		return nil, providers.Errorf(providers.Unavailable, "the link to the sandbox ended at once")
	}
	if ctx.Err() != nil {
		return nil, err
	}
	return nil, p.giveUp(ctx, b, err)
}

// giveUp kills a sandbox whose guest did not answer, unless there is a better reason.
func (p *Provider) giveUp(ctx context.Context, b box, cause error) error {
	if providers.AsError(cause).Class != providers.Lost {
		awaitEnd(ctx, b)
	}
	now, err := p.inspect(b.id)
	if err != nil {
		return err
	}
	if err := now.usable(); err != nil {
		return err
	}
	if providers.AsError(cause).Class != providers.Lost {
		return cause
	}
	p.cfg.Logger.WarnContext(ctx, "guest does not answer, ending its sandbox", "sandbox_id", b.id, "error", cause)
	if err := p.end(ctx, b); err != nil {
		return err
	}
	return providers.Errorf(providers.Lost, "the sandbox stopped answering and was ended")
}

// awaitEnd waits a moment for the end of a keeper that hangs up on us: its socket goes a little before it.
func awaitEnd(ctx context.Context, b box) {
	ctx, stop := context.WithTimeout(ctx, silence)
	defer stop()
	for {
		if _, alive := keeper.Alive(b.dir); !alive {
			return
		}
		select {
		case <-time.After(endPoll):
		case <-ctx.Done():
			return
		}
	}
}

// attach connects to the keeper.
func attach(b box) (*stream, error) {
	var conn *net.UnixConn
	err := keeper.WithShortPath(b.dir, func(short string) error {
		var err error
		conn, err = net.DialUnix("unix", nil, &net.UnixAddr{Name: filepath.Join(short, keeper.SocketFile), Net: "unix"})
		return err
	})
	if err != nil {
		return nil, providers.Errorf(providers.Unavailable, "attach to the sandbox: %w", err)
	}
	return &stream{conn: conn}, nil
}

// greet attaches, begins the conversation and keeps the link.
func (p *Provider) greet(ctx context.Context, b box, patience time.Duration) error {
	raw, err := attach(b)
	if err != nil {
		return err
	}
	waiting, stop := context.WithTimeout(ctx, patience)
	defer stop()
	inside, err := envd.Attach(waiting, raw, envd.Options{User: userName, Log: p.cfg.Logger})
	if err != nil {
		_ = raw.Close()
		if waiting.Err() != nil && ctx.Err() == nil {
			return providers.Errorf(providers.Lost, "the sandbox's guest did not answer within %s: %w", patience, err)
		}
		return providers.Errorf(providers.AsError(err).Class, "greet the sandbox's guest (%q): %w", b.lastWords(), err)
	}
	l := &link{id: b.id, inside: inside, raw: raw}
	if !p.links.put(l) {
		l.close()
		return providers.Errorf(providers.Unavailable, "the provider is closing")
	}
	// The watch lives as long as the link, which closing the provider ends.
	p.work.Go(func() { p.watch(context.WithoutCancel(ctx), l) })
	return nil
}

// watch forgets a link that ended, and questions one that is quiet.
func (p *Provider) watch(ctx context.Context, l *link) {
	defer p.links.drop(l.id, l)
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	for {
		select {
		case <-l.inside.Done():
			return
		case <-tick.C:
			if !l.answers(ctx, silence) && !l.ended() && !p.excused(ctx, l) {
				return
			}
		}
	}
}

// excused decides over a link whose guest is silent. True means leave it, because nothing can be said of the sandbox now.
// Otherwise the link is done with, and a guest that stays silent over a new one loses its sandbox.
func (p *Provider) excused(ctx context.Context, l *link) bool {
	ctx, stop := context.WithTimeout(ctx, removeTimeout)
	defer stop()
	err := p.change(ctx, l.id, func(b box) error {
		p.links.drop(l.id, l)
		_, err := p.link(ctx, b)
		return err
	})
	return err != nil && providers.AsError(err).Class == providers.Unavailable && !l.ended()
}
