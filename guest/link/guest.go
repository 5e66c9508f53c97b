package link

import (
	"errors"
	"io"
	"slices"
	"sync"
)

// Serve is the guest's end: it reads hellos from r and runs handle, in a goroutine of its own, with each conversation.
// A new conversation closes the one before it. Serve returns when r ends, nil at its regular end, after every handle
// has returned.
func Serve(r io.Reader, w io.Writer, handle func(Carrier)) error {
	g := &guestEnd{w: w, handle: handle}
	err := g.read(newFrameReader(r))
	g.finish(io.EOF)
	g.handlers.Wait()
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return nil
	}
	return err
}

type guestEnd struct {
	w        io.Writer
	handle   func(Carrier)
	handlers sync.WaitGroup
	nonces   []string // of the last epochs, the current one last

	mu    sync.Mutex // orders writes and guards what follows
	epoch uint32
	out   []byte
	cur   *conversation
}

func (g *guestEnd) read(r *frameReader) error {
	for {
		f, err := r.next()
		switch {
		case errors.Is(err, errGarbage):
			g.tear()
		case err != nil:
			return err
		case f.kind == hello:
			g.hello(f.payload)
		case f.kind == data:
			g.data(f)
		}
	}
}

// noncesKept is of how many epochs repeated hellos are known: of more workers than greet one sandbox within a few
// seconds.
const noncesKept = 32

// hello starts the next epoch. A worker repeats its hello until it is welcomed, and the repetitions only repeat the
// answer. One that comes when its epoch is over starts nothing: its worker was welcomed before, and would not take the
// new epoch for its own, while the worker of the current one would lose that.
func (g *guestEnd) hello(nonce []byte) {
	at := slices.Index(g.nonces, string(nonce))
	switch {
	case at < 0:
		g.finish(ErrSuperseded)
		g.nonces = append(g.nonces[max(0, len(g.nonces)-noncesKept+1):], string(nonce))
		g.begin()
	case at < len(g.nonces)-1 || g.current() == nil:
		return
	}
	g.send(frame{kind: welcome, payload: nonce})
}

func (g *guestEnd) begin() {
	c := &conversation{end: g}
	c.in, c.feed = io.Pipe()
	g.mu.Lock()
	g.epoch++
	c.epoch, g.cur = g.epoch, c
	g.mu.Unlock()
	g.handlers.Go(func() {
		g.handle(c)
		_ = c.Close()
	})
}

func (g *guestEnd) current() *conversation {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.cur
}

// send writes one control frame of the current epoch. A stream that takes no more bytes is noticed by the reader.
func (g *guestEnd) send(f frame) {
	g.mu.Lock()
	defer g.mu.Unlock()
	f.epoch = g.epoch
	_ = g.write(f)
}

func (g *guestEnd) write(f frame) error {
	g.out = appendFrame(g.out[:0], f)
	_, err := g.w.Write(g.out)
	return err
}

// data feeds the current conversation. Frames of other epochs are what a superseded worker still had to say.
func (g *guestEnd) data(f frame) {
	c := g.current()
	if c == nil || f.epoch != c.epoch {
		return
	}
	if f.seq != c.received {
		g.tear()
		return
	}
	c.received++
	_, _ = c.feed.Write(f.payload) // fails only when the conversation is over
}

func (g *guestEnd) tear() {
	if g.finish(ErrTorn) {
		g.send(frame{kind: reset})
	}
}

// finish ends the current conversation, if there is one.
func (g *guestEnd) finish(err error) bool {
	g.mu.Lock()
	c := g.cur
	g.cur = nil
	g.mu.Unlock()
	if c != nil {
		_ = c.feed.CloseWithError(err)
	}
	return c != nil
}

// conversation is one epoch as the guest's handler sees it.
type conversation struct {
	end      *guestEnd
	epoch    uint32
	in       *io.PipeReader
	feed     *io.PipeWriter
	received uint32
	sent     uint32
}

func (c *conversation) Read(p []byte) (int, error) { return c.in.Read(p) }

func (c *conversation) Write(p []byte) (int, error) { return c.WriteAfter(nil, p) }

// WriteAfter implements leader.
func (c *conversation) WriteAfter(lead, p []byte) (int, error) { return pieces(lead, p, c.writeFrame) }

func (c *conversation) writeFrame(lead, chunk []byte) error {
	c.end.mu.Lock()
	defer c.end.mu.Unlock()
	if c.end.cur != c {
		return io.ErrClosedPipe
	}
	f := frame{kind: data, epoch: c.epoch, seq: c.sent, lead: lead, payload: chunk}
	c.sent++
	return c.end.write(f)
}

// Close ends the conversation and tells the worker so.
func (c *conversation) Close() error {
	c.end.mu.Lock()
	defer c.end.mu.Unlock()
	_ = c.in.CloseWithError(io.ErrClosedPipe)
	if c.end.cur != c {
		return nil
	}
	c.end.cur = nil
	return c.end.write(frame{kind: reset, epoch: c.epoch})
}
