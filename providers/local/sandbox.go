package local

import (
	"context"
	"net"

	"sandyard/providers"
	"sandyard/providers/envd"
)

// attempts is how often one call is begun over a new link when the link ends under it.
const attempts = 3

// sandbox is one running sandbox to a caller. The link under it may be replaced between and during calls.
type sandbox struct {
	p  *Provider
	id string
}

// Open implements providers.Provider.
func (p *Provider) Open(ctx context.Context, id string) (providers.Sandbox, error) {
	if l := p.links.get(id); l != nil && l.answers(ctx, quick) {
		return &sandbox{p: p, id: id}, nil
	}
	err := p.change(ctx, id, func(b box) error {
		if err := b.usable(); err != nil {
			return err
		}
		if l := p.links.get(id); l != nil && !l.answers(ctx, silence) && ctx.Err() == nil {
			p.links.drop(id, l)
		}
		_, err := p.link(ctx, b)
		return err
	})
	if err != nil {
		return nil, err
	}
	return &sandbox{p: p, id: id}, nil
}

// via runs one call over the sandbox's link. When the link ends under it, the sandbox is looked at: a clean
// end of the stream alone proves nothing. A call that may be repeated is then begun again over a new link.
func via[T any](ctx context.Context, s *sandbox, repeat bool, call func(*envd.Sandbox) (T, error)) (T, error) {
	for n := 1; ; n++ {
		l, err := s.p.reach(ctx, s.id)
		if err != nil {
			var none T
			return none, err
		}
		value, err := call(l.inside)
		if err == nil || providers.AsError(err).Class != providers.Unavailable || !l.ends(ctx) {
			return value, err
		}
		takenOver := l.takenOver()
		s.p.links.drop(s.id, l)
		if !repeat || n == attempts || takenOver {
			return value, s.p.explain(s.id, err)
		}
	}
}

// explain prefers what there is of a sandbox over the error of a link that ended.
func (p *Provider) explain(id string, cause error) error {
	now, err := p.inspect(id)
	if err != nil {
		return err
	}
	if err := now.usable(); err != nil {
		return err
	}
	return cause
}

// Run implements providers.Commands. A pause in between through this provider does not count towards cmd.Timeout: the
// link ends with the pause, and the command is joined again, with that much more time, when the sandbox goes on.
func (s *sandbox) Run(ctx context.Context, cmd providers.Command) (providers.Result, error) {
	limit, before, begun := cmd.Timeout, s.p.pauses.total(s.id), false
	for {
		if limit > 0 {
			cmd.Timeout = limit + s.p.pauses.total(s.id) - before
		}
		res, err := via(ctx, s, true, func(in *envd.Sandbox) (providers.Result, error) {
			begun = true
			return in.Run(ctx, cmd)
		})
		paused := err != nil && providers.AsError(err).Class == providers.Paused
		if !paused || !begun || !s.p.pauses.await(ctx, s.id) {
			return res, err
		}
	}
}

func (s *sandbox) Kill(ctx context.Context, name string) error {
	return s.do(ctx, true, func(in *envd.Sandbox) error { return in.Kill(ctx, name) })
}

func (s *sandbox) Forget(ctx context.Context, name string) error {
	return s.do(ctx, true, func(in *envd.Sandbox) error { return in.Forget(ctx, name) })
}

func (s *sandbox) ReadFile(ctx context.Context, path string, limit int64) ([]byte, error) {
	return via(ctx, s, true, func(in *envd.Sandbox) ([]byte, error) { return in.ReadFile(ctx, path, limit) })
}

func (s *sandbox) WriteFile(ctx context.Context, path string, data []byte, mode uint32) (providers.FileInfo, error) {
	return via(ctx, s, true, func(in *envd.Sandbox) (providers.FileInfo, error) {
		return in.WriteFile(ctx, path, data, mode)
	})
}

func (s *sandbox) Stat(ctx context.Context, path string) (providers.FileInfo, error) {
	return via(ctx, s, true, func(in *envd.Sandbox) (providers.FileInfo, error) { return in.Stat(ctx, path) })
}

func (s *sandbox) ListDir(ctx context.Context, path string, depth int) ([]providers.FileInfo, error) {
	return via(ctx, s, true, func(in *envd.Sandbox) ([]providers.FileInfo, error) {
		return in.ListDir(ctx, path, depth)
	})
}

func (s *sandbox) MakeDir(ctx context.Context, path string) (providers.FileInfo, error) {
	return via(ctx, s, true, func(in *envd.Sandbox) (providers.FileInfo, error) { return in.MakeDir(ctx, path) })
}

// Move is not repeated: after a first one that happened, a second finds nothing to move.
func (s *sandbox) Move(ctx context.Context, from, to string) (providers.FileInfo, error) {
	return via(ctx, s, false, func(in *envd.Sandbox) (providers.FileInfo, error) { return in.Move(ctx, from, to) })
}

// Remove is not repeated, for the same reason as Move.
func (s *sandbox) Remove(ctx context.Context, path string) error {
	return s.do(ctx, false, func(in *envd.Sandbox) error { return in.Remove(ctx, path) })
}

// DialPort connects to a TCP port that a program in the sandbox listens on, over the link: it takes no network.
func (s *sandbox) DialPort(ctx context.Context, port uint16) (net.Conn, error) {
	return via(ctx, s, true, func(in *envd.Sandbox) (net.Conn, error) { return in.DialPort(ctx, port) })
}

func (s *sandbox) do(ctx context.Context, repeat bool, call func(*envd.Sandbox) error) error {
	_, err := via(ctx, s, repeat, func(in *envd.Sandbox) (struct{}, error) { return struct{}{}, call(in) })
	return err
}

// DialGuest opens a stream to the guest's own HTTP handler.
func (s *sandbox) DialGuest(ctx context.Context) (net.Conn, error) {
	return via(ctx, s, true, func(in *envd.Sandbox) (net.Conn, error) { return in.DialGuest(ctx) })
}
