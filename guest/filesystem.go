package guest

import (
	"context"
	"io/fs"
	"strings"

	"sandyard/guest/envdpb/filesystem"
	"sandyard/guest/files"
	"sandyard/guest/protocol"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// filesystemService is envd's filesystem.Filesystem.
type filesystemService struct {
	files    *files.Tree
	watchers *watchers
	// lenient answers as envd does: a directory that exists is an error, a path to remove that does not exist is none.
	lenient bool
}

// Stat describes a path.
func (s *filesystemService) Stat(
	_ context.Context,
	req *connect.Request[filesystem.StatRequest],
) (*connect.Response[filesystem.StatResponse], error) {
	e, err := s.files.Stat(req.Msg.GetPath())
	return connect.NewResponse(&filesystem.StatResponse{Entry: entryInfo(e)}), connectError(err)
}

// MakeDir makes a directory with its parents.
func (s *filesystemService) MakeDir(
	_ context.Context,
	req *connect.Request[filesystem.MakeDirRequest],
) (*connect.Response[filesystem.MakeDirResponse], error) {
	path := req.Msg.GetPath()
	if found, err := s.files.Stat(path); s.lenient && err == nil && found.Mode.IsDir() {
		return nil, connectError(protocol.Errorf(protocol.ReasonExists, "directory already exists: %s", found.Path))
	}
	e, err := s.files.MakeDir(path)
	return connect.NewResponse(&filesystem.MakeDirResponse{Entry: entryInfo(e)}), connectError(err)
}

// Move renames a file or directory.
func (s *filesystemService) Move(
	_ context.Context,
	req *connect.Request[filesystem.MoveRequest],
) (*connect.Response[filesystem.MoveResponse], error) {
	e, err := s.files.Move(req.Msg.GetSource(), req.Msg.GetDestination())
	return connect.NewResponse(&filesystem.MoveResponse{Entry: entryInfo(e)}), connectError(err)
}

// ListDir lists a directory.
func (s *filesystemService) ListDir(
	_ context.Context,
	req *connect.Request[filesystem.ListDirRequest],
) (*connect.Response[filesystem.ListDirResponse], error) {
	entries, err := s.files.List(req.Msg.GetPath(), int(req.Msg.GetDepth()))
	answer := &filesystem.ListDirResponse{Entries: make([]*filesystem.EntryInfo, 0, len(entries))}
	for _, e := range entries {
		answer.Entries = append(answer.Entries, entryInfo(e))
	}
	return connect.NewResponse(answer), connectError(err)
}

// Remove deletes a file or directory.
func (s *filesystemService) Remove(
	_ context.Context,
	req *connect.Request[filesystem.RemoveRequest],
) (*connect.Response[filesystem.RemoveResponse], error) {
	err := s.files.Remove(req.Msg.GetPath())
	if s.lenient && err != nil && refusal(err).Reason == protocol.ReasonFileNotFound {
		err = nil
	}
	return connect.NewResponse(&filesystem.RemoveResponse{}), connectError(err)
}

func entryInfo(e files.Entry) *filesystem.EntryInfo {
	info := &filesystem.EntryInfo{
		Name: valid(e.Name), Path: valid(e.Path), Type: entryType(e.Mode), Size: e.Size,
		Mode: uint32(e.Mode.Perm()), Permissions: e.Mode.String(),
		Owner: valid(e.Owner), Group: valid(e.Group), ModifiedTime: timestamppb.New(e.ModifiedAt), Metadata: e.Metadata,
	}
	if e.Target != "" {
		info.SymlinkTarget = new(valid(e.Target))
	}
	return info
}

// valid replaces what the protocol cannot carry: a name may hold any bytes, and one such must not hide all others.
func valid(name string) string { return strings.ToValidUTF8(name, "\uFFFD") }

func entryType(mode fs.FileMode) filesystem.FileType {
	switch {
	case mode.IsRegular():
		return filesystem.FileType_FILE_TYPE_FILE
	case mode.IsDir():
		return filesystem.FileType_FILE_TYPE_DIRECTORY
	case mode.Type() == fs.ModeSymlink:
		return filesystem.FileType_FILE_TYPE_SYMLINK
	default:
		return filesystem.FileType_FILE_TYPE_UNSPECIFIED
	}
}
