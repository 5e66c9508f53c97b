package daytona

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"net/textproto"
	"net/url"
	"strconv"
	"strings"
	"unicode"

	"github.com/gofiber/fiber/v2"
)

// rawFile is a request for the content of a file, as a worker's gateway takes it.
func rawFile(ctx context.Context, method, path string) (*http.Request, error) {
	query := url.Values{"path": {path}}
	return http.NewRequestWithContext(ctx, method, "/files/raw?"+query.Encode(), http.NoBody)
}

// sendFile answers w with a file as it comes out of the sandbox. An error means that the answer has not begun.
func (s *files) sendFile(ctx context.Context, w http.ResponseWriter, sandboxID, path string, head http.Header) error {
	req, err := rawFile(ctx, http.MethodGet, path)
	if err != nil {
		return err
	}
	req.Header = head
	var refused error
	s.into(w, req, sandboxID, func(_ http.ResponseWriter, _ *http.Request, err error) { refused = err })
	return refused
}

func (s *files) download(c *fiber.Ctx) error {
	path, err := query(c, "path")
	if err != nil {
		return err
	}
	box, err := s.inside(c)
	if err != nil {
		return err
	}
	return s.over(c, []string{"Range", "If-Range"}, func(w http.ResponseWriter, r *http.Request) error {
		return s.sendFile(r.Context(), w, box.ID, path, r.Header.Clone())
	})
}

// downloadMany answers with a form: of each file a part named file, or one named error that says why there is none.
func (s *files) downloadMany(c *fiber.Ctx, in *struct {
	Paths []string `json:"paths" required:"true"`
},
) error {
	box, err := s.inside(c)
	if err != nil {
		return err
	}
	method, route := c.Method(), c.Path()
	return s.over(c, nil, func(w http.ResponseWriter, r *http.Request) error {
		out := &download{s: s, box: box.ID, to: w, form: multipart.NewWriter(w), method: method, route: route}
		w.Header().Set(fiber.HeaderContentType, out.form.FormDataContentType())
		if err := out.all(r.Context(), in.Paths); err != nil {
			panic(http.ErrAbortHandler) // the only way left to say that bytes are missing
		}
		return nil
	})
}

// download is an answer with files.
type download struct {
	s             *files
	box           string
	to            http.ResponseWriter
	form          *multipart.Writer
	method, route string
}

// all writes the form. After an error it is not whole.
func (d *download) all(ctx context.Context, paths []string) error {
	for _, path := range paths {
		part := &filePart{ResponseWriter: d.to, form: d.form, path: path, header: http.Header{}}
		err := d.s.sendFile(ctx, part, d.box, path, http.Header{})
		if err == nil {
			continue
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err := d.explain(path, err); err != nil {
			return err
		}
	}
	return d.form.Close()
}

// explain writes the part that says why a file has none.
func (d *download) explain(path string, why error) error {
	doc, err := json.Marshal(failureOf(d.s.fault(why), d.method, d.route))
	if err != nil {
		return err
	}
	part, err := d.form.CreatePart(partHeader("error", path, fiber.MIMEApplicationJSON, strconv.Itoa(len(doc))))
	if err == nil {
		_, err = part.Write(doc)
	}
	return err
}

func partHeader(name, path, kind, length string) textproto.MIMEHeader {
	head := textproto.MIMEHeader{}
	head.Set("Content-Disposition", fmt.Sprintf(`form-data; name="%s"; %s`, name, filename(path)))
	head.Set("Content-Type", kind)
	if length != "" {
		head.Set("Content-Length", length)
	}
	return head
}

// filename is the parameter of a part that names its file. Some clients take a bare name for Latin-1, so one with more
// than printable ASCII is also there with its encoding, which those who know that form prefer.
func filename(path string) string {
	quoted := strings.NewReplacer("\\", "\\\\", `"`, `\"`, "\r", "%0D", "\n", "%0A").Replace(path)
	name := fmt.Sprintf(`filename="%s"`, quoted)
	if strings.IndexFunc(path, func(r rune) bool { return r < ' ' || r > unicode.MaxASCII }) >= 0 {
		name += "; filename*=UTF-8''" + url.PathEscape(path)
	}
	return name
}

// filePart is the answer with one file as a part of a form.
type filePart struct {
	http.ResponseWriter // that of the form

	form   *multipart.Writer
	path   string
	header http.Header
	part   io.Writer
	failed error
}

// Unwrap is for http.ResponseController.
func (p *filePart) Unwrap() http.ResponseWriter { return p.ResponseWriter }

// Header implements http.ResponseWriter.
func (p *filePart) Header() http.Header { return p.header }

// WriteHeader implements http.ResponseWriter.
func (p *filePart) WriteHeader(int) {
	p.part, p.failed = p.form.CreatePart(
		partHeader("file", p.path, fiber.MIMEOctetStream, p.header.Get(fiber.HeaderContentLength)))
}

// Write implements http.ResponseWriter.
func (p *filePart) Write(b []byte) (int, error) {
	if p.failed != nil {
		return 0, p.failed
	}
	return p.part.Write(b)
}
