// Package upload counts what is sent to a sandbox, so that an upload whose source failed is told from one that the
// sandbox did not take.
package upload

import (
	"errors"
	"io"
	"sync"

	"sandyard/providers"
)

// Body is the body of an upload. The transport may still read it while the answer is looked at.
type Body struct {
	r    io.Reader
	want int64

	mu    sync.Mutex
	n     int64
	ended bool
	err   error // of r
}

// New returns a body with the bytes of r, which are to be want many; negative = however many come.
func New(r io.Reader, want int64) *Body { return &Body{r: r, want: want} }

// Read implements io.Reader.
func (b *Body) Read(p []byte) (int, error) {
	n, err := b.r.Read(p)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.n += int64(n)
	switch {
	case errors.Is(err, io.EOF):
		b.ended = true
	case err != nil:
		b.err = err
	}
	return n, err
}

// Sent is how many bytes were read.
func (b *Body) Sent() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.n
}

// Failed is the error of a source that failed or ended too early, of class Invalid; nil = it did not.
func (b *Body) Failed() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.err != nil:
		return providers.Invalid.Errorf("the upload was interrupted after %d bytes: %w", b.n, b.err)
	case b.ended && b.n < b.want:
		return providers.Invalid.Errorf("the upload ended after %d of %d bytes", b.n, b.want)
	}
	return nil
}
