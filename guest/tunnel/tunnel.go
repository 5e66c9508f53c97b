// Package tunnel is one connection that a worker makes for a sandbox, over a stream that the guest has opened to it:
// the guest asks for a destination, the worker answers, and then bytes go both ways.
//
// The bytes travel in pieces of known length, because the stream below can tell neither the end of one direction from
// the end of all for as long as it takes, nor an end from a break: a program in the sandbox must not take half a file
// for a whole one. An empty piece is the end of a direction; a stream that ends without one was broken off.
package tunnel

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"
)

const (
	// MaxTarget is the longest destination, in bytes.
	MaxTarget = 300
	// maxMessage is the longest reason, in bytes.
	maxMessage = 1 << 10
	// Piece is the most that travels at once: a worker has many of these buffers.
	Piece  = 16 << 10
	header = 2
)

// Answer is what the worker says to a request.
type Answer byte

// The answers. All but Open are followed by a reason for people.
const (
	Open        Answer = iota
	Denied             // it may not be reached
	Unreachable        // it did not answer
	Unavailable        // ask again later
)

// RefusedError is an answer other than Open.
type RefusedError struct {
	Answer  Answer
	Message string
}

func (e *RefusedError) Error() string { return e.Message }

// Ask asks for a destination, host:port, over a stream that the guest has opened, and takes the stream over. The error
// is a *RefusedError where the worker has answered.
func Ask(stream net.Conn, target string) (*Conn, error) {
	c, err := ask(stream, target)
	if err != nil {
		_ = stream.Close()
		return nil, err
	}
	return c, nil
}

func ask(stream net.Conn, target string) (*Conn, error) {
	if len(target) > MaxTarget {
		return nil, &RefusedError{Denied, "the destination's name is too long"}
	}
	if _, err := stream.Write(withLength(nil, target)); err != nil {
		return nil, fmt.Errorf("ask the worker: %w", err)
	}
	c := newConn(stream)
	answer, err := c.in.ReadByte()
	if err != nil {
		return nil, fmt.Errorf("read the worker's answer: %w", err)
	}
	if Answer(answer) == Open {
		return c, nil
	}
	message, err := readText(c.in, maxMessage)
	if err != nil {
		return nil, fmt.Errorf("read the worker's answer: %w", err)
	}
	return nil, &RefusedError{Answer(answer), message}
}

// Target reads the destination that the guest asks for.
func Target(stream io.Reader) (string, error) { return readText(stream, MaxTarget) }

// Refuse answers a request that is not met, and closes the stream.
func Refuse(stream net.Conn, answer Answer, message string) {
	message = message[:min(len(message), maxMessage)]
	_, _ = stream.Write(withLength([]byte{byte(answer)}, message)) // who does not listen is refused all the same
	_ = stream.Close()
}

// Accept answers a request that is met, and takes the stream over.
func Accept(stream net.Conn) (*Conn, error) {
	if _, err := stream.Write([]byte{byte(Open)}); err != nil {
		return nil, errors.Join(err, stream.Close())
	}
	return newConn(stream), nil
}

func withLength(b []byte, text string) []byte {
	return append(binary.BigEndian.AppendUint16(b, uint16(len(text))), text...)
}

func readText(r io.Reader, limit int) (string, error) {
	var size [header]byte
	if _, err := io.ReadFull(r, size[:]); err != nil {
		return "", err
	}
	n := int(binary.BigEndian.Uint16(size[:]))
	if n > limit {
		return "", fmt.Errorf("%d bytes; the limit is %d", n, limit)
	}
	text := make([]byte, n)
	_, err := io.ReadFull(r, text)
	return string(text), err
}

// Conn is the connection as each end has it. One goroutine may read while another writes.
type Conn struct {
	net.Conn

	in   *bufio.Reader
	left int // of the piece that is being read
	eof  bool

	wmu    sync.Mutex
	out    []byte
	closed bool // our direction has ended
}

func newConn(stream net.Conn) *Conn {
	return &Conn{Conn: stream, in: bufio.NewReaderSize(stream, Piece+header)}
}

// Read answers io.EOF when the other end has closed its direction, and io.ErrUnexpectedEOF when it broke off.
func (c *Conn) Read(p []byte) (int, error) {
	if c.left == 0 && !c.eof {
		if err := c.nextPiece(); err != nil {
			return 0, err
		}
	}
	if c.eof {
		return 0, io.EOF
	}
	n, err := c.in.Read(p[:min(len(p), c.left)])
	c.left -= n
	return n, broken(err)
}

func (c *Conn) nextPiece() error {
	var size [header]byte
	if _, err := io.ReadFull(c.in, size[:]); err != nil {
		return broken(err)
	}
	c.left = int(binary.BigEndian.Uint16(size[:]))
	c.eof = c.left == 0
	return nil
}

func broken(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

func (c *Conn) Write(p []byte) (int, error) {
	c.wmu.Lock()
	defer c.wmu.Unlock()
	done := 0
	for done < len(p) {
		if c.closed {
			return done, net.ErrClosed
		}
		chunk := p[done:min(len(p), done+Piece)]
		c.out = append(binary.BigEndian.AppendUint16(c.out[:0], uint16(len(chunk))), chunk...)
		if _, err := c.Conn.Write(c.out); err != nil {
			return done, err
		}
		done += len(chunk)
	}
	return done, nil
}

// CloseWrite ends our direction. The other one goes on for as long as it takes.
func (c *Conn) CloseWrite() error {
	c.wmu.Lock()
	defer c.wmu.Unlock()
	if c.closed {
		return nil
	}
	c.closed = true
	_, err := c.Conn.Write(make([]byte, header))
	return err
}

// Close ends the connection. Without a CloseWrite before it the other end sees it broken off.
func (c *Conn) Close() error {
	_ = c.SetDeadline(time.Now()) // whoever waits in it is let go at once
	return c.Conn.Close()
}
