package daytona

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"strings"
	"time"

	"github.com/gofiber/fiber/v2"

	"sandyard/jobs/kind"
	"sandyard/web/middleware"
	"sandyard/web/problem"
)

// Files are uploaded in forms. A small file is written by a job, which waits for its worker as every job does. A larger
// one goes on to the sandbox as it comes, so that an upload takes the same memory whatever its size.

const (
	// longestName bounds the name of a part, in bytes.
	longestName = 100
	// mostPaths bounds the paths of one form together, in bytes. Some clients send all of them before the first file.
	mostPaths = 2 << 20
	// mostReasons is how many files that were not written an error names.
	mostReasons = 20
)

const (
	// smallFile is the largest file that a job writes, in bytes.
	smallFile = 256 << 10
	// mostFiles is how many files a form may hold.
	mostFiles = 10_000
	// mostPath is how long the path of a file in a form may be, in bytes.
	mostPath = 4 << 10
	// formPatience is how long a client may send nothing of its form.
	formPatience = time.Minute
)

// addUploads adds the routes whose forms are read as they come.
func (s *files) addUploads(r routes) {
	const files = toolbox + "/:id/files"
	r.post(files+"/bulk-upload", s.form((*form).writeMany))
	r.post(files+"/upload", s.form((*form).writeOne))
	r.post(files+"/upload-v2", s.form((*form).writeOne))
}

// form is an upload under way.
type form struct {
	s      *files
	box    string
	path   string // of the query
	length int    // of the body, in bytes; negative = it was not announced
	parts  *multipart.Reader
	begun  bool // its entry of the audit log stands
}

// form reads a form and answers with what do returns.
func (s *files) form(do func(f *form, ctx context.Context) (any, error)) fiber.Handler {
	return func(c *fiber.Ctx) error {
		kind, params, err := mime.ParseMediaType(c.Get(fiber.HeaderContentType))
		if err != nil || kind != fiber.MIMEMultipartForm || params["boundary"] == "" {
			return problem.New(
				http.StatusBadRequest,
				"invalid_request",
				"the body must be a form of the type multipart/form-data with its boundary",
			)
		}
		if err := middleware.CheckCoding(c); err != nil {
			return err
		}
		box, err := s.inside(c)
		if err != nil {
			return err
		}
		f := &form{s: s, box: box.ID, path: c.Query("path"), length: c.Request().Header.ContentLength()}
		return s.over(c, nil, func(w http.ResponseWriter, r *http.Request) error {
			body := &arriving{from: r.Body, control: http.NewResponseController(w)}
			f.parts = multipart.NewReader(body, params["boundary"])
			out, err := do(f, r.Context())
			if err != nil {
				return err
			}
			answer(w, http.StatusOK, out)
			return nil
		})
	}
}

// arriving is a body whose client must not fall silent.
type arriving struct {
	from    io.Reader
	control *http.ResponseController
}

// Read implements io.Reader.
func (a *arriving) Read(p []byte) (int, error) {
	_ = a.control.SetReadDeadline(time.Now().Add(formPatience)) // without it a tenant's streams bound the silent ones
	n, err := a.from.Read(p)
	if errors.Is(err, io.EOF) {
		_ = a.control.SetReadDeadline(time.Time{}) // from now on the connection is only watched for its end
	}
	return n, err
}

// each calls part for every part of the form.
func (f *form) each(part func(name string, p *multipart.Part) error) error {
	for n := 0; ; n++ {
		p, err := f.parts.NextRawPart()
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return problem.New(http.StatusBadRequest, "invalid_request", "the form is not well formed: "+err.Error())
		case n >= 2*mostFiles: // with their paths
			return problem.New(http.StatusRequestEntityTooLarge, "body_too_large",
				fmt.Sprintf("the form holds more than %d files; send the rest in another one", mostFiles))
		}
		name := p.FormName()
		if len(name) > longestName {
			return problem.New(http.StatusBadRequest, "invalid_request",
				fmt.Sprintf("a part of the form has a name of %d bytes; the limit is %d", len(name), longestName))
		}
		if err := part(name, p); err != nil {
			return err
		}
	}
}

// cutOff is the error of a form that does not come to the end of a file.
func cutOff() error {
	return problem.New(http.StatusBadRequest, "invalid_request", "the form ends within a file; send it again, whole")
}

// fileError is why a small file of a form was not written. The form goes on.
type fileError struct{ error }

// write replaces a file by the content of a part and returns its size in bytes. After a *fileError the next part can be
// read.
func (f *form) write(ctx context.Context, path string, from io.Reader) (int64, error) {
	r := middleware.RequestOf(ctx)
	defer func() { r.Held.Release() }()
	room := smallFile + 1
	if f.length >= 0 {
		room = min(room, f.length)
	}
	if err := r.Held.Add(ctx, room); err != nil {
		return 0, err
	}
	head, err := io.ReadAll(io.LimitReader(from, int64(room)))
	if err != nil {
		return 0, cutOff()
	}
	if len(head) > smallFile {
		return f.stream(ctx, path, io.MultiReader(bytes.NewReader(head), from))
	}
	if err := r.Held.Add(ctx, 2*len(head)); err != nil {
		return 0, err
	}
	text := base64.StdEncoding.EncodeToString(head)
	if _, err = f.s.calls.Do(ctx, f.box, &kind.Write{Path: path, Content: text, Encoding: "base64"}); err != nil {
		return 0, &fileError{err}
	}
	return int64(len(head)), nil
}

// stream writes a file as it comes. The file is replaced when all of it has come.
func (f *form) stream(ctx context.Context, path string, from io.Reader) (int64, error) {
	if !f.begun {
		if err := f.s.mw.Begin(ctx); err != nil {
			return 0, err
		}
		f.begun = true
	}
	count := &counting{from: from}
	err := f.s.save(ctx, f.box, path, "", count)
	return count.n, err
}

// save replaces a file of a sandbox when all of it has come. The mode is octal; empty = the usual one.
func (s *core) save(ctx context.Context, sandboxID, path, mode string, from *counting) error {
	req, err := rawFile(ctx, http.MethodPut, path)
	if err != nil {
		return err
	}
	if mode != "" {
		req.URL.RawQuery += "&mode=" + mode
	}
	req.Body, req.ContentLength = io.NopCloser(from), -1
	var refused error
	s.into(&unread{header: http.Header{}}, req, sandboxID, func(_ http.ResponseWriter, _ *http.Request, err error) {
		refused = err
	})
	if refused != nil && from.failed {
		return cutOff()
	}
	return refused
}

// counting counts what is read.
type counting struct {
	from   io.Reader
	n      int64
	failed bool // before its end
}

// Read implements io.Reader.
func (c *counting) Read(p []byte) (int, error) {
	n, err := c.from.Read(p)
	c.n += int64(n)
	c.failed = err != nil && !errors.Is(err, io.EOF)
	return n, err
}

// unread is an answer of which only its arrival counts.
type unread struct{ header http.Header }

// Header implements http.ResponseWriter.
func (u *unread) Header() http.Header { return u.header }

// WriteHeader implements http.ResponseWriter.
func (u *unread) WriteHeader(int) {}

// Write implements http.ResponseWriter.
func (u *unread) Write(p []byte) (int, error) { return len(p), nil }

// reasons are why files of a form were not written: the first of them, and how many there are.
type reasons struct {
	first []string
	n     int
}

func (r *reasons) add(why string) {
	if r.n++; len(r.first) < mostReasons {
		r.first = append(r.first, why)
	}
}

func (r *reasons) text() string {
	text := strings.Join(r.first, "; ")
	if more := r.n - len(r.first); more > 0 {
		text += fmt.Sprintf("; and %d more", more)
	}
	return text
}

// writeMany writes the files of a form: of each first files[n].path, then files[n].file.
func (f *form) writeMany(ctx context.Context) (any, error) {
	paths, written, wrong := map[string]string{}, []map[string]any{}, &reasons{}
	room := mostPaths
	err := f.each(func(name string, p *multipart.Part) error {
		file, field, _ := strings.Cut(name, ".")
		switch field {
		case "path":
			path, err := io.ReadAll(io.LimitReader(p, mostPath+1))
			if err != nil {
				return cutOff()
			}
			if len(path) > mostPath {
				return problem.Invalid("body."+file+".path", fmt.Sprintf("is longer than %d bytes", mostPath))
			}
			if room -= len(file) + len(path); room < 0 {
				return problem.New(http.StatusRequestEntityTooLarge, "body_too_large",
					fmt.Sprintf("the paths of the form have more than %d bytes; send some of the files in another one", mostPaths))
			}
			paths[file] = string(path)
		case "file":
			path := paths[file]
			delete(paths, file)
			if path == "" {
				wrong.add(file + ".path is missing, or comes after its file")
				return nil
			}
			n, err := f.write(ctx, path, p)
			if one, ok := errors.AsType[*fileError](err); ok {
				wrong.add(path + ": " + f.s.fault(one.error).Detail)
				return nil
			}
			if err != nil {
				return err
			}
			written = append(written, map[string]any{"path": path, "bytes": n})
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	if wrong.n > 0 {
		return nil, problem.New(http.StatusBadRequest, "invalid_request", wrong.text())
	}
	return map[string]any{"files": written}, nil
}

// writeOne writes the form's one file to the path of the query.
func (f *form) writeOne(ctx context.Context) (any, error) {
	if f.path == "" {
		return nil, problem.Invalid("query.path", "is missing")
	}
	found := false
	err := f.each(func(name string, p *multipart.Part) error {
		if name != "file" || found {
			return nil
		}
		found = true
		_, err := f.write(ctx, f.path, p)
		if one, ok := errors.AsType[*fileError](err); ok {
			err = one.error
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	if !found {
		return nil, problem.Invalid("body.file", "is missing")
	}
	name := f.path[strings.LastIndexByte(f.path, '/')+1:]
	return map[string]string{"name": name, "path": f.path, "type": "file"}, nil
}
