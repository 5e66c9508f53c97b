// Package guestconn keeps the conversations of a worker with the guests of its sandboxes: one link per sandbox, calls
// that outlive a link, guests that fall silent, and pauses that stop the clocks of commands. Every provider whose
// sandboxes hold a guest of ours stands on it.
package guestconn

import (
	"context"
	"io"
	"log/slog"
	"sync"
	"time"

	"sandyard/providers"
	"sandyard/providers/envd"
)

// Body is the resource of one sandbox as its provider finds it.
type Body interface {
	// SandboxID is ours.
	SandboxID() string
	// Usable is nil for a running sandbox, and else the error that says what it is: paused, lost or busy.
	Usable() error
}

// Stream is the guest's standard input and output as one connection. Closing it leaves the guest alone.
type Stream interface {
	io.ReadWriteCloser
	// Torn says that the other side ended it before we closed it.
	Torn() bool
	// LastWords is the end of what the guest wrote to its standard error.
	LastWords() string
}

// Backend is what differs between providers.
type Backend[B Body] interface {
	// Change calls do with the resource of a sandbox while nobody else changes it.
	Change(ctx context.Context, id string, do func(B) error) error
	// Inspect finds the resource of a sandbox.
	Inspect(ctx context.Context, id string) (B, error)
	// Attach connects to the guest of a running sandbox.
	Attach(ctx context.Context, b B) (Stream, error)
	// Settle waits until the end of a sandbox that hung up on us shows when it is inspected.
	Settle(ctx context.Context, b B)
	// End kills a sandbox whose guest does not answer.
	End(ctx context.Context, b B) error
}

// Guests are the guests that one worker talks to. Close ends the conversations.
type Guests[B Body] struct {
	backend Backend[B]
	user    string
	out     providers.Outbound
	log     *slog.Logger
	links   links
	life    Life
	watches sync.WaitGroup
}

// New returns an empty set. User is what commands may call the sandboxes' user; out serves the connections that the
// sandboxes ask for, where it is not nil.
func New[B Body](backend Backend[B], user string, out providers.Outbound, log *slog.Logger) *Guests[B] {
	return &Guests[B]{backend: backend, user: user, out: out, log: log, life: NewLife()}
}

// Close lets go of every guest, and gives up what is asked of the backend about silent ones. None can be held
// afterwards.
func (g *Guests[B]) Close() {
	g.life.End()
	g.links.closeAll()
	g.watches.Wait()
}

// Drop lets go of a sandbox's guest: of one that is paused nobody answers, and whoever waits for it must not take that
// for a death.
func (g *Guests[B]) Drop(id string) { g.links.drop(id, nil) }

// Greet begins the conversation with a guest over raw, which it owns from here, and holds it.
func (g *Guests[B]) Greet(ctx context.Context, id string, raw Stream, patience time.Duration) error {
	inside, err := g.Converse(ctx, raw, patience)
	if err != nil {
		return err
	}
	l := &Link{Inside: inside, id: id, raw: raw}
	l.heard.Store(time.Now().UnixNano()) // it has answered our hello
	return g.hold(ctx, l)
}

// Converse begins a conversation over raw, which it closes when that fails.
func (g *Guests[B]) Converse(ctx context.Context, raw Stream, patience time.Duration) (*envd.Sandbox, error) {
	waiting, stop := context.WithTimeout(ctx, patience)
	defer stop()
	inside, err := envd.Attach(waiting, raw, envd.Options{User: g.user, Log: g.log})
	if err == nil {
		return inside, nil
	}
	_ = raw.Close()
	if waiting.Err() != nil && ctx.Err() == nil {
		return nil, providers.Lost.Errorf(
			"the sandbox's guest did not answer within %s, last output %q: %w",
			patience,
			raw.LastWords(),
			err,
		)
	}
	return nil, providers.AsError(
		err,
	).Class.Errorf(
		"connect to the sandbox's guest, last output %q: %w",
		raw.LastWords(),
		err,
	)
}

// Hold keeps a conversation as the link of sandbox id.
func (g *Guests[B]) Hold(ctx context.Context, id string, inside *envd.Sandbox, raw Stream) error {
	return g.hold(ctx, &Link{Inside: inside, id: id, raw: raw})
}

func (g *Guests[B]) hold(ctx context.Context, l *Link) error {
	held := g.links.put(l, func() {
		g.watches.Go(func() { g.watch(context.WithoutCancel(ctx), l) }) // for as long as the link, which Close ends
		if g.out != nil {
			g.watches.Go(func() { g.out.Serve(l.id, l.Inside.AcceptStream) }) // likewise
		}
	})
	if !held {
		l.close()
		return providers.Unavailable.Errorf("the worker is stopping; try again")
	}
	return nil
}
