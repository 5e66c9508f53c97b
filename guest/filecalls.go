package guest

import (
	"errors"
	"io"
	"io/fs"
	"mime"
	"mime/multipart"
	"net/http"
	"path"
	"strconv"

	"sandyard/guest/dialect"
	"sandyard/guest/files"
)

const defaultMode = fs.FileMode(0o644)

// download is GET /files: the bytes of a regular file, ranges included.
func (g *Guest) download(w http.ResponseWriter, r *http.Request) {
	limit := int64(-1)
	if err := readNumber(r.Header, dialect.MaxBytesHeader, &limit); err != nil {
		writeError(w, err)
		return
	}
	name := r.URL.Query().Get("path")
	f, info, err := g.files.Open(name, limit)
	if err != nil {
		writeError(w, err)
		return
	}
	defer f.Close()
	w.Header().Set("Content-Type", "application/octet-stream")
	w.Header().Set("Content-Disposition", mime.FormatMediaType("inline", map[string]string{"filename": path.Base(name)}))
	http.ServeContent(w, r, "", info.ModTime(), f)
}

// upload is POST /files: one raw body for the path of the query, or the "file" parts of a form.
func (g *Guest) upload(w http.ResponseWriter, r *http.Request) {
	mode, err := modeOf(r.Header)
	if err != nil {
		writeError(w, err)
		return
	}
	target := r.URL.Query().Get("path")
	var written []files.Entry
	if kind, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type")); kind == "multipart/form-data" {
		written, err = g.uploadForm(r, target, mode)
	} else {
		written = make([]files.Entry, 1)
		written[0], err = g.files.Write(target, r.Body, r.ContentLength, mode)
	}
	if err != nil {
		writeError(w, err)
		return
	}
	writeJSON(w, http.StatusOK, fileEntries(written))
}

func modeOf(h http.Header) (fs.FileMode, error) {
	text := h.Get(dialect.ModeHeader)
	if text == "" {
		return defaultMode, nil
	}
	mode, err := strconv.ParseUint(text, 8, 32)
	if err != nil || mode > 0o777 {
		return 0, dialect.Errorf(dialect.ReasonInvalid, "mode '%s' is not between 0 and 0777", text)
	}
	return fs.FileMode(mode), nil
}

// uploadForm writes each part called "file" to target or, without one, to the part's own file name.
func (g *Guest) uploadForm(r *http.Request, target string, mode fs.FileMode) ([]files.Entry, error) {
	form, err := r.MultipartReader()
	if err != nil {
		return nil, dialect.Errorf(dialect.ReasonInvalid, "the form cannot be read: %v", err)
	}
	var written []files.Entry
	for {
		part, err := form.NextPart()
		if errors.Is(err, io.EOF) {
			return written, nil
		}
		if err != nil {
			return written, dialect.Errorf(dialect.ReasonInvalid, "the form breaks off: %v", err)
		}
		if part.FormName() != "file" {
			continue
		}
		e, err := g.files.Write(partPath(part, target), part, -1, mode)
		if err != nil {
			return written, err
		}
		written = append(written, e)
	}
}

// partPath reads the file name of a part as it was sent: Part.FileName keeps only its last element.
func partPath(part *multipart.Part, target string) string {
	if target != "" {
		return target
	}
	_, params, err := mime.ParseMediaType(part.Header.Get("Content-Disposition"))
	if err != nil {
		return part.FileName()
	}
	return params["filename"]
}

func fileEntries(written []files.Entry) []dialect.FileEntry {
	list := make([]dialect.FileEntry, 0, len(written))
	for _, e := range written {
		list = append(list, dialect.FileEntry{
			Path: e.Path, Name: e.Name, Type: "file", Size: e.Size, Mode: uint32(e.Mode.Perm()),
			Owner: e.Owner, Group: e.Group, ModifiedMs: e.ModifiedAt.UnixMilli(),
		})
	}
	return list
}
