package link

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"
)

// A worker repeats its hello after this long, doubling up to maxRepeat.
const (
	firstRepeat = 200 * time.Millisecond
	maxRepeat   = 2 * time.Second
)

// Dial starts a conversation with the guest at the other end of rw and takes rw over: it closes rw when ctx ends before
// the guest has answered, and Conn.Close closes it later. ctx has no meaning after Dial has returned.
func Dial(ctx context.Context, rw io.ReadWriteCloser) (*Conn, error) {
	c := &Conn{rw: rw, frames: newFrameReader(rw), nonce: []byte(rand.Text())}
	stop := context.AfterFunc(ctx, func() { _ = rw.Close() })
	defer stop()
	welcomed := make(chan struct{})
	var greeting sync.WaitGroup
	greeting.Go(func() { c.greet(welcomed) })
	err := c.awaitWelcome()
	close(welcomed)
	if err != nil {
		_ = rw.Close()
	}
	greeting.Wait()
	if err != nil {
		return nil, errors.Join(context.Cause(ctx), fmt.Errorf("connect to the guest: %w", err))
	}
	return c, nil
}

// Conn is one conversation as the worker sees it. Reads and writes may run concurrently with each other. After the
// first error every read fails with it: ErrSuperseded, ErrTorn, ErrEnded or what the stream below said.
type Conn struct {
	rw     io.ReadWriteCloser
	frames *frameReader
	nonce  []byte
	epoch  uint32

	received uint32
	heard    atomic.Int64 // when the last data frame came, in Unix nanoseconds
	rest     []byte       // of the current data frame
	readErr  error

	wmu  sync.Mutex
	sent uint32
	out  []byte
}

// Epoch is the number of this conversation in the guest's life.
func (c *Conn) Epoch() uint32 { return c.epoch }

// greet says hello until welcomed is closed. From the second time on padding follows: when a worker before us died in
// the middle of a frame, the guest takes what we say for the rest of that frame until it is full.
func (c *Conn) greet(welcomed <-chan struct{}) {
	greeting := appendFrame(nil, frame{kind: hello, payload: c.nonce})
	for wait := firstRepeat; ; wait = min(2*wait, maxRepeat) {
		if c.writeRaw(greeting) != nil {
			return // the reader meets the same error
		}
		select {
		case <-welcomed:
			return
		case <-time.After(wait):
		}
		if len(greeting) < frameSize {
			greeting = appendFrame(greeting, frame{kind: pad, payload: make([]byte, MaxPayload)})
		}
	}
}

func (c *Conn) writeRaw(b []byte) error {
	c.wmu.Lock()
	defer c.wmu.Unlock()
	_, err := c.rw.Write(b)
	return err
}

// awaitWelcome reads until our own welcome; everything before it belongs to other workers.
func (c *Conn) awaitWelcome() error {
	for {
		f, err := c.frames.next()
		if errors.Is(err, errGarbage) {
			continue
		}
		if err != nil {
			return err
		}
		if f.kind == welcome && bytes.Equal(f.payload, c.nonce) {
			c.epoch = f.epoch
			return nil
		}
	}
}

func (c *Conn) Read(p []byte) (int, error) {
	for len(c.rest) == 0 && c.readErr == nil {
		c.rest, c.readErr = c.nextData()
	}
	if len(c.rest) == 0 {
		return 0, c.readErr
	}
	n := copy(p, c.rest)
	c.rest = c.rest[n:]
	return n, nil
}

// nextData returns the payload of the next data frame of our epoch, or nil for a frame that says nothing to us.
func (c *Conn) nextData() ([]byte, error) {
	f, err := c.frames.next()
	switch {
	case errors.Is(err, errGarbage):
		return nil, ErrTorn
	case err != nil:
		return nil, err
	case f.epoch > c.epoch:
		return nil, ErrSuperseded
	case f.epoch < c.epoch:
		return nil, nil
	case f.kind == reset:
		return nil, ErrEnded
	case f.kind != data:
		return nil, nil
	case f.seq != c.received:
		return nil, ErrTorn
	}
	c.received++
	c.heard.Store(time.Now().UnixNano())
	return f.payload, nil
}

// Heard is when the guest last sent something.
func (c *Conn) Heard() time.Time { return time.Unix(0, c.heard.Load()) }

func (c *Conn) Write(p []byte) (int, error) { return c.WriteAfter(nil, p) }

// WriteAfter implements leader.
func (c *Conn) WriteAfter(lead, p []byte) (int, error) {
	c.wmu.Lock()
	defer c.wmu.Unlock()
	return pieces(lead, p, c.writeFrame)
}

func (c *Conn) writeFrame(lead, chunk []byte) error {
	c.out = appendFrame(c.out[:0], frame{kind: data, epoch: c.epoch, seq: c.sent, lead: lead, payload: chunk})
	if _, err := c.rw.Write(c.out); err != nil {
		return err
	}
	c.sent++
	return nil
}

// Close closes the stream below. The guest goes on and waits for the next hello.
func (c *Conn) Close() error { return c.rw.Close() }
