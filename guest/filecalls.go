package guest

import (
	"compress/gzip"
	"errors"
	"io"
	"io/fs"
	"mime"
	"mime/multipart"
	"net/http"
	"path"
	"slices"
	"strconv"
	"strings"

	"sandyard/guest/files"
	"sandyard/guest/protocol"
)

const (
	defaultMode    = fs.FileMode(0o644)
	metadataHeader = "X-Metadata-" // envd's; the name goes on with the key
	maxSources     = 1000          // of one composed file
	maxParts       = 10_000        // files of one form
)

// fileService is what there is at /files.
type fileService struct {
	files *files.Tree
	users []string // names of the one user
	plain bool     // of files that were written it tells what envd tells, and no more: older clients fail at the rest
}

// download is GET /files: the bytes of a regular file, ranges included.
func (s *fileService) download(w http.ResponseWriter, r *http.Request) {
	limit := int64(-1)
	if err := readNumber(protocol.MaxBytesHeader, r.Header.Get(protocol.MaxBytesHeader), &limit); err != nil {
		writeError(w, err)
		return
	}
	name := r.URL.Query().Get("path")
	f, info, err := s.files.Open(name, limit)
	if err != nil {
		writeError(w, err)
		return
	}
	defer f.Close()
	describe(w.Header(), info)
	if r.Header.Get(protocol.AboutHeader) == "1" {
		w.WriteHeader(http.StatusNoContent)
		return
	}
	w.Header().Set("Content-Type", "application/octet-stream")
	w.Header().Set("Content-Disposition", mime.FormatMediaType("inline", map[string]string{"filename": path.Base(name)}))
	w.Header().Set("Vary", "Accept-Encoding")
	switch coding := codingFor(r.Header); {
	case coding == gzipCoding && r.Method == http.MethodGet:
		sendCompressed(w, f)
	case coding == "":
		writeJSON(
			w,
			http.StatusNotAcceptable,
			protocol.FileError{
				Code:    http.StatusNotAcceptable,
				Message: "no acceptable encoding found, supported: identity, gzip",
			},
		)
	default:
		http.ServeContent(w, r, "", info.ModTime(), f)
	}
}

func describe(h http.Header, info fs.FileInfo) {
	h.Set(protocol.SizeHeader, strconv.FormatInt(info.Size(), 10))
	h.Set(protocol.ModifiedHeader, strconv.FormatInt(info.ModTime().UnixNano(), 10))
	h.Set(protocol.ModeHeader, strconv.FormatUint(uint64(info.Mode().Perm()), 8))
}

// upload is POST /files: one raw body for the path of the query, or the "file" parts of a form.
func (s *fileService) upload(_ http.ResponseWriter, r *http.Request) (any, error) {
	c, err := contentOf(r)
	if err != nil {
		return nil, err
	}
	target := r.URL.Query().Get("path")
	var written []files.Entry
	if kind, params, _ := mime.ParseMediaType(r.Header.Get("Content-Type")); kind == "multipart/form-data" {
		written, err = s.uploadForm(multipart.NewReader(c.Body, params["boundary"]), target, c)
	} else {
		written = make([]files.Entry, 1)
		written[0], err = s.files.Write(target, c)
	}
	if err != nil {
		return nil, err
	}
	entries := []any{}
	for _, e := range written {
		entries = append(entries, s.told(fileEntry(e)))
	}
	return entries, nil
}

// contentOf reads what the headers of an upload say.
func contentOf(r *http.Request) (files.Content, error) {
	c := files.Content{Body: r.Body, Size: r.ContentLength}
	var err error
	if c.Mode, err = modeOf(r.Header); err != nil {
		return c, err
	}
	if c.Metadata, err = metadataOf(r.Header); err != nil {
		return c, err
	}
	switch coding := r.Header.Get("Content-Encoding"); coding {
	case "", identityCoding:
	case gzipCoding:
		c.Size = -1
		if c.Body, err = gzip.NewReader(r.Body); err != nil {
			return c, protocol.Errorf(protocol.ReasonInvalid, "the body is not gzip: %v", err)
		}
	default:
		return c, protocol.Errorf(protocol.ReasonInvalid, "the content encoding '%s' is not supported", coding)
	}
	return c, nil
}

// metadataOf reads the file's metadata: the headers X-Metadata-<key>, of each the first.
func metadataOf(h http.Header) (map[string]string, error) {
	found := map[string]string{}
	for name, values := range h {
		if key, ok := strings.CutPrefix(name, metadataHeader); ok {
			found[strings.ToLower(key)] = values[0]
		}
	}
	return found, files.CheckMetadata(found)
}

func modeOf(h http.Header) (fs.FileMode, error) {
	text := h.Get(protocol.ModeHeader)
	if text == "" {
		return defaultMode, nil
	}
	mode, err := strconv.ParseUint(text, 8, 32)
	if err != nil || mode > 0o777 {
		return 0, protocol.Errorf(protocol.ReasonInvalid, "mode '%s' is not between 0 and 0777", text)
	}
	return fs.FileMode(mode), nil
}

// uploadForm writes each part called "file" to target or, without one, to the part's own file name; all of them with
// the mode and metadata of c.
func (s *fileService) uploadForm(form *multipart.Reader, target string, c files.Content) ([]files.Entry, error) {
	var written []files.Entry
	for {
		part, err := form.NextPart()
		if errors.Is(err, io.EOF) {
			return written, nil
		}
		if err != nil {
			return written, protocol.Errorf(protocol.ReasonInvalid, "the form cannot be read: %v", err)
		}
		if part.FormName() != "file" {
			continue
		}
		if len(written) == maxParts {
			return written, protocol.Errorf(
				protocol.ReasonInvalid,
				"the form has more than %d files, and the first %d are written",
				maxParts,
				maxParts,
			)
		}
		c.Body, c.Size = part, -1
		e, err := s.files.Write(partPath(part, target), c)
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

func fileEntries(list []files.Entry) []protocol.FileEntry {
	entries := make([]protocol.FileEntry, 0, len(list))
	for _, e := range list {
		entries = append(entries, fileEntry(e))
	}
	return entries
}

func fileEntry(e files.Entry) protocol.FileEntry {
	return protocol.FileEntry{
		Path: e.Path, Name: e.Name, Type: typeName(e.Mode), Size: e.Size, Mode: uint32(e.Mode.Perm()),
		Owner: e.Owner, Group: e.Group, ModifiedMs: e.ModifiedAt.UnixMilli(), Target: e.Target, Metadata: e.Metadata,
	}
}

func typeName(mode fs.FileMode) string {
	switch {
	case mode.IsRegular():
		return "file"
	case mode.IsDir():
		return "directory"
	case mode.Type() == fs.ModeSymlink:
		return "symlink"
	default:
		return "other"
	}
}

// compose is POST /files/compose: files become one, in their order.
func (s *fileService) compose(w http.ResponseWriter, r *http.Request) (any, error) {
	in, err := body[struct {
		Sources     []string `json:"source_paths"`
		Destination string   `json:"destination"`
		Username    string   `json:"username"`
	}](w, r)
	switch {
	case err != nil:
		return nil, err
	case len(in.Sources) == 0 || len(in.Sources) > maxSources:
		return nil, protocol.Errorf(protocol.ReasonInvalid, "source_paths must name 1 to %d files", maxSources)
	case in.Username != "" && !slices.Contains(s.users, in.Username):
		return nil, noUser(in.Username, s.users)
	}
	made, err := s.files.Compose(in.Sources, in.Destination)
	if err != nil {
		return nil, err
	}
	return s.told(fileEntry(made)), nil
}

// told is what the answer of a write says of the file.
func (s *fileService) told(e protocol.FileEntry) any {
	if !s.plain {
		return e
	}
	return protocol.EnvdEntry{Path: e.Path, Name: e.Name, Type: e.Type, Metadata: e.Metadata}
}
