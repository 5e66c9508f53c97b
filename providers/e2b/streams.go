package e2b

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"path"
	"strconv"
	"strings"
	"sync"
	"unicode/utf8"

	"sandyard/providers"
	"sandyard/providers/remote"
	"sandyard/providers/upload"
)

// OpenFile implements providers.Streams.
func (s *sandbox) OpenFile(ctx context.Context, given string, offset, length int64) (providers.FileStream, error) {
	abs, err := s.Resolve(given)
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
	inside, end := s.p.calls.Begin(ctx, s.backend)
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
		if info.Size == 0 && remote.IsClass(err, providers.Invalid) { // of an empty file there is no part
			return f, nil
		}
		return providers.FileStream{}, s.Explain(inside, abs, remote.ToRead, err)
	}
	if partial := res.StatusCode == http.StatusPartialContent; partial != (offset > 0 || length > 0) {
		if partial || offset > 0 {
			_ = res.Body.Close()
			end()
			return providers.FileStream{}, providers.Internal.Errorf(
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
		return providers.FileInfo{}, providers.InvalidPath.Errorf("the path is not UTF-8")
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
		err = providers.NotAFile.Errorf("path '%s' is not a regular file", abs)
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

// Upload implements remote.Box.
func (s *sandbox) Upload(ctx context.Context, abs string, r io.Reader, size int64) error {
	ctx, end := s.p.calls.Begin(ctx, s.backend)
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
		return providers.Invalid.Errorf("the upload has %d bytes, not %d", body.Sent(), size)
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

// OpenTree implements providers.Streams: tar packs in the sandbox, and what it sends is packed again here, with clean
// names.
func (s *sandbox) OpenTree(ctx context.Context, given string, zip bool) (io.ReadCloser, error) {
	abs, err := s.Directory(ctx, given)
	if err != nil {
		return nil, err
	}
	return remote.OpenTree(ctx, zip, func(ctx context.Context, to io.Writer) error {
		code, err := s.shell(ctx, "", remote.Packing(abs), func(data []byte) error { _, err := to.Write(data); return err })
		if err != nil {
			return err
		}
		return remote.Packed(int64(code))
	}), nil
}
