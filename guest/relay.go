package guest

import (
	"io"
	"net"
	"sync"
	"sync/atomic"

	"sandyard/guest/link"
	"sandyard/guest/protocol"
)

// relay connects a stream with a port on the sandbox's loopback. To who comes from outside the proxy is no port: it is
// the sandbox's way out, and would be everybody's.
func (g *Guest) relay(stream *link.Stream, port uint16) {
	defer stream.Close()
	conn, err := dialLoopback(port)
	if err == nil {
		defer conn.Close()
	}
	if err != nil || g.dialout.ListensOn(port) { // asked last: the proxy may have come meanwhile
		_, _ = stream.Write([]byte{protocol.PortClosed})
		_ = stream.CloseWrite()
		return
	}
	if _, err := stream.Write([]byte{protocol.PortOpen}); err != nil {
		return
	}
	(&relayed{stream: stream, conn: conn, answered: make(chan struct{})}).carry()
}

// relayed is a connection to a program in the sandbox, each of whose directions goes on until its own end.
type relayed struct {
	stream   *link.Stream
	conn     *net.TCPConn
	answered chan struct{} // closed when the program has said all
	refused  atomic.Bool   // the program takes no more
}

func (r *relayed) carry() {
	var in sync.WaitGroup
	in.Go(r.inward)
	_, _ = io.Copy(r.stream, r.conn)
	_ = r.stream.CloseWrite()
	close(r.answered)
	if r.refused.Load() {
		_ = r.stream.Close()
	}
	in.Wait()
}

// inward passes on what the worker's client says. A client that breaks off, or whose worker is gone, is a reset for the
// program: it must not take half of something for the whole, nor wait for who will not come back.
func (r *relayed) inward() {
	_, err := io.Copy(toProgram{r}, r.stream)
	if r.refused.Load() {
		err = r.drop()
	} else if err == nil {
		_ = r.conn.CloseWrite() // fails for a program that has gone, whose answer may still be on its way
	}
	if err != nil || r.stream.Gone(r.answered) {
		_ = r.conn.SetLinger(0)
		_ = r.conn.Close()
	}
}

// drop loses what the client still says: the program takes no more, but may have answered already, and that is read to
// its end.
func (r *relayed) drop() error {
	select {
	case <-r.answered:
		return nil
	default:
		_, err := io.Copy(io.Discard, r.stream)
		return err
	}
}

// toProgram notes when the program takes no more.
type toProgram struct{ *relayed }

func (p toProgram) Write(b []byte) (int, error) {
	n, err := p.conn.Write(b)
	if err != nil {
		p.refused.Store(true)
	}
	return n, err
}
