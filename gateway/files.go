package gateway

import (
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"path"

	"sandyard/providers"
)

// readFile sends a file or the ranges of it that are asked for.
func (g *Gateway) readFile(w http.ResponseWriter, r *http.Request) {
	box, ok := g.sandbox(w, r)
	if !ok {
		return
	}
	name := r.URL.Query().Get("path")
	length := int64(-1)
	if r.Method == http.MethodHead || conditional(r.Header) {
		length = 0 // what is to be sent depends on what it is
	}
	first, err := box.OpenFile(r.Context(), name, 0, length)
	if err != nil {
		g.refuse(w, r, err)
		return
	}
	f := &remote{ctx: r.Context(), box: box, path: name, about: first}
	if length == 0 {
		_ = first.Close()
	} else {
		f.open = first
	}
	defer f.close()
	header := w.Header()
	header.Set("Content-Type", "application/octet-stream")
	header.Set("Content-Disposition", mime.FormatMediaType("attachment", map[string]string{"filename": path.Base(name)}))
	header.Set("X-Content-Type-Options", "nosniff") // it is whatever the sandbox made
	header.Set("ETag", fmt.Sprintf(`"%x-%x"`, first.ModifiedAt.UnixNano(), first.Size))
	header.Set("Sandyard-File-Mode", fmt.Sprintf("%04o", first.Mode))
	http.ServeContent(w, r, "", first.ModifiedAt, f)
	if f.failed != nil {
		panic(http.ErrAbortHandler) // the only way left to say that bytes are missing
	}
}

func conditional(h http.Header) bool {
	for _, name := range []string{"Range", "If-Match", "If-None-Match", "If-Modified-Since", "If-Unmodified-Since"} {
		if h.Get(name) != "" {
			return true
		}
	}
	return false
}

// remote is a file in a sandbox as http.ServeContent wants it: it opens the file anew where that reads from another place.
type remote struct {
	ctx    context.Context // of the one request that it is made for
	box    providers.Streams
	path   string
	about  providers.FileStream
	open   io.ReadCloser // nil = not yet
	at     int64
	from   int64 // where open stands
	failed error
}

// Seek implements io.Seeker; nothing is sent for it.
func (f *remote) Seek(offset int64, whence int) (int64, error) {
	switch whence {
	case io.SeekCurrent:
		offset += f.at
	case io.SeekEnd:
		offset += f.about.Size
	}
	if offset < 0 {
		return 0, errors.New("seek before the beginning")
	}
	f.at = offset
	return offset, nil
}

// Read implements io.Reader.
func (f *remote) Read(p []byte) (int, error) {
	if f.at >= f.about.Size {
		return 0, io.EOF
	}
	if err := f.turn(); err != nil {
		f.failed = err
		return 0, err
	}
	n, err := f.open.Read(p[:min(int64(len(p)), f.about.Size-f.at)])
	f.at, f.from = f.at+int64(n), f.from+int64(n)
	if errors.Is(err, io.EOF) && f.at < f.about.Size {
		err = io.ErrUnexpectedEOF
	}
	if err != nil && !errors.Is(err, io.EOF) {
		f.failed = err
	}
	return n, err
}

// turn makes open stand where the next byte is. A file that has changed since the answer began is another file.
func (f *remote) turn() error {
	if f.open != nil && f.from == f.at {
		return nil
	}
	f.close()
	next, err := f.box.OpenFile(f.ctx, f.path, f.at, -1)
	if err != nil {
		return err
	}
	f.open, f.from = next, f.at
	if next.Size != f.about.Size || !next.ModifiedAt.Equal(f.about.ModifiedAt) {
		return errors.New("the file has changed")
	}
	return nil
}

func (f *remote) close() {
	if f.open != nil {
		_ = f.open.Close()
		f.open = nil
	}
}

// writeFile replaces a file by the body.
func (g *Gateway) writeFile(w http.ResponseWriter, r *http.Request) {
	box, ok := g.sandbox(w, r)
	if !ok {
		return
	}
	mode, err := modeOf(r)
	var info providers.FileInfo
	if err == nil {
		info, err = box.SaveFile(r.Context(), r.URL.Query().Get("path"), bodyOf(w, r), r.ContentLength, mode)
	}
	if err != nil {
		g.refuse(w, r, err)
		return
	}
	answerJSON(w, info)
}

// readTree sends a directory as a tar archive; gzip=1 compresses it.
func (g *Gateway) readTree(w http.ResponseWriter, r *http.Request) {
	box, ok := g.sandbox(w, r)
	if !ok {
		return
	}
	query := r.URL.Query()
	kind, ending := "application/x-tar", ".tar"
	if query.Get("gzip") == "1" {
		kind, ending = "application/gzip", ".tar.gz"
	}
	archive, err := box.OpenTree(r.Context(), query.Get("path"), ending == ".tar.gz")
	if err != nil {
		g.refuse(w, r, err)
		return
	}
	defer archive.Close()
	name := path.Base(query.Get("path"))
	if name == "." || name == "/" {
		name = "files"
	}
	w.Header().Set("Content-Type", kind)
	w.Header().Set("Content-Disposition", mime.FormatMediaType("attachment", map[string]string{"filename": name + ending}))
	if _, err := io.Copy(w, archive); err != nil {
		panic(http.ErrAbortHandler) // the only way left to say that bytes are missing
	}
}

// writeTree unpacks the archive in the body.
func (g *Gateway) writeTree(w http.ResponseWriter, r *http.Request) {
	box, ok := g.sandbox(w, r)
	if !ok {
		return
	}
	report, err := box.SaveTree(r.Context(), r.URL.Query().Get("path"), bodyOf(w, r))
	if err != nil {
		g.refuse(w, r, err)
		return
	}
	answerJSON(w, report)
}
