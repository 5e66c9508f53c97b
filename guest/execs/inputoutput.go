package execs

import (
	"context"
	"maps"
	"slices"

	"sandyard/guest/protocol"
)

// Output is what is asked how it stands and for bytes: a command, or the part of one that is the output of one input.
type Output interface {
	// Read returns at most limit bytes of a stream from offset on, and where they begin. It waits for the first of them.
	Read(ctx context.Context, stream Stream, offset int64, limit int) (b []byte, begin int64, info protocol.ExecInfo)
	// Await reports at the end, or when ctx ends.
	Await(ctx context.Context) protocol.ExecInfo
}

// Output returns the command with this name, or the part of one that was given a fresh input with this id.
func (r *Registry) Output(ctx context.Context, name string) (Output, error) {
	e, err := r.Named(name)
	if err == nil {
		return e, nil
	}
	r.mu.Lock()
	all := append(slices.Collect(maps.Keys(r.live)), r.ended...)
	r.mu.Unlock()
	for _, e := range all {
		if f := e.fresh(ctx, name); f != nil {
			return &part{e, name, f}, nil
		}
	}
	return nil, err
}

// fresh returns the fresh input of this id, if the command was given it.
func (e *Exec) fresh(ctx context.Context, id string) *feed {
	if !e.Command.Background || e.stdin.lock(ctx) != nil {
		return nil
	}
	defer e.stdin.unlock()
	if f := e.stdin.feeds[id]; f != nil && f.fresh {
		return f
	}
	return nil
}

// part is what a command writes from an input until it is settled.
type part struct {
	exec *Exec
	id   string
	feed *feed
}

// Read implements Output; offsets count from the input.
func (p *part) Read(
	ctx context.Context,
	stream Stream,
	offset int64,
	limit int,
) (b []byte, begin int64, info protocol.ExecInfo) {
	e, base := p.exec, p.feed.before[stream]
	for {
		over := e.over() || ctx.Err() != nil
		e.mu.Lock()
		over = over || p.feed.settled
		rest, at := e.spools[stream].from(base + offset)
		end := p.end(stream)
		changed := e.changed
		e.mu.Unlock()
		rest = rest[:max(0, min(int64(len(rest)), end-at, int64(limit)))]
		if len(rest) > 0 || over {
			return rest, min(at, max(end, base+offset)) - base, p.info()
		}
		select {
		case <-changed:
		case <-e.done:
		case <-ctx.Done():
		}
	}
}

// Await implements Output.
func (p *part) Await(ctx context.Context) protocol.ExecInfo {
	for {
		p.exec.mu.Lock()
		over, changed := p.feed.settled || ctx.Err() != nil, p.exec.changed
		p.exec.mu.Unlock()
		if over || p.exec.over() {
			return p.info()
		}
		select {
		case <-changed:
		case <-p.exec.done:
		case <-ctx.Done():
		}
	}
}

// end is where the part ends as yet. The caller holds the command's lock.
func (p *part) end(stream Stream) int64 {
	if p.feed.settled {
		return p.feed.after[stream]
	}
	return p.exec.spools[stream].total
}

func (p *part) info() protocol.ExecInfo {
	info := p.exec.Info()
	p.exec.mu.Lock()
	defer p.exec.mu.Unlock()
	info.Name, info.AgeMs, info.DurationMs = p.id, since(p.feed.since), since(p.feed.since)
	info.Running = info.Running && !p.feed.settled
	info.StdoutBytes, info.StderrBytes = p.end(Stdout)-p.feed.before[Stdout], p.end(Stderr)-p.feed.before[Stderr]
	return info
}
