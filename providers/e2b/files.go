package e2b

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"connectrpc.com/connect"

	"sandyard/guest/envdpb/filesystem"
	"sandyard/providers"
)

const (
	maxPath    = 4095 // bytes, as Linux has it
	maxName    = 255
	maxEntries = 10_000
	tempDir    = "/tmp"
	temporary  = ".sandyard-" // begins the names of what is there for a moment
)

// resolve is what a path means, as long as that is below a root. Links are the sandbox's own affair.
func (s *sandbox) resolve(given string) (string, error) {
	abs := given
	switch {
	case given == "":
		return "", providers.Errorf(providers.InvalidPath, "the path is empty")
	case strings.IndexByte(given, 0) >= 0:
		return "", providers.Errorf(providers.InvalidPath, "the path holds a NUL byte")
	case given == "~" || strings.HasPrefix(given, "~/"):
		abs = s.home + given[1:]
	case !path.IsAbs(given):
		abs = s.workDir + "/" + given
	}
	abs = path.Clean(abs)
	if len(abs) > maxPath ||
		slices.ContainsFunc(strings.Split(abs, "/"), func(n string) bool { return len(n) > maxName }) {
		return "", providers.Errorf(providers.InvalidPath, "the path is longer than Linux permits")
	}
	for _, root := range s.roots() {
		if abs == root || strings.HasPrefix(abs, root+"/") {
			return abs, nil
		}
	}
	return "", providers.Errorf(
		providers.InvalidPath,
		"path %.200q is outside of %s",
		given,
		strings.Join(s.roots(), ", "),
	)
}

func (s *sandbox) roots() []string {
	roots := []string{s.workDir, tempDir}
	if s.home != s.workDir && s.home != "/" {
		roots = append(roots, s.home)
	}
	return roots
}

// sendable resolves a path that goes into a message, which holds UTF-8.
func (s *sandbox) sendable(given string) (string, error) {
	if !utf8.ValidString(given) {
		return "", providers.Errorf(providers.InvalidPath, "the path is not UTF-8")
	}
	return s.resolve(given)
}

// changeable resolves a path that may be moved or removed.
func (s *sandbox) changeable(given string) (string, error) {
	abs, err := s.sendable(given)
	if err == nil && slices.Contains(s.roots(), abs) {
		err = providers.Errorf(providers.InvalidPath, "'%s' itself cannot be moved or removed", abs)
	}
	return abs, err
}

// Stat implements providers.Files.
func (s *sandbox) Stat(ctx context.Context, given string) (providers.FileInfo, error) {
	abs, err := s.sendable(given)
	if err != nil {
		return providers.FileInfo{}, err
	}
	return s.stat(ctx, abs)
}

func (s *sandbox) stat(ctx context.Context, abs string) (providers.FileInfo, error) {
	ctx, end := s.p.calls.begin(ctx, s.backend)
	defer end()
	answer, err := s.files.Stat(ctx, connect.NewRequest(&filesystem.StatRequest{Path: abs}))
	if err != nil {
		return providers.FileInfo{}, s.fileError(ctx, abs, toStat, s.callError(ctx, err))
	}
	return s.named(answer.Msg.GetEntry(), abs)
}

// ListDir implements providers.Files. More than 10,000 entries are providers.TooLarge.
func (s *sandbox) ListDir(ctx context.Context, given string, depth int) ([]providers.FileInfo, error) {
	abs, err := s.sendable(given)
	if err != nil {
		return nil, err
	}
	ctx, end := s.p.calls.begin(ctx, s.backend)
	defer end()
	req := &filesystem.ListDirRequest{Path: abs, Depth: uint32(min(max(depth, 1), maxEntries))}
	answer, err := s.files.ListDir(ctx, connect.NewRequest(req))
	if err != nil {
		return nil, s.fileError(ctx, abs, toList, s.callError(ctx, err))
	}
	entries := answer.Msg.GetEntries()
	if len(entries) > maxEntries {
		return nil, providers.Errorf(providers.TooLarge, "'%s' holds more than %d entries", abs, maxEntries)
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
	abs, err := s.sendable(given)
	if err != nil {
		return providers.FileInfo{}, err
	}
	inside, end := s.p.calls.begin(ctx, s.backend)
	defer end()
	answer, err := s.files.MakeDir(inside, connect.NewRequest(&filesystem.MakeDirRequest{Path: abs}))
	if err == nil {
		return s.named(answer.Msg.GetEntry(), abs)
	}
	err = s.callError(inside, err)
	if errors.Is(err, &providers.Error{Class: providers.FileExists}) {
		if info, statErr := s.stat(ctx, abs); statErr == nil && info.Type == "directory" {
			return info, nil
		}
	}
	return providers.FileInfo{}, s.fileError(ctx, abs, toMake, err)
}

// Move implements providers.Files.
func (s *sandbox) Move(ctx context.Context, from, to string) (providers.FileInfo, error) {
	source, err := s.changeable(from)
	if err != nil {
		return providers.FileInfo{}, err
	}
	target, err := s.changeable(to)
	if err != nil {
		return providers.FileInfo{}, err
	}
	ctx, end := s.p.calls.begin(ctx, s.backend)
	defer end()
	answer, err := s.files.Move(ctx, connect.NewRequest(&filesystem.MoveRequest{Source: source, Destination: target}))
	if err != nil {
		err = s.fileError(ctx, source, toStat, s.callError(ctx, err))
		return providers.FileInfo{}, s.fileError(ctx, target, toMake, err)
	}
	return s.named(answer.Msg.GetEntry(), target)
}

// Remove implements providers.Files. The backend removes what is not there without a word.
func (s *sandbox) Remove(ctx context.Context, given string) error {
	abs, err := s.changeable(given)
	if err != nil {
		return err
	}
	if _, err := s.stat(ctx, abs); err != nil {
		return err
	}
	ctx, end := s.p.calls.begin(ctx, s.backend)
	defer end()
	_, err = s.files.Remove(ctx, connect.NewRequest(&filesystem.RemoveRequest{Path: abs}))
	if err != nil {
		return s.fileError(ctx, abs, toMake, s.callError(ctx, err))
	}
	return nil
}

// ReadFile implements providers.Files.
func (s *sandbox) ReadFile(ctx context.Context, given string, limit int64) ([]byte, error) {
	abs, err := s.resolve(given)
	if err != nil {
		return nil, err
	}
	ctx, end := s.p.calls.begin(ctx, s.backend)
	defer end()
	res, err := s.plain(ctx, http.MethodGet, s.filesURL(abs), nil, nil)
	if err != nil {
		return nil, s.fileError(ctx, abs, toRead, s.broken(ctx, err))
	}
	defer res.Body.Close()
	tooLarge := providers.Errorf(
		providers.TooLarge,
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

// WriteFile implements providers.Files.
func (s *sandbox) WriteFile(ctx context.Context, given string, data []byte, mode uint32) (providers.FileInfo, error) {
	return s.SaveFile(ctx, given, bytes.NewReader(data), int64(len(data)), mode)
}

// named is an entry under the name that was asked for.
func (s *sandbox) named(e *filesystem.EntryInfo, abs string) (providers.FileInfo, error) {
	info, err := fileInfo(e)
	info.Path, info.Name = abs, path.Base(abs)
	return info, err
}

func fileInfo(e *filesystem.EntryInfo) (providers.FileInfo, error) {
	if !path.IsAbs(e.GetPath()) {
		return providers.FileInfo{}, providers.Errorf(providers.Internal, "the sandbox did not describe the file")
	}
	return providers.FileInfo{
		Name: storable(e.GetName()), Path: storable(e.GetPath()), Type: typeName(e), Size: max(e.GetSize(), 0),
		Mode: octal(e.GetMode()), Owner: storable(e.GetOwner()), Group: storable(e.GetGroup()),
		ModifiedAt: possible(e.GetModifiedTime().AsTime()), SymlinkTarget: storable(e.GetSymlinkTarget()),
	}, nil
}

// storable is text that a database takes.
func storable(text string) string {
	return strings.ReplaceAll(strings.ToValidUTF8(text, "�"), "\x00", "�")
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

func octal(mode uint32) string { return fmt.Sprintf("%04o", fs.FileMode(mode).Perm()) }

// possible is the nearest time that JSON can tell.
func possible(t time.Time) time.Time {
	first, last := time.Time{}, time.Date(9999, time.December, 31, 23, 59, 59, 0, time.UTC)
	switch {
	case t.Before(first):
		return first
	case t.After(last):
		return last
	}
	return t.UTC()
}
