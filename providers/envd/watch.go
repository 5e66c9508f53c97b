package envd

import (
	"context"
	"io"

	"sandyard/guest/envdpb/filesystem"
	"sandyard/providers"

	"connectrpc.com/connect"
)

// Watch is providers.Watcher.Watch.
func (s *Sandbox) Watch(ctx context.Context, path string, recursive bool, tell func(providers.FileEvent) error) error {
	if err := sendable(path); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // else Close would wait for the end of the stream
	stream, err := s.files.WatchDir(ctx, connect.NewRequest(&filesystem.WatchDirRequest{Path: path, Recursive: recursive}))
	if err != nil {
		return s.callError(err)
	}
	defer stream.Close()
	for stream.Receive() {
		event, ok := fileEvent(stream.Msg())
		if !ok {
			continue
		}
		if err := tell(event); err != nil {
			return err
		}
	}
	if err := stream.Err(); err != nil {
		return s.callError(err)
	}
	return s.unavailable(io.ErrUnexpectedEOF) // a watch has no end of its own
}

// fileEvent translates what the guest tells; false for what is nothing to tell.
func fileEvent(m *filesystem.WatchDirResponse) (providers.FileEvent, bool) {
	if m.GetStart() != nil {
		return providers.FileEvent{Op: providers.FileReady}, true
	}
	op, known := map[filesystem.EventType]providers.FileOp{
		filesystem.EventType_EVENT_TYPE_CREATE: providers.FileCreated, filesystem.EventType_EVENT_TYPE_WRITE: providers.FileWritten,
		filesystem.EventType_EVENT_TYPE_REMOVE: providers.FileRemoved, filesystem.EventType_EVENT_TYPE_RENAME: providers.FileRenamed,
		filesystem.EventType_EVENT_TYPE_CHMOD: providers.FileChmod,
	}[m.GetFilesystem().GetType()]
	return providers.FileEvent{Op: op, Name: storable(m.GetFilesystem().GetName())}, known
}
