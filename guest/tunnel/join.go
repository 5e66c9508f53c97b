package tunnel

import (
	"io"
	"net"
	"sync"
)

// Join carries bytes between a tunnel and a TCP connection, each direction until its own end, and closes both. What
// broke off on one side breaks off on the other. Passed is called with the size of each piece before it is passed on,
// outward to the TCP connection or inward from it; its error breaks the connection off.
func Join(t *Conn, tcp *net.TCPConn, passed func(n int, outward bool) error) {
	var once sync.Once
	breakOff := func() {
		once.Do(func() {
			_ = tcp.SetLinger(0) // a reset
			_ = tcp.Close()
			_ = t.Close()
		})
	}
	var out sync.WaitGroup
	out.Go(func() {
		if pump(tcp, t, func(n int) error { return passed(n, true) }) != nil || tcp.CloseWrite() != nil {
			breakOff()
		}
	})
	if pump(t, tcp, func(n int) error { return passed(n, false) }) != nil || t.CloseWrite() != nil {
		breakOff()
	}
	out.Wait()
	once.Do(func() {
		_ = tcp.Close()
		_ = t.Close()
	})
}

// pump copies until the end of from.
func pump(to io.Writer, from io.Reader, passed func(int) error) error {
	buf := make([]byte, Piece)
	for {
		n, err := from.Read(buf)
		if n > 0 {
			if err := passed(n); err != nil {
				return err
			}
			if _, err := to.Write(buf[:n]); err != nil {
				return err
			}
		}
		if err == io.EOF { // readers return it bare, and a wrapped one is a break
			return nil
		}
		if err != nil {
			return err
		}
	}
}
