package faultproxy

import (
	"net"
	"sync"
	"sync/atomic"
)

// line is one client's connection through the proxy.
type line struct {
	client, server net.Conn
	deaf           atomic.Bool // what the server says is dropped
	hanging        atomic.Bool
	once           sync.Once
	over           chan struct{}
}

func (l *line) cut() {
	l.once.Do(func() {
		close(l.over)
		_ = l.client.Close()
		_ = l.server.Close()
	})
}

func (l *line) hangs() bool { return l.hanging.Load() }

// calls carries what the client says, message by message, until the connection or the test's patience ends.
func (l *line) calls(s splitter, ask func(Call) Fault) {
	var held, call []byte // read and not taken apart; taken apart and not sent
	buf := make([]byte, 64<<10)
	for {
		n, err := l.client.Read(buf)
		if err != nil {
			return
		}
		held = append(held, buf[:n]...)
		for {
			n, what := s.next(held)
			if n == 0 {
				break
			}
			call, held = append(call, held[:n]...), held[n:]
			if what == nil {
				continue
			}
			if !l.send(call, ask(*what)) {
				return
			}
			call = nil
		}
	}
}

// send hands a call to the server, as the fault says. It answers false when the line is at its end.
func (l *line) send(call []byte, f Fault) bool {
	switch f {
	case CutBefore:
		return false
	case Hang:
		l.wait()
		return false
	case CutAfter, HangAfter:
		l.deaf.Store(true)
	case None:
	}
	if _, err := l.server.Write(call); err != nil || f == None {
		return err == nil
	}
	if f == CutAfter { // the server carries out what it has, and then finds the end
		if half, ok := l.server.(interface{ CloseWrite() error }); ok {
			_ = half.CloseWrite()
		}
		<-l.over
		return false
	}
	l.wait()
	return false
}

func (l *line) wait() {
	l.hanging.Store(true)
	<-l.over
}

// answers carries what the server says. When the server has no more to say, the line is at its end.
func (l *line) answers() {
	defer func() {
		if !l.hanging.Load() {
			l.cut()
		}
	}()
	buf := make([]byte, 64<<10)
	for {
		n, err := l.server.Read(buf)
		if err != nil {
			return
		}
		if l.deaf.Load() {
			continue
		}
		if _, err := l.client.Write(buf[:n]); err != nil {
			return
		}
	}
}
