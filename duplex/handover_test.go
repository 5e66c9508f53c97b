package duplex_test

import (
	"errors"
	"io"
	"net"
	"testing"

	"sandyard/duplex"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestHandover: a connection is handed over to who accepts, and closed where nobody will.
func TestHandover(t *testing.T) {
	addr := &net.TCPAddr{Port: 7}
	for name, c := range map[string]struct {
		meanwhile func(*duplex.Handover) // while the connection is handed over
		taken     bool
	}{
		"accepted":        {meanwhile: func(h *duplex.Handover) { _, _ = h.Accept() }, taken: true},
		"closed":          {meanwhile: func(h *duplex.Handover) { _ = h.Close() }},
		"closed and late": {meanwhile: func(h *duplex.Handover) { _, _ = h.Close(), h.Close() }},
	} {
		t.Run(name, func(t *testing.T) {
			h := duplex.NewHandover(addr)
			if h.Addr() != addr {
				t.Errorf("the address is %v", h.Addr())
			}
			ours, theirs := net.Pipe()
			defer ours.Close()
			defer theirs.Close()
			handed := make(chan bool)
			go func() { handed <- h.Hand(theirs) }()
			c.meanwhile(h)
			if taken := <-handed; taken != c.taken {
				t.Fatalf("handed over: %v, want %v", taken, c.taken)
			}
			if c.taken {
				go func() { _, _ = io.WriteString(theirs, "x") }()
			}
			_, err := ours.Read(make([]byte, 1))
			if (err == nil) != c.taken {
				t.Errorf("the connection says %v", err)
			}
			_ = h.Close()
			if _, err := h.Accept(); !errors.Is(err, net.ErrClosed) {
				t.Errorf("after its close the listener says %v", err)
			}
		})
	}
}
