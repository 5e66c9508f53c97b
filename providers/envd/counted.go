package envd

import (
	"errors"
	"io"
	"sync"

	"sandyard/providers"
)

// counted is the body of an upload. The transport may still read it while the answer is looked at.
type counted struct {
	r    io.Reader
	want int64 // negative = however many come

	mu    sync.Mutex
	n     int64
	ended bool
	err   error // of r
}

func (c *counted) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.n += int64(n)
	switch {
	case errors.Is(err, io.EOF):
		c.ended = true
	case err != nil:
		c.err = err
	}
	return n, err
}

func (c *counted) read() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.n
}

// explain tells an upload whose source failed from one that the sandbox did not take. A sandbox that has refused one
// knows best: the reading ends with its answer.
func (c *counted) explain(err error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case providers.AsError(err).Class != providers.Unavailable:
		return err
	case c.err != nil:
		return providers.Errorf(providers.Invalid, "the upload was interrupted after %d bytes: %w", c.n, c.err)
	case c.ended && c.n < c.want:
		return providers.Errorf(providers.Invalid, "the upload ended after %d of %d bytes", c.n, c.want)
	}
	return err
}
