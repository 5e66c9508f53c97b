package guestconn

import (
	"context"
	"io"
	"net"
	"time"

	"sandyard/providers"
	"sandyard/providers/envd"
)

// attempts is how often one call is begun over a new link when the link ends under it.
const attempts = 3

// Sandbox is one running sandbox to a caller. The link under it may be replaced between and during calls.
type Sandbox[B Body] struct {
	g  *Guests[B]
	id string
}

// Open returns the running sandbox id, with a link that has answered within the last second.
func (g *Guests[B]) Open(ctx context.Context, id string) (providers.Sandbox, error) {
	if l := g.links.get(id); l != nil && (l.fresh() || l.answers(ctx, quick)) {
		return &Sandbox[B]{g, id}, nil
	}
	err := g.backend.Change(ctx, id, func(b B) error {
		if err := b.Usable(); err != nil {
			return err
		}
		if l := g.links.get(id); l != nil && !l.answers(ctx, silence) && ctx.Err() == nil {
			g.links.drop(id, l)
		}
		_, err := g.Link(ctx, b)
		return err
	})
	if err != nil {
		return nil, err
	}
	return &Sandbox[B]{g, id}, nil
}

// via runs one call over the sandbox's link. When the link ends under it, the backend is asked why: a clean end of the
// stream alone proves nothing. A call that may be repeated is then begun again over a new link: not where another
// worker took the guest meanwhile, but where it had done so before, which this one had yet to notice.
func via[T any, B Body](
	ctx context.Context,
	s *Sandbox[B],
	repeat bool,
	call func(*envd.Sandbox) (T, error),
) (T, error) {
	for n := 1; ; n++ {
		l, err := s.g.reach(ctx, s.id)
		if err != nil {
			var none T
			return none, err
		}
		began := time.Now()
		value, err := call(l.Inside)
		if err == nil {
			l.heard.Store(time.Now().UnixNano())
		}
		if err == nil || providers.AsError(err).Class != providers.Unavailable || !l.ends(ctx) {
			return value, err
		}
		takenOver := l.takenOver() && l.Inside.HeardSince(began)
		s.g.links.drop(s.id, l)
		if !repeat || n == attempts || takenOver {
			return value, s.g.explain(ctx, s.id, err)
		}
	}
}

// Run implements providers.Commands.
func (s *Sandbox[B]) Run(ctx context.Context, cmd providers.Command) (providers.Result, error) {
	return via(ctx, s, true, func(in *envd.Sandbox) (providers.Result, error) { return in.Run(ctx, cmd) })
}

// Kill implements providers.Commands.
func (s *Sandbox[B]) Kill(ctx context.Context, name string) error {
	return s.do(ctx, true, func(in *envd.Sandbox) error { return in.Kill(ctx, name) })
}

// Forget implements providers.Commands.
func (s *Sandbox[B]) Forget(ctx context.Context, name string) error {
	return s.do(ctx, true, func(in *envd.Sandbox) error { return in.Forget(ctx, name) })
}

// ReadFile implements providers.Files.
func (s *Sandbox[B]) ReadFile(ctx context.Context, path string, limit int64) ([]byte, error) {
	return via(ctx, s, true, func(in *envd.Sandbox) ([]byte, error) { return in.ReadFile(ctx, path, limit) })
}

// WriteFile implements providers.Files.
func (s *Sandbox[B]) WriteFile(ctx context.Context, path string, data []byte, mode uint32) (providers.FileInfo, error) {
	return via(ctx, s, true, func(in *envd.Sandbox) (providers.FileInfo, error) {
		return in.WriteFile(ctx, path, data, mode)
	})
}

// Stat implements providers.Files.
func (s *Sandbox[B]) Stat(ctx context.Context, path string) (providers.FileInfo, error) {
	return via(ctx, s, true, func(in *envd.Sandbox) (providers.FileInfo, error) { return in.Stat(ctx, path) })
}

// ListDir implements providers.Files.
func (s *Sandbox[B]) ListDir(ctx context.Context, path string, depth int) ([]providers.FileInfo, error) {
	return via(ctx, s, true, func(in *envd.Sandbox) ([]providers.FileInfo, error) {
		return in.ListDir(ctx, path, depth)
	})
}

// MakeDir implements providers.Files.
func (s *Sandbox[B]) MakeDir(ctx context.Context, path string) (providers.FileInfo, error) {
	return via(ctx, s, true, func(in *envd.Sandbox) (providers.FileInfo, error) { return in.MakeDir(ctx, path) })
}

// Move implements providers.Files. It is not repeated: after a first one that happened, a second finds nothing to move.
func (s *Sandbox[B]) Move(ctx context.Context, from, to string) (providers.FileInfo, error) {
	return via(ctx, s, false, func(in *envd.Sandbox) (providers.FileInfo, error) { return in.Move(ctx, from, to) })
}

// Remove implements providers.Files. It is not repeated, for the same reason as Move.
func (s *Sandbox[B]) Remove(ctx context.Context, path string) error {
	return s.do(ctx, false, func(in *envd.Sandbox) error { return in.Remove(ctx, path) })
}

// Start implements providers.Starter.
func (s *Sandbox[B]) Start(ctx context.Context, cmd providers.Command) error {
	return s.do(ctx, true, func(in *envd.Sandbox) error { return in.Start(ctx, cmd) })
}

// OpenFile implements providers.Streams.
func (s *Sandbox[B]) OpenFile(ctx context.Context, path string, offset, length int64) (providers.FileStream, error) {
	return via(ctx, s, true, func(in *envd.Sandbox) (providers.FileStream, error) {
		return in.OpenFile(ctx, path, offset, length)
	})
}

// SaveFile implements providers.Streams. It is not repeated: what r held is gone.
func (s *Sandbox[B]) SaveFile(
	ctx context.Context,
	path string,
	r io.Reader,
	size int64,
	mode uint32,
) (providers.FileInfo, error) {
	return via(ctx, s, false, func(in *envd.Sandbox) (providers.FileInfo, error) {
		return in.SaveFile(ctx, path, r, size, mode)
	})
}

// OpenTree implements providers.Streams.
func (s *Sandbox[B]) OpenTree(ctx context.Context, path string, zip bool) (io.ReadCloser, error) {
	return via(ctx, s, true, func(in *envd.Sandbox) (io.ReadCloser, error) { return in.OpenTree(ctx, path, zip) })
}

// SaveTree implements providers.Streams. It is not repeated, for the same reason as SaveFile.
func (s *Sandbox[B]) SaveTree(ctx context.Context, path string, r io.Reader) (providers.TreeReport, error) {
	return via(ctx, s, false, func(in *envd.Sandbox) (providers.TreeReport, error) { return in.SaveTree(ctx, path, r) })
}

// DialPort connects to a TCP port that a program in the sandbox listens on, over the link: it takes no network.
func (s *Sandbox[B]) DialPort(ctx context.Context, port uint16) (net.Conn, error) {
	return via(ctx, s, true, func(in *envd.Sandbox) (net.Conn, error) { return in.DialPort(ctx, port) })
}

// DialGuest opens a stream to the guest's own HTTP handler, which asks each call for the token.
func (s *Sandbox[B]) DialGuest(ctx context.Context, token string) (net.Conn, error) {
	return via(ctx, s, true, func(in *envd.Sandbox) (net.Conn, error) { return in.DialGuest(ctx, token) })
}

// SetNetwork implements providers.Networker.
func (s *Sandbox[B]) SetNetwork(ctx context.Context, on bool) error {
	return s.do(ctx, true, func(in *envd.Sandbox) error { return in.SetNetwork(ctx, on) })
}

func (s *Sandbox[B]) do(ctx context.Context, repeat bool, call func(*envd.Sandbox) error) error {
	_, err := via(ctx, s, repeat, func(in *envd.Sandbox) (struct{}, error) { return struct{}{}, call(in) })
	return err
}

// Watch implements providers.Watcher. It is not repeated: between two watches things happen unseen.
func (s *Sandbox[B]) Watch(
	ctx context.Context,
	path string,
	recursive bool,
	tell func(providers.FileEvent) error,
) error {
	return s.do(ctx, false, func(in *envd.Sandbox) error { return in.Watch(ctx, path, recursive, tell) })
}
