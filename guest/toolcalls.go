package guest

import (
	"errors"
	"io"
	"io/fs"
	"mime"
	"mime/multipart"
	"net/http"
	"net/textproto"
	"net/url"
	"os"

	"sandyard/guest/files"
	"sandyard/guest/protocol"
)

// maxBatch is how many files one call reads or writes.
const maxBatch = 1000

// toolRoutes are calls that do in one round trip what takes many of envd's.
func (g *Guest) toolRoutes(mux *http.ServeMux) {
	mux.HandleFunc("POST "+protocol.EditPath, call(g.edit))
	mux.HandleFunc("POST "+protocol.GlobPath, call(g.glob))
	mux.HandleFunc("POST "+protocol.GrepPath, call(g.grep))
	mux.HandleFunc("POST "+protocol.ReadManyPath, g.readMany)
	mux.HandleFunc("POST "+protocol.WriteManyPath, call(g.writeMany))
}

func (g *Guest) edit(w http.ResponseWriter, r *http.Request) (any, error) {
	in, err := body[protocol.EditRequest](w, r)
	if err != nil {
		return nil, err
	}
	edited, err := g.files.Edit(in)
	if err != nil {
		return nil, err
	}
	return protocol.EditReply{File: fileEntry(edited.Entry), Replaced: edited.Replaced}, nil
}

func (g *Guest) glob(w http.ResponseWriter, r *http.Request) (any, error) {
	in, err := body[protocol.GlobRequest](w, r)
	if err != nil {
		return nil, err
	}
	found, err := g.files.Glob(r.Context(), in)
	if err != nil {
		return nil, err
	}
	return protocol.GlobReply{
		Entries: fileEntries(found.Entries), Unreadable: found.Unreadable, Truncated: found.Truncated,
	}, nil
}

func (g *Guest) grep(w http.ResponseWriter, r *http.Request) (any, error) {
	in, err := body[protocol.GrepRequest](w, r)
	if err != nil {
		return nil, err
	}
	in.Context = min(in.Context, files.MaxContext)
	return g.files.Grep(r.Context(), in)
}

// readMany answers with the files one after the other, so that it holds none of them. A file that cannot be read has an
// error in its place.
func (g *Guest) readMany(w http.ResponseWriter, r *http.Request) {
	in, err := body[protocol.ReadManyRequest](w, r)
	if err == nil && len(in.Paths) > maxBatch {
		err = protocol.Errorf(
			protocol.ReasonInvalid,
			"%d files are too many for one call; read at most %d",
			len(in.Paths),
			maxBatch,
		)
	}
	if err != nil {
		writeError(w, err)
		return
	}
	answer := multipart.NewWriter(w)
	w.Header().
		Set("Content-Type", mime.FormatMediaType("multipart/mixed", map[string]string{"boundary": answer.Boundary()}))
	room := in.MaxBytes
	for _, path := range in.Paths {
		if err := g.sendPart(answer, path, &room); err != nil {
			panic(http.ErrAbortHandler) // the only way left to say that bytes are missing
		}
	}
	_ = answer.Close() // a caller that is gone needs no answer
}

// sendPart answers an error only when the caller can hear no more.
func (g *Guest) sendPart(answer *multipart.Writer, escaped string, room *int64) error {
	path, err := unescaped(escaped)
	var f *os.File
	var info fs.FileInfo
	if err == nil {
		f, info, err = g.files.Open(path, *room)
	}
	if err != nil {
		e := refusal(err)
		part, err := answer.CreatePart(textproto.MIMEHeader{protocol.ReasonHeader: {e.Reason}})
		if err == nil {
			_, err = io.WriteString(part, e.Message)
		}
		return err
	}
	defer f.Close()
	part, err := answer.CreatePart(textproto.MIMEHeader{})
	if err != nil {
		return err
	}
	size := info.Size() // it may be growing
	n, err := io.Copy(part, io.LimitReader(f, size))
	*room -= n
	return err
}

// unescaped is a path as it was before it was put where not every byte may be.
func unescaped(path string) (string, error) {
	plain, err := url.QueryUnescape(path)
	if err != nil {
		return "", protocol.Errorf(protocol.ReasonInvalidPath, "path '%s' is not escaped as in a query: %v", path, err)
	}
	return plain, nil
}

// writeMany writes each part to a file of its own and answers for each what became of it.
func (g *Guest) writeMany(_ http.ResponseWriter, r *http.Request) (any, error) {
	_, params, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil || params["boundary"] == "" {
		return nil, protocol.Errorf(protocol.ReasonInvalid, "the body must be multipart/mixed")
	}
	written := []protocol.WrittenFile{}
	for parts := multipart.NewReader(r.Body, params["boundary"]); ; {
		part, err := parts.NextRawPart()
		if errors.Is(err, io.EOF) {
			return written, nil
		}
		if err == nil && len(written) == maxBatch {
			err = protocol.Errorf(protocol.ReasonInvalid, "these are too many files for one call; write at most %d", maxBatch)
		}
		if err != nil {
			return nil, protocol.Errorf(protocol.ReasonInvalid, "the body cannot be read: %v", err)
		}
		written = append(written, g.writePart(part))
	}
}

func (g *Guest) writePart(part *multipart.Part) protocol.WrittenFile {
	path, err := unescaped(part.Header.Get(protocol.PathHeader))
	c := files.Content{Body: part, Size: -1}
	if err == nil {
		c.Mode, err = modeOf(http.Header(part.Header))
	}
	var e files.Entry
	if err == nil {
		e, err = g.files.Write(path, c)
	}
	if err != nil {
		refused := refusal(err)
		return protocol.WrittenFile{Reason: refused.Reason, Message: refused.Message}
	}
	return protocol.WrittenFile{File: new(fileEntry(e))}
}
