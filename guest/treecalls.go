package guest

import (
	"bufio"
	"compress/gzip"
	"errors"
	"io"
	"net/http"

	"sandyard/guest/protocol"
)

// treeBuffer is how much of an archive is made before the answer begins: until then an error still gets its own.
const treeBuffer = 64 << 10

// packTree is GET /tree: the directory of the parameter path as a tar archive; gzip=1 compresses it.
func (g *Guest) packTree(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/x-tar")
	answer := &begun{w: w}
	out := bufio.NewWriterSize(answer, treeBuffer)
	err := g.pack(r, out)
	if err == nil {
		err = out.Flush()
	}
	if err != nil && answer.yes {
		panic(http.ErrAbortHandler) // the only way left to say that bytes are missing
	}
	if err != nil {
		writeError(w, err)
	}
}

func (g *Guest) pack(r *http.Request, out io.Writer) error {
	path := r.URL.Query().Get("path")
	if r.URL.Query().Get("gzip") != "1" {
		return g.files.Pack(path, out)
	}
	z, err := gzip.NewWriterLevel(out, gzip.BestSpeed)
	if err != nil {
		return err
	}
	err = g.files.Pack(path, z)
	if err != nil {
		return err // without the end of the compressed stream, which would make it look whole
	}
	return z.Close()
}

// begun is an answer that remembers whether it has begun.
type begun struct {
	w   io.Writer
	yes bool
}

func (b *begun) Write(p []byte) (int, error) {
	b.yes = true
	return b.w.Write(p)
}

// unpackTree is POST /tree: the tar archive in the body, plain or compressed with gzip, goes below the directory of the
// parameter path.
func (g *Guest) unpackTree(w http.ResponseWriter, r *http.Request) (any, error) {
	made, err := g.files.Unpack(r.URL.Query().Get("path"), r.Body)
	if err == nil {
		_, err = io.Copy(io.Discard, http.MaxBytesReader(w, r.Body, maxMessage)) // what is behind the archive's end
		if tooMuch, ok := errors.AsType[*http.MaxBytesError](err); ok {
			err = protocol.Errorf(protocol.ReasonArchive, "more than %d bytes follow the end of the archive", tooMuch.Limit)
		}
	}
	if err != nil {
		return nil, err
	}
	return protocol.TreeReport(made), nil
}
