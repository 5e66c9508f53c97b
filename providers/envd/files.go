package envd

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"sandyard/guest/envdpb/filesystem"
	"sandyard/guest/protocol"
	"sandyard/providers"

	"connectrpc.com/connect"
)

const (
	maxEntries   = 10_000
	maxFileReply = 64 << 10 // bytes of the answer to an upload
)

// ReadFile is providers.Files.ReadFile.
func (s *Sandbox) ReadFile(ctx context.Context, path string, limit int64) ([]byte, error) {
	answer, err := s.do(ctx, http.MethodGet, filesURL(path), nil, func(r *http.Request) {
		r.Header.Set(protocol.MaxBytesHeader, strconv.FormatInt(limit, 10))
	})
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	tooLarge := providers.TooLarge.Errorf("path '%s' holds more than %d bytes; download it with GET /v1/sandboxes/{id}/files/raw, or read a part of it with a command", path, limit)
	if answer.ContentLength > limit {
		return nil, tooLarge
	}
	var data bytes.Buffer
	data.Grow(int(max(answer.ContentLength, 0)) + bytes.MinRead)
	if _, err := data.ReadFrom(io.LimitReader(answer.Body, limit+1)); err != nil {
		return nil, s.unavailable(err)
	}
	if int64(data.Len()) > limit {
		return nil, tooLarge
	}
	return data.Bytes(), nil
}

func filesURL(path string) string {
	return protocol.FilesPath + "?" + url.Values{"path": {path}}.Encode()
}

// WriteFile is providers.Files.WriteFile.
func (s *Sandbox) WriteFile(ctx context.Context, path string, data []byte, mode uint32) (providers.FileInfo, error) {
	size := int64(len(data))
	return s.save(ctx, path, bytes.NewReader(data), size, mode, func() int64 { return size })
}

// save makes a file of body, which has size bytes; negative = nobody knows. The guest must have taken as many as sent
// says in the end.
func (s *Sandbox) save(ctx context.Context, path string, body io.Reader, size int64, mode uint32, sent func() int64,
) (providers.FileInfo, error) {
	if path == "" {
		return providers.FileInfo{}, providers.InvalidPath.Errorf("the path is empty")
	}
	answer, err := s.do(ctx, http.MethodPost, filesURL(path), body, func(r *http.Request) {
		r.Header.Set("Content-Type", "application/octet-stream")
		if r.ContentLength = size; size == 0 {
			r.Body = http.NoBody
		}
		if mode != 0 {
			r.Header.Set(protocol.ModeHeader, strconv.FormatUint(uint64(mode), 8))
		}
	})
	if err != nil {
		return providers.FileInfo{}, err
	}
	defer answer.Body.Close()
	var written []protocol.FileEntry
	err = json.NewDecoder(io.LimitReader(answer.Body, maxFileReply)).Decode(&written)
	if err != nil || len(written) != 1 || written[0].Size != sent() {
		return providers.FileInfo{}, providers.Internal.Errorf("the sandbox did not confirm all %d bytes of '%s': %w", sent(), path, err)
	}
	return described(written[0]), nil
}

// Stat is providers.Files.Stat. Of a symbolic link it describes the link.
func (s *Sandbox) Stat(ctx context.Context, path string) (providers.FileInfo, error) {
	if err := sendable(path); err != nil {
		return providers.FileInfo{}, err
	}
	answer, err := s.files.Stat(ctx, connect.NewRequest(&filesystem.StatRequest{Path: path}))
	if err != nil {
		return providers.FileInfo{}, s.callError(err)
	}
	return fileInfo(answer.Msg.GetEntry()), nil
}

// ListDir is providers.Files.ListDir; more than 10,000 entries are providers.TooLarge.
func (s *Sandbox) ListDir(ctx context.Context, path string, depth int) ([]providers.FileInfo, error) {
	if err := sendable(path); err != nil {
		return nil, err
	}
	req := &filesystem.ListDirRequest{Path: path, Depth: uint32(min(max(depth, 1), maxEntries))}
	answer, err := s.files.ListDir(ctx, connect.NewRequest(req))
	if err != nil {
		return nil, s.callError(err)
	}
	entries := answer.Msg.GetEntries()
	if len(entries) > maxEntries {
		return nil, providers.TooLarge.Errorf("'%s' holds more than %d entries", path, maxEntries)
	}
	list := make([]providers.FileInfo, 0, len(entries))
	for _, e := range entries {
		list = append(list, fileInfo(e))
	}
	slices.SortFunc(list, func(a, b providers.FileInfo) int { return strings.Compare(a.Path, b.Path) })
	return list, nil
}

// MakeDir is providers.Files.MakeDir.
func (s *Sandbox) MakeDir(ctx context.Context, path string) (providers.FileInfo, error) {
	if err := sendable(path); err != nil {
		return providers.FileInfo{}, err
	}
	answer, err := s.files.MakeDir(ctx, connect.NewRequest(&filesystem.MakeDirRequest{Path: path}))
	if err != nil {
		return providers.FileInfo{}, s.callError(err)
	}
	return fileInfo(answer.Msg.GetEntry()), nil
}

// Move is providers.Files.Move.
func (s *Sandbox) Move(ctx context.Context, from, to string) (providers.FileInfo, error) {
	if err := sendable(from, to); err != nil {
		return providers.FileInfo{}, err
	}
	answer, err := s.files.Move(ctx, connect.NewRequest(&filesystem.MoveRequest{Source: from, Destination: to}))
	if err != nil {
		return providers.FileInfo{}, s.callError(err)
	}
	return fileInfo(answer.Msg.GetEntry()), nil
}

// Remove is providers.Files.Remove.
func (s *Sandbox) Remove(ctx context.Context, path string) error {
	if err := sendable(path); err != nil {
		return err
	}
	_, err := s.files.Remove(ctx, connect.NewRequest(&filesystem.RemoveRequest{Path: path}))
	if err != nil {
		return s.callError(err)
	}
	return nil
}

// sendable refuses what the protocol cannot carry, before it becomes an error of the transport.
func sendable(paths ...string) error {
	for _, p := range paths {
		if !plain(p) {
			return providers.InvalidPath.Errorf("the path holds a NUL byte or is not UTF-8")
		}
	}
	return nil
}

func fileInfo(e *filesystem.EntryInfo) providers.FileInfo {
	return providers.FileInfo{
		Name: storable(e.GetName()), Path: storable(e.GetPath()), Type: typeName(e.GetType()), Size: max(e.GetSize(), 0),
		Mode: providers.Octal(e.GetMode()), Owner: storable(e.GetOwner()), Group: storable(e.GetGroup()),
		ModifiedAt: providers.Possible(e.GetModifiedTime().AsTime()), SymlinkTarget: storable(e.GetSymlinkTarget()),
	}
}

func typeName(t filesystem.FileType) string {
	switch t {
	case filesystem.FileType_FILE_TYPE_FILE:
		return "file"
	case filesystem.FileType_FILE_TYPE_DIRECTORY:
		return "directory"
	case filesystem.FileType_FILE_TYPE_SYMLINK:
		return "symlink"
	default:
		return "other"
	}
}
