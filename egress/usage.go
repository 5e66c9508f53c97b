package egress

import (
	"maps"
	"slices"
	"time"
)

// Usage is what a sandbox has used since it was last reported.
type Usage struct {
	Sandbox     string
	Connections int64
	Denied      int64
	Sent        int64 // bytes, to the outside
	Received    int64
	Denials     []Denial // by destination, as many as are kept
}

// Denial is a kind of connection that was refused, and how often.
type Denial struct {
	Target string // host:port; empty where it could not be read
	Reason string // one of the Reason constants
	Count  int64
	First  time.Time
	Last   time.Time
}

// Report hands what was used since the last report to write, and keeps it for the next one if that fails.
func (s *Server) Report(write func([]Usage) error) error {
	var used []Usage
	boxes := s.all()
	for _, b := range boxes {
		if u, any := b.takeUsage(); any {
			used = append(used, u)
		}
	}
	if len(used) == 0 {
		s.forget(boxes)
		return nil
	}
	if err := write(used); err != nil {
		s.restore(used)
		return err
	}
	s.forget(boxes)
	return nil
}

func (s *Server) all() []*box {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Values(s.boxes))
}

// forget drops reported boxes that have no link any more.
func (s *Server) forget(boxes []*box) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, b := range boxes {
		if b.links == 0 && s.boxes[b.sandbox] == b && b.quiet() {
			delete(s.boxes, b.sandbox)
		}
	}
}

func (b *box) quiet() bool {
	b.notes.Lock()
	defer b.notes.Unlock()
	return b.connections.Load()|b.denied.Load()|b.sent.Load()|b.received.Load() == 0 && len(b.denials) == 0
}

func (s *Server) restore(used []Usage) {
	for _, u := range used {
		b := s.enter(u.Sandbox)
		b.connections.Add(u.Connections)
		b.denied.Add(u.Denied)
		b.sent.Add(u.Sent)
		b.received.Add(u.Received)
		b.notes.Lock()
		for _, d := range u.Denials {
			b.note(d)
		}
		b.notes.Unlock()
		s.leave(b)
	}
}

func (b *box) takeUsage() (u Usage, any bool) {
	u = Usage{
		Sandbox: b.sandbox, Connections: b.connections.Swap(0), Denied: b.denied.Swap(0),
		Sent: b.sent.Swap(0), Received: b.received.Swap(0),
	}
	b.notes.Lock()
	defer b.notes.Unlock()
	for _, d := range b.denials {
		u.Denials = append(u.Denials, *d)
	}
	clear(b.denials)
	return u, u.Connections|u.Denied|u.Sent|u.Received != 0 || len(u.Denials) > 0
}

// Totals are counts over all sandboxes since the start.
type Totals struct {
	Open        int64 // connections now
	Connections int64
	Denied      int64
	Sent        int64
	Received    int64
}

// Totals returns the counts.
func (s *Server) Totals() Totals {
	t := &s.totals
	return Totals{t.open.Load(), t.connections.Load(), t.denied.Load(), t.sent.Load(), t.received.Load()}
}
