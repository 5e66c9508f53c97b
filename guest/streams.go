package guest

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"

	"sandyard/duplex"
	"sandyard/guest/link"
	"sandyard/guest/protocol"
)

const (
	targetPatience = 10 * time.Second // for a new stream to say where it leads
	dialPatience   = 2 * time.Second
)

// ServeLink serves workers over a byte stream until r ends; commands go on between one worker and the next.
func (g *Guest) ServeLink(r io.Reader, w io.Writer) error {
	return link.Serve(r, w, g.converse)
}

// converse serves one worker until its conversation ends.
func (g *Guest) converse(conn link.Carrier) {
	session, err := link.AcceptStreams(conn, g.linger)
	if err != nil {
		g.log.Error("start the stream multiplexer", "error", err)
		return
	}
	g.dialout.Attach(session)
	defer g.dialout.Detach(session)
	var work sync.WaitGroup
	worker, outside := serve(&work, g.worker, session), serve(&work, g.outside, session)
	for {
		stream, err := session.Accept()
		if err != nil {
			break
		}
		work.Go(func() { g.route(stream, worker, outside) })
	}
	_ = session.Close()
	worker.stop()
	outside.stop()
	work.Wait()
}

// route reads where a stream leads and hands it over.
func (g *Guest) route(stream *link.Stream, worker, outside *calls) {
	var target [3]byte
	_ = stream.SetReadDeadline(time.Now().Add(targetPatience))
	if _, err := io.ReadFull(stream, target[:]); err != nil {
		_ = stream.Close()
		return
	}
	_ = stream.SetReadDeadline(time.Time{})
	switch target[0] {
	case protocol.TargetGuest:
		worker.Hand(stream)
	case protocol.TargetEnvd:
		outside.Hand(stream)
	case protocol.TargetPort:
		g.relay(stream, binary.BigEndian.Uint16(target[1:]))
	default:
		_ = stream.Close()
	}
}

// dialLoopback tries IPv4 first: some servers listen on one of the two only.
func dialLoopback(port uint16) (*net.TCPConn, error) {
	ctx, cancel := context.WithTimeout(context.Background(), dialPatience)
	defer cancel()
	var errs error
	for _, host := range []string{"127.0.0.1", "::1"} {
		conn, err := new(net.Dialer).DialContext(ctx, "tcp", net.JoinHostPort(host, strconv.Itoa(int(port))))
		if tcp, ok := conn.(*net.TCPConn); ok && err == nil {
			return tcp, nil
		}
		errs = errors.Join(errs, err)
	}
	return nil, fmt.Errorf("dial port %d: %w", port, errs)
}

// calls is an HTTP server and its listener: it serves the streams that are handed to it.
type calls struct {
	*duplex.Handover

	server *http.Server
}

// serve runs a server as part of work, until stop.
func serve(work *sync.WaitGroup, handler http.Handler, session *link.Streams) *calls {
	c := &calls{Handover: duplex.NewHandover(session.Addr()), server: &http.Server{Handler: handler}}
	life := context.WithValue(context.Background(), overKey{}, session.Done())
	c.server.BaseContext = func(net.Listener) context.Context { return life }
	work.Go(func() { _ = c.server.Serve(c) })
	return c
}

// stop ends the server with all that it serves.
func (c *calls) stop() { _ = c.server.Close() }
