package e2b

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strings"

	"connectrpc.com/connect"

	"sandyard/guest/envdpb/filesystem"
	"sandyard/providers"
	"sandyard/providers/remote"
)

// Stat implements providers.Files.
func (s *sandbox) Stat(ctx context.Context, given string) (providers.FileInfo, error) {
	abs, err := s.Sendable(given)
	if err != nil {
		return providers.FileInfo{}, err
	}
	return s.stat(ctx, abs)
}

func (s *sandbox) stat(ctx context.Context, abs string) (providers.FileInfo, error) {
	ctx, end := s.p.calls.Begin(ctx, s.backend)
	defer end()
	answer, err := s.system.Stat(ctx, connect.NewRequest(&filesystem.StatRequest{Path: abs}))
	if err != nil {
		return providers.FileInfo{}, s.Explain(ctx, abs, remote.ToStat, s.callError(ctx, err))
	}
	return s.named(answer.Msg.GetEntry(), abs)
}

// ListDir implements providers.Files. More than 10,000 entries are providers.TooLarge.
func (s *sandbox) ListDir(ctx context.Context, given string, depth int) ([]providers.FileInfo, error) {
	abs, err := s.Sendable(given)
	if err != nil {
		return nil, err
	}
	ctx, end := s.p.calls.Begin(ctx, s.backend)
	defer end()
	req := &filesystem.ListDirRequest{Path: abs, Depth: uint32(min(max(depth, 1), remote.MaxEntries))}
	answer, err := s.system.ListDir(ctx, connect.NewRequest(req))
	if err != nil {
		return nil, s.Explain(ctx, abs, remote.ToList, s.callError(ctx, err))
	}
	entries := answer.Msg.GetEntries()
	if len(entries) > remote.MaxEntries {
		return nil, providers.TooLarge.Errorf("'%s' holds more than %d entries", abs, remote.MaxEntries)
	}
	list := make([]providers.FileInfo, 0, len(entries))
	for _, e := range entries {
		info, err := fileInfo(e)
		if err != nil {
			return nil, err
		}
		list = append(list, info)
	}
	slices.SortFunc(list, func(a, b providers.FileInfo) int { return strings.Compare(a.Path, b.Path) })
	return list, nil
}

// MakeDir implements providers.Files.
func (s *sandbox) MakeDir(ctx context.Context, given string) (providers.FileInfo, error) {
	abs, err := s.Sendable(given)
	if err != nil {
		return providers.FileInfo{}, err
	}
	inside, end := s.p.calls.Begin(ctx, s.backend)
	defer end()
	answer, err := s.system.MakeDir(inside, connect.NewRequest(&filesystem.MakeDirRequest{Path: abs}))
	if err == nil {
		return s.named(answer.Msg.GetEntry(), abs)
	}
	err = s.callError(inside, err)
	if errors.Is(err, &providers.Error{Class: providers.FileExists}) {
		if info, statErr := s.stat(ctx, abs); statErr == nil && info.Type == "directory" {
			return info, nil
		}
	}
	return providers.FileInfo{}, s.Explain(ctx, abs, remote.ToMake, err)
}

// Move implements providers.Files.
func (s *sandbox) Move(ctx context.Context, from, to string) (providers.FileInfo, error) {
	source, err := s.Changeable(from)
	if err != nil {
		return providers.FileInfo{}, err
	}
	target, err := s.Changeable(to)
	if err != nil {
		return providers.FileInfo{}, err
	}
	ctx, end := s.p.calls.Begin(ctx, s.backend)
	defer end()
	answer, err := s.system.Move(ctx, connect.NewRequest(&filesystem.MoveRequest{Source: source, Destination: target}))
	if err != nil {
		err = s.Explain(ctx, source, remote.ToStat, s.callError(ctx, err))
		return providers.FileInfo{}, s.Explain(ctx, target, remote.ToMake, err)
	}
	return s.named(answer.Msg.GetEntry(), target)
}

// Remove implements providers.Files. The backend removes what is not there without a word.
func (s *sandbox) Remove(ctx context.Context, given string) error {
	abs, err := s.Changeable(given)
	if err != nil {
		return err
	}
	if _, err := s.stat(ctx, abs); err != nil {
		return err
	}
	ctx, end := s.p.calls.Begin(ctx, s.backend)
	defer end()
	_, err = s.system.Remove(ctx, connect.NewRequest(&filesystem.RemoveRequest{Path: abs}))
	if err != nil {
		return s.Explain(ctx, abs, remote.ToMake, s.callError(ctx, err))
	}
	return nil
}

// ReadFile implements providers.Files.
func (s *sandbox) ReadFile(ctx context.Context, given string, limit int64) ([]byte, error) {
	abs, err := s.Resolve(given)
	if err != nil {
		return nil, err
	}
	ctx, end := s.p.calls.Begin(ctx, s.backend)
	defer end()
	res, err := s.plain(ctx, http.MethodGet, s.filesURL(abs), nil, nil)
	if err != nil {
		return nil, s.Explain(ctx, abs, remote.ToRead, s.broken(ctx, err))
	}
	defer res.Body.Close()
	tooLarge := providers.TooLarge.Errorf(
		"path '%s' holds more than %d bytes; "+
			"download it with GET /v1/sandboxes/{id}/files/raw, or read a part of it with a command",
		abs,
		limit,
	)
	if res.ContentLength > limit {
		return nil, tooLarge
	}
	data, err := io.ReadAll(io.LimitReader(res.Body, limit+1))
	switch {
	case err != nil:
		return nil, s.broken(ctx, err)
	case int64(len(data)) > limit:
		return nil, tooLarge
	}
	return data, nil
}

func (s *sandbox) filesURL(abs string) string {
	query := url.Values{"path": {abs}}
	if s.user != "" {
		query.Set("username", s.user)
	}
	return "/files?" + query.Encode()
}

// named is an entry under the name that was asked for.
func (s *sandbox) named(e *filesystem.EntryInfo, abs string) (providers.FileInfo, error) {
	info, err := fileInfo(e)
	info.Path, info.Name = abs, path.Base(abs)
	return info, err
}

func fileInfo(e *filesystem.EntryInfo) (providers.FileInfo, error) {
	if !path.IsAbs(e.GetPath()) {
		return providers.FileInfo{}, providers.Internal.Errorf("the sandbox did not describe the file")
	}
	return providers.FileInfo{
		Name: remote.Storable(e.GetName()), Path: remote.Storable(e.GetPath()), Type: typeName(e), Size: max(e.GetSize(), 0),
		Mode: providers.Octal(e.GetMode()), Owner: remote.Storable(e.GetOwner()), Group: remote.Storable(e.GetGroup()),
		ModifiedAt: providers.Possible(e.GetModifiedTime().AsTime()), SymlinkTarget: remote.Storable(e.GetSymlinkTarget()),
	}, nil
}

// typeName tells a link by its target: E2B's envd says what that is in place of the link.
func typeName(e *filesystem.EntryInfo) string {
	switch {
	case e.GetSymlinkTarget() != "" || e.GetType() == filesystem.FileType_FILE_TYPE_SYMLINK:
		return "symlink"
	case e.GetType() == filesystem.FileType_FILE_TYPE_FILE:
		return "file"
	case e.GetType() == filesystem.FileType_FILE_TYPE_DIRECTORY:
		return "directory"
	}
	return "other"
}
