package rest

import (
	"bytes"
	"io"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humafiber"
)

// taken is a request whose body middleware.TakeBody has read. Huma's own way of reading it expects a stream, where
// Fiber has some.
type taken struct{ ofHuma }

type ofHuma = huma.Context // by another name than that of its own method

// BodyReader implements huma.Context. Huma copies the body, so the original is dropped.
func (t taken) BodyReader() io.Reader {
	req := humafiber.Unwrap(t.ofHuma).Request()
	return &readOnce{bytes.NewReader(req.Body()), func() { req.SetBodyRaw([]byte{}) }}
}

// readOnce calls drop when it has been read in one go.
type readOnce struct {
	*bytes.Reader

	drop func()
}

// WriteTo implements io.WriterTo, which io.Copy prefers.
func (r *readOnce) WriteTo(w io.Writer) (int64, error) {
	defer r.drop()
	return r.Reader.WriteTo(w)
}

// Unwrap is for humafiber.
func (t taken) Unwrap() huma.Context { return t.ofHuma }
