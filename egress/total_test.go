package egress_test

import (
	"context"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"sandyard/egress"
	"sandyard/guest/tunnel"
	"sandyard/netguard"
)

// asks serves a sandbox until the test ends, and returns what asks for connections as its guest does.
func asks(t *testing.T, s *egress.Server, sandbox string) func(target string) (*tunnel.Conn, error) {
	t.Helper()
	streams, over, ended := make(chan net.Conn), make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		s.Serve(sandbox, func() (net.Conn, error) {
			select {
			case stream := <-streams:
				return stream, nil
			case <-over:
				return nil, net.ErrClosed
			}
		})
	}()
	t.Cleanup(func() {
		close(over)
		<-ended
	})
	return func(target string) (*tunnel.Conn, error) {
		ours, theirs := pair(t)
		streams <- theirs
		return tunnel.Ask(ours, target)
	}
}

// pair is a connection with a buffer, as a link's streams have.
func pair(t *testing.T) (ours, theirs net.Conn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if ours, err = net.Dial("tcp", l.Addr().String()); err != nil {
		t.Fatal(err)
	}
	if theirs, err = l.Accept(); err != nil {
		t.Fatal(err)
	}
	return ours, theirs
}

// TestASandboxWithManyConnectionsLeavesOthersSome: where the worker makes no more, the one that has most loses the one over which
// nothing was said for longest.
func TestASandboxWithManyConnectionsLeavesOthersSome(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				_, _ = io.Copy(c, c)
				_ = c.Close()
			}()
		}
	}()
	const total = 8
	s := egress.New(egress.Config{
		Guard: netguard.Rules{Allow: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}}, Connections: 64, Total: total, Idle: time.Minute,
		Policy: func(context.Context, string) (egress.Policy, error) {
			return egress.Policy{Allow: []string{"127.0.0.0/8"}}, nil
		},
		Log: slog.New(slog.DiscardHandler),
	})
	open := func(ask func(string) (*tunnel.Conn, error)) *tunnel.Conn {
		t.Helper()
		c, err := ask(l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
	speak := func(c *tunnel.Conn) error {
		_, err := c.Write([]byte("x"))
		if err == nil {
			_, err = io.ReadFull(c, make([]byte, 1))
		}
		return err
	}
	greedy, modest := asks(t, s, "greedy"), asks(t, s, "modest")
	var many []*tunnel.Conn
	for range total {
		many = append(many, open(greedy))
	}
	for _, c := range many[1:] {
		if err := speak(c); err != nil {
			t.Fatal(err)
		}
	}
	_, err = greedy(l.Addr().String())
	if err == nil || !strings.Contains(err.Error(), "worker") {
		t.Errorf("who has all connections of the worker and wants more hears: %v", err)
	}
	if err := speak(open(modest)); err != nil {
		t.Errorf("who has none gets one that breaks: %v", err)
	}
	if err := speak(many[0]); err == nil {
		t.Error("the one over which nothing was said stands")
	}
	for _, c := range many[1:] {
		if err := speak(c); err != nil {
			t.Errorf("another one was cut: %v", err)
		}
	}
}
