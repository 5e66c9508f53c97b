package link

import (
	"bytes"
	"errors"
	"io"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/yamux"
)

// hostile is a guest whose multiplexer is handed to play, and a worker's side of it.
func hostile(t *testing.T, play func(mux *yamux.Session)) *Streams {
	t.Helper()
	worker := serve(t, func(c Carrier) {
		conf := muxConfig(guestWindow, Linger)
		conf.AcceptBacklog = 4 * backlog // it keeps to no bound of its own, either
		mux, err := yamux.Server(c, conf)
		if err != nil {
			t.Error(err)
			return
		}
		defer mux.Close()
		play(mux)
		<-mux.CloseChan()
	})
	session, err := OpenStreams(dial(t, worker), 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = session.Close() })
	return session
}

// answers waits until the worker can still exchange something with a guest that echoes.
func answers(t *testing.T, session *Streams) {
	t.Helper()
	if got := through(t, session, bytes.NewReader([]byte("hello"))); string(got) != "hello" {
		t.Errorf("the link answers %q", got)
	}
}

func echoAll(mux *yamux.Session) {
	for {
		stream, err := mux.AcceptStream()
		if err != nil {
			return
		}
		go func() {
			_, _ = io.Copy(stream, stream)
			_ = stream.Close()
		}()
	}
}

// flood opens a stream, waits for a byte where it is to be accepted first, and sends n bytes. It returns what ends the stream.
func flood(mux *yamux.Session, accepted bool, n int) error {
	stream, err := mux.OpenStream()
	if err != nil {
		return err
	}
	defer stream.Close()
	if accepted {
		if _, err := stream.Read(make([]byte, 1)); err != nil {
			return err
		}
	}
	if _, err := stream.Write(make([]byte, n)); err != nil {
		return err
	}
	_, err = stream.Read(make([]byte, 1))
	return err
}

// held is what the streams of a link hold by their own count.
func (s *Streams) held() int {
	s.wire.inbox.mu.Lock()
	defer s.wire.inbox.mu.Unlock()
	return s.wire.inbox.held
}

func TestStreamsThatNobodyAcceptsHoldLittle(t *testing.T) {
	t.Parallel()
	var floods sync.WaitGroup
	const tried = 2 * backlog
	floods.Add(tried)
	session := hostile(t, func(mux *yamux.Session) {
		go echoAll(mux)
		for range tried {
			go func() {
				defer floods.Done()
				if err := flood(mux, false, workerWindow); !errors.Is(err, yamux.ErrConnectionReset) {
					t.Errorf("a stream that nobody accepts took a window of bytes: %v", err)
				}
			}()
		}
	})
	floods.Wait()
	if n := session.held(); n > backlog*strangerHolds {
		t.Errorf("%d bytes are held", n)
	}
	answers(t, session)
}

// accept takes n streams, and tells the guest so.
func accept(t *testing.T, session *Streams, n int) (all []*Stream) {
	t.Helper()
	for range n {
		stream, err := session.Accept()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := stream.Write([]byte{1}); err != nil {
			t.Fatal(err)
		}
		all = append(all, stream)
	}
	return all
}

// TestStreamsThatNobodyReadsHoldNoMoreThanALinkMay: those are closed of which nobody reads, and the others go on.
func TestStreamsThatNobodyReadsHoldNoMoreThanALinkMay(t *testing.T) {
	t.Parallel()
	const unread = linkHolds/workerWindow + 8
	const much = 3 * linkHolds
	session := hostile(t, func(mux *yamux.Session) {
		go echoAll(mux)
		for range unread {
			go func() { _ = flood(mux, true, workerWindow) }()
		}
	})
	stuck := accept(t, session, unread)
	deadline := time.Now().Add(time.Minute)
	for session.held() < linkHolds-workerWindow {
		if time.Now().After(deadline) {
			t.Fatalf("only %d bytes came", session.held())
		}
		runtime.Gosched()
	}
	if got := through(t, session, io.LimitReader(zeros{}, much)); len(got) != much {
		t.Errorf("of what is read %d bytes came", len(got))
	}
	if n := session.held(); n > linkHolds {
		t.Errorf("%d bytes are held", n)
	}
	closed := 0
	for _, s := range stuck {
		if s.crowded.Load() {
			closed++
			if _, err := s.Read(make([]byte, 1)); !errors.Is(err, ErrCrowded) {
				t.Errorf("who reads from a stream that was closed for lack of room hears %v", err)
			}
		}
	}
	if closed == 0 || closed == unread {
		t.Errorf("%d of %d streams of which nobody reads were closed", closed, unread)
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

// TestClosedStreamsHoldNothing although the guest keeps them open, and goes on.
func TestClosedStreamsHoldNothing(t *testing.T) {
	t.Parallel()
	const many = 16
	session := hostile(t, func(mux *yamux.Session) {
		go echoAll(mux)
		for range many {
			go func() { _ = flood(mux, true, workerWindow) }()
		}
	})
	for _, stream := range accept(t, session, many) {
		if _, err := stream.Read(make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
		if err := stream.Close(); err != nil {
			t.Fatal(err)
		}
	}
	deadline := time.Now().Add(time.Minute)
	for session.held() > 0 {
		if time.Now().After(deadline) {
			t.Fatalf("%d bytes are held", session.held())
		}
		runtime.Gosched()
	}
	answers(t, session)
}

func TestAGuestThatOpensAStreamTwiceIsLeft(t *testing.T) {
	t.Parallel()
	for name, words := range map[string][]byte{
		"twice":       append(muxFrame(1, syn, 2, 0, ""), muxFrame(1, syn, 2, 0, "")...),
		"not its own": muxFrame(1, syn, 3, 0, ""),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			session, err := OpenStreams(dial(t, liar(t, true, words)), 0)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = session.Close() })
			select {
			case <-session.Done():
			case <-time.After(time.Minute):
				t.Error("the conversation goes on")
			}
		})
	}
}
