package envd

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"sandyard/guest/protocol"
	"sandyard/providers"
	"sandyard/providers/upload"
)

// maxStripped bounds what a guest may say in an answer to SaveTree.
const maxStripped = 100

// OpenFile is providers.Streams.OpenFile.
func (s *Sandbox) OpenFile(ctx context.Context, path string, offset, length int64) (providers.FileStream, error) {
	answer, err := s.do(ctx, http.MethodGet, filesURL(path), nil, func(r *http.Request) {
		switch {
		case length == 0:
			r.Header.Set(protocol.AboutHeader, "1")
		case length > 0:
			r.Header.Set("Range", fmt.Sprintf("bytes=%d-%d", offset, offset+length-1))
		case offset > 0:
			r.Header.Set("Range", fmt.Sprintf("bytes=%d-", offset))
		}
	})
	if err != nil {
		return providers.FileStream{}, err
	}
	f, err := streamOf(answer)
	partial := answer.StatusCode == http.StatusPartialContent
	if err == nil && length != 0 && partial != (offset > 0 || length > 0) {
		err = providers.Internal.Errorf("the sandbox answered with a part of '%s' that was not requested", path)
	}
	if err != nil {
		_ = answer.Body.Close()
		return providers.FileStream{}, err
	}
	return f, nil
}

// streamOf reads the headers of a file.
func streamOf(answer *http.Response) (providers.FileStream, error) {
	size, err := strconv.ParseInt(answer.Header.Get(protocol.SizeHeader), 10, 64)
	if err != nil || size < 0 {
		return providers.FileStream{}, providers.Internal.Errorf("the sandbox did not report the file's size")
	}
	changed, err := strconv.ParseInt(answer.Header.Get(protocol.ModifiedHeader), 10, 64)
	if err != nil {
		return providers.FileStream{}, providers.Internal.Errorf("the sandbox did not report the file's time of change")
	}
	mode, err := strconv.ParseUint(answer.Header.Get(protocol.ModeHeader), 8, 32)
	if err != nil {
		return providers.FileStream{}, providers.Internal.Errorf("the sandbox did not report the file's mode")
	}
	return providers.FileStream{
		ReadCloser: answer.Body, Size: size, Mode: uint32(mode) & 0o777, ModifiedAt: time.Unix(0, changed).UTC(),
	}, nil
}

// SaveFile is providers.Streams.SaveFile.
func (s *Sandbox) SaveFile(ctx context.Context, path string, r io.Reader, size int64, mode uint32) (providers.FileInfo, error) {
	body := upload.New(r, size)
	saved, err := s.save(ctx, path, body, size, mode, body.Sent)
	if err != nil {
		return providers.FileInfo{}, explain(body, err)
	}
	return saved, nil
}

// OpenTree is providers.Streams.OpenTree.
func (s *Sandbox) OpenTree(ctx context.Context, path string, zip bool) (io.ReadCloser, error) {
	query := url.Values{"path": {path}}
	if zip {
		query.Set("gzip", "1")
	}
	answer, err := s.do(ctx, http.MethodGet, protocol.TreePath+"?"+query.Encode(), nil, nil)
	if err != nil {
		return nil, err
	}
	return answer.Body, nil
}

// SaveTree is providers.Streams.SaveTree.
func (s *Sandbox) SaveTree(ctx context.Context, path string, r io.Reader) (providers.TreeReport, error) {
	body := upload.New(r, -1)
	answer, err := s.do(ctx, http.MethodPost, protocol.TreePath+"?"+url.Values{"path": {path}}.Encode(), body, func(req *http.Request) {
		req.ContentLength = -1
		req.Header.Set("Content-Type", "application/x-tar")
	})
	if err != nil {
		return providers.TreeReport{}, explain(body, err)
	}
	defer answer.Body.Close()
	var made protocol.TreeReport
	err = json.NewDecoder(io.LimitReader(answer.Body, maxMessage)).Decode(&made)
	if err != nil || made.Files < 0 || made.Directories < 0 || made.Links < 0 || made.Bytes < 0 || len(made.Stripped) > maxStripped {
		return providers.TreeReport{}, providers.Internal.Errorf("the sandbox did not confirm the archive: %w", err)
	}
	for i := range made.Stripped {
		made.Stripped[i] = clean(made.Stripped[i])
	}
	return providers.TreeReport(made), nil
}
