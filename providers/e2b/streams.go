package e2b

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"path"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"sandyard/providers"
	"sandyard/providers/spool"
	"sandyard/providers/upload"
)

func validText(text string) bool { return utf8.ValidString(text) && strings.IndexByte(text, 0) < 0 }

// OpenFile implements providers.Streams.
func (s *sandbox) OpenFile(ctx context.Context, given string, offset, length int64) (providers.FileStream, error) {
	abs, err := s.resolve(given)
	if err != nil {
		return providers.FileStream{}, err
	}
	info, err := s.target(ctx, abs)
	if err != nil {
		return providers.FileStream{}, err
	}
	mode, err := strconv.ParseUint(info.Mode, 8, 32)
	if err != nil {
		return providers.FileStream{}, err
	}
	f := providers.FileStream{Size: info.Size, Mode: uint32(mode), ModifiedAt: info.ModifiedAt, ReadCloser: http.NoBody}
	if length == 0 || offset >= info.Size && offset > 0 {
		return f, nil
	}
	inside, end := s.p.calls.begin(ctx, s.backend)
	res, err := s.plain(inside, http.MethodGet, s.filesURL(abs), nil, func(r *http.Request) {
		switch {
		case length > 0:
			r.Header.Set("Range", fmt.Sprintf("bytes=%d-%d", offset, offset+length-1))
		case offset > 0:
			r.Header.Set("Range", fmt.Sprintf("bytes=%d-", offset))
		}
	})
	if err != nil {
		defer end()
		err = s.broken(inside, err)
		if info.Size == 0 && isClass(err, providers.Invalid) { // of an empty file there is no part
			return f, nil
		}
		return providers.FileStream{}, s.fileError(inside, abs, toRead, err)
	}
	if partial := res.StatusCode == http.StatusPartialContent; partial != (offset > 0 || length > 0) {
		if partial || offset > 0 {
			_ = res.Body.Close()
			end()
			return providers.FileStream{}, providers.Errorf(
				providers.Internal,
				"the sandbox sent another part of '%s' than was asked for",
				abs,
			)
		}
	}
	if f.Size = wholeSize(res, info.Size); length < 0 {
		length = f.Size - offset
	}
	f.ReadCloser = &download{ctx: inside, s: s, body: res.Body, left: min(length, f.Size-offset), end: end}
	return f, nil
}

// target is what a path leads to: a regular file, whatever links are on the way.
func (s *sandbox) target(ctx context.Context, abs string) (providers.FileInfo, error) {
	if !utf8.ValidString(abs) {
		return providers.FileInfo{}, providers.Errorf(providers.InvalidPath, "the path is not UTF-8")
	}
	info, err := s.stat(ctx, abs)
	for range 8 {
		if err != nil || info.Type != "symlink" {
			break
		}
		to := info.SymlinkTarget
		if !path.IsAbs(to) {
			to = path.Join(path.Dir(info.Path), to)
		}
		info, err = s.stat(ctx, path.Clean(to))
	}
	if err == nil && info.Type != "file" {
		err = providers.Errorf(providers.NotAFile, "path '%s' is not a regular file", abs)
	}
	return info, err
}

// wholeSize is the file's size when it was sent: it may have changed since it was asked after.
func wholeSize(res *http.Response, known int64) int64 {
	if res.StatusCode != http.StatusPartialContent {
		if res.ContentLength >= 0 {
			return res.ContentLength
		}
		return known
	}
	_, total, found := strings.Cut(res.Header.Get("Content-Range"), "/")
	if n, err := strconv.ParseInt(total, 10, 64); found && err == nil && n >= 0 {
		return n
	}
	return known
}

// download reads as much as was told, or fails.
type download struct {
	ctx  context.Context
	s    *sandbox
	body io.ReadCloser
	left int64
	end  func()
	once sync.Once
}

func (d *download) Read(p []byte) (int, error) {
	if d.left <= 0 {
		return 0, io.EOF
	}
	n, err := d.body.Read(p[:min(int64(len(p)), d.left)])
	d.left -= int64(n)
	switch {
	case err == nil || d.left <= 0:
		return n, nil
	case errors.Is(err, io.EOF):
		err = io.ErrUnexpectedEOF
	}
	return n, d.s.broken(d.ctx, err)
}

func (d *download) Close() error {
	d.once.Do(d.end) // before the body, which else is read to its end
	return d.body.Close()
}

// upload makes or replaces a file.
func (s *sandbox) upload(ctx context.Context, abs string, r io.Reader, size int64) error {
	ctx, end := s.p.calls.begin(ctx, s.backend)
	defer end()
	body := upload.New(r, size)
	sent, kind, length := io.Reader(body), "application/octet-stream", size
	if s.form {
		sent, kind, length = formOf(body, abs, size)
	}
	res, err := s.plain(ctx, http.MethodPost, s.filesURL(abs), sent, func(req *http.Request) {
		req.Header.Set("Content-Type", kind)
		if req.ContentLength = length; length == 0 {
			req.Body = http.NoBody
		}
	})
	if failed := body.Failed(); failed != nil {
		if err == nil {
			_ = res.Body.Close()
		}
		return failed
	}
	if err != nil {
		return s.broken(ctx, err)
	}
	_, err = io.Copy(io.Discard, io.LimitReader(res.Body, maxAnswer))
	_ = res.Body.Close()
	if err == nil && size >= 0 && body.Sent() != size {
		return providers.Errorf(providers.Invalid, "the upload has %d bytes, not %d", body.Sent(), size)
	}
	if err != nil {
		return s.broken(ctx, err)
	}
	return nil
}

// formOf makes an upload a form, as every envd takes it.
func formOf(r io.Reader, abs string, size int64) (body io.Reader, kind string, length int64) {
	var head bytes.Buffer
	form := multipart.NewWriter(&head)
	_, _ = form.CreateFormFile("file", path.Base(abs)) // into memory
	first := head.Len()
	_ = form.Close()
	frame := head.Bytes()
	if length = size; size >= 0 {
		length += int64(len(frame))
	}
	return io.MultiReader(
		bytes.NewReader(frame[:first]),
		r,
		bytes.NewReader(frame[first:]),
	), form.FormDataContentType(), length
}

// moment is a name beside abs for what is there for a moment.
func moment(dir string) string { return path.Join(dir, temporary+strings.ToLower(rand.Text())) }

// discard removes what an upload has left, as far as that can be done now.
func (s *sandbox) discard(ctx context.Context, abs string) {
	ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
	defer stop()
	if _, err := s.Script(ctx, "", "rm -f "+spool.Quote(abs), 100); err != nil {
		s.p.log.DebugContext(ctx, "leftover of an upload not removed", "sandbox_id", s.id, "error", err)
	}
}

// commitScript puts the file t of size n into its place p with mode m.
const commitScript = `
refuse() { rm -f "$t"; echo "$1"; exit 0; }
if [ ! -L "$p" ] && [ -e "$p" ] && [ ! -f "$p" ]; then refuse notafile; fi
[ "$(($(wc -c <"$t")))" = "$n" ] || refuse size
chmod "$m" "$t" || refuse denied
mv -fT "$t" "$p" 2>/dev/null || { [ ! -L "$p" ] && mv -f "$t" "$p" 2>/dev/null; } || refuse denied
echo saved $(stat -c '%s %a %Y %U %G' "$p")
`

// SaveFile implements providers.Streams: the bytes go to a file of their own beside the old one, which they replace in
// one step.
func (s *sandbox) SaveFile(
	ctx context.Context,
	given string,
	r io.Reader,
	size int64,
	mode uint32,
) (providers.FileInfo, error) {
	abs, err := s.changeable(given)
	if err != nil {
		if isClass(err, providers.InvalidPath) && given != "" && validText(given) {
			if root, rootErr := s.resolve(given); rootErr == nil { // a root is a directory
				return providers.FileInfo{}, providers.Errorf(providers.NotAFile, "path '%s' is not a regular file", root)
			}
		}
		return providers.FileInfo{}, err
	}
	if mode == 0 {
		mode = 0o644
	}
	temp := moment(path.Dir(abs))
	body := upload.New(r, size)
	if err := s.upload(ctx, temp, body, size); err != nil {
		s.discard(ctx, temp)
		if body.Failed() != nil {
			return providers.FileInfo{}, err
		}
		return providers.FileInfo{}, s.fileError(ctx, abs, toWrite, err)
	}
	text := fmt.Sprintf("t=%s p=%s n=%d m=%o\n", spool.Quote(temp), spool.Quote(abs), body.Sent(), mode&0o777)
	out, err := s.Script(ctx, "", text+commitScript, 1000)
	if err != nil {
		s.discard(ctx, temp)
		return providers.FileInfo{}, err
	}
	words := strings.Fields(string(out))
	switch {
	case len(words) == 6 && words[0] == "saved":
		return savedInfo(abs, words[1:])
	case len(words) == 1 && words[0] == "notafile":
		return providers.FileInfo{}, &providers.Error{
			Class:   providers.NotAFile,
			Message: classMessage(providers.NotAFile, abs),
		}
	case len(words) == 1 && words[0] == "denied":
		return providers.FileInfo{}, s.fileError(
			ctx,
			abs,
			toWrite,
			&providers.Error{Class: providers.FileDenied, Message: classMessage(providers.FileDenied, abs)},
		)
	}
	return providers.FileInfo{}, providers.Errorf(providers.Internal, "the sandbox did not confirm all bytes of '%s'", abs)
}

func savedInfo(abs string, words []string) (providers.FileInfo, error) {
	size, err := strconv.ParseInt(words[0], 10, 64)
	mode, modeErr := strconv.ParseUint(words[1], 8, 32)
	at, atErr := strconv.ParseInt(words[2], 10, 64)
	if err = errors.Join(err, modeErr, atErr); err != nil || size < 0 {
		return providers.FileInfo{}, providers.Errorf(providers.Internal, "the sandbox did not describe '%s'", abs)
	}
	return providers.FileInfo{
		Name: path.Base(
			abs,
		), Path: abs, Type: "file", Size: size, Mode: octal(uint32(mode)),
		Owner: storable(words[3]), Group: storable(words[4]),
		ModifiedAt: possible(time.Unix(at, 0)),
	}, nil
}
