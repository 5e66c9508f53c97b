package docker

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/docker/docker/api/types/container"

	"sandyard/providers"
	"sandyard/providers/envd"
)

const (
	// silence is how long a guest may leave a question unanswered.
	silence = 2 * time.Second
	// quick is how long an existing link gets to prove itself, or its end, before the engine is asked.
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

// takenOver says that the link ended although neither we nor the engine ended it: the guest now talks to another
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
	err := p.change(ctx, id, func(found resource) error {
		var err error
		l, err = p.link(ctx, found)
		return err
	})
	return l, err
}

// link returns the link of a running sandbox, making it where there is none. The caller holds the sandbox's lock.
//
// A guest that greets nobody under a running container is out of order, or beset by the code it guards: after a second
// attempt over a fresh attachment the container is killed, so that nothing goes on unwatched.
func (p *Provider) link(ctx context.Context, found resource) (*link, error) {
	if err := found.usable(); err != nil {
		return nil, err
	}
	if l := p.links.get(found.id); l != nil {
		return l, nil
	}
	err := p.attachAndGreet(ctx, found)
	if err != nil && ctx.Err() == nil {
		err = p.attachAndGreet(ctx, found)
	}
	if err == nil {
		if l := p.links.get(found.id); l != nil {
			return l, nil
		}
		return nil, providers.Errorf(providers.Unavailable, "the link to the sandbox ended at once")
	}
	if ctx.Err() != nil {
		return nil, err
	}
	return nil, p.giveUp(ctx, found.id, err)
}

func (p *Provider) attachAndGreet(ctx context.Context, found resource) error {
	raw, err := p.attach(ctx, found.ref)
	if err != nil {
		return err
	}
	return p.greet(ctx, found, raw, silence)
}

// giveUp kills a container whose guest did not answer, unless the engine tells a better reason.
func (p *Provider) giveUp(ctx context.Context, id string, cause error) error {
	now, err := p.inspect(ctx, id)
	if err != nil {
		return err
	}
	if err := now.usable(); err != nil {
		return err
	}
	if providers.AsError(cause).Class != providers.Lost {
		return cause
	}
	p.cfg.Logger.WarnContext(ctx, "guest does not answer, killing its container", "sandbox_id", id, "error", cause)
	if err := p.api.ContainerKill(ctx, now.ref, "KILL"); err != nil {
		return translate(err, "kill a sandbox that does not answer")
	}
	return providers.Errorf(providers.Lost, "the sandbox stopped answering and was ended")
}

func (p *Provider) attach(ctx context.Context, ref string) (*stream, error) {
	attached, err := p.api.ContainerAttach(ctx, ref, container.AttachOptions{Stream: true, Stdin: true, Stdout: true, Stderr: true})
	if err != nil {
		return nil, translate(err, "attach to the container")
	}
	return &stream{attached: attached}, nil
}

// greet begins the conversation over raw, which it owns from here, and keeps the link.
func (p *Provider) greet(ctx context.Context, found resource, raw *stream, patience time.Duration) error {
	inside, err := p.converse(ctx, raw, patience)
	if err != nil {
		return err
	}
	return p.hold(ctx, found.id, inside, raw)
}

// converse begins the conversation over raw, which it closes when that fails.
func (p *Provider) converse(ctx context.Context, raw *stream, patience time.Duration) (*envd.Sandbox, error) {
	waiting, stop := context.WithTimeout(ctx, patience)
	defer stop()
	inside, err := envd.Attach(waiting, raw, envd.Options{User: userName, Log: p.cfg.Logger})
	if err != nil {
		_ = raw.Close()
		if waiting.Err() != nil && ctx.Err() == nil {
			return nil, providers.Errorf(providers.Lost, "the sandbox's guest did not answer within %s (%q): %w", patience, raw.lastWords(), err)
		}
		return nil, providers.Errorf(providers.AsError(err).Class, "greet the sandbox's guest (%q): %w", raw.lastWords(), err)
	}
	return inside, nil
}

// hold keeps a conversation as the link of sandbox id.
func (p *Provider) hold(ctx context.Context, id string, inside *envd.Sandbox, raw *stream) error {
	l := &link{id: id, inside: inside, raw: raw}
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

// excused decides over a link whose guest is silent. True means leave it, because the engine cannot be asked.
// Otherwise the link is done with, and a guest that stays silent over a new one loses its container.
func (p *Provider) excused(ctx context.Context, l *link) bool {
	ctx, stop := context.WithTimeout(ctx, removeTimeout)
	defer stop()
	err := p.change(ctx, l.id, func(found resource) error {
		p.links.drop(l.id, l)
		_, err := p.link(ctx, found)
		return err
	})
	return err != nil && providers.AsError(err).Class == providers.Unavailable && !l.ended()
}
