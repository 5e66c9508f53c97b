package guest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"sandyard/guest/envdpb/filesystem"

	"connectrpc.com/connect"
)

// watchKeepalive is the time between keepalive events of a watch that asks for none, as in envd.
const watchKeepalive = 90 * time.Second

// WatchDir streams what happens in a directory. A stream that cannot go on without a gap ends with an error.
func (s *filesystemService) WatchDir(
	ctx context.Context,
	req *connect.Request[filesystem.WatchDirRequest],
	stream *connect.ServerStream[filesystem.WatchDirResponse],
) error {
	v, err := s.watchers.open(s.files, req.Msg)
	if err != nil {
		return connectError(err)
	}
	defer v.close()
	start := &filesystem.WatchDirResponse_Start{Start: &filesystem.WatchDirResponse_StartEvent{}}
	if err := stream.Send(&filesystem.WatchDirResponse{Event: start}); err != nil {
		return err
	}
	interval := cmp.Or(keepaliveOf(req.Header()), watchKeepalive)
	for {
		events, err := v.next(ctx, interval)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.Is(err, context.DeadlineExceeded):
			err = stream.Send(
				&filesystem.WatchDirResponse{
					Event: &filesystem.WatchDirResponse_Keepalive{Keepalive: &filesystem.WatchDirResponse_KeepAlive{}},
				},
			)
		case err != nil:
			return connectError(err)
		}
		for _, e := range events {
			err = errors.Join(
				err,
				stream.Send(&filesystem.WatchDirResponse{Event: &filesystem.WatchDirResponse_Filesystem{Filesystem: e}}),
			)
		}
		if err != nil {
			return err
		}
	}
}

// CreateWatcher begins to collect what happens in a directory, for GetWatcherEvents.
func (s *filesystemService) CreateWatcher(
	ctx context.Context,
	req *connect.Request[filesystem.CreateWatcherRequest],
) (*connect.Response[filesystem.CreateWatcherResponse], error) {
	id, err := s.watchers.create(ctx, s.files, req.Msg)
	return connect.NewResponse(&filesystem.CreateWatcherResponse{WatcherId: id}), connectError(err)
}

// GetWatcherEvents answers with what has happened since the last call. When a watcher has ended it answers with the
// rest first and then with the reason.
func (s *filesystemService) GetWatcherEvents(
	_ context.Context,
	req *connect.Request[filesystem.GetWatcherEventsRequest],
) (*connect.Response[filesystem.GetWatcherEventsResponse], error) {
	c, ok := s.watchers.find(req.Msg.GetWatcherId())
	if !ok {
		return nil, noWatcher(req.Msg.GetWatcherId())
	}
	events, err := c.take()
	return connect.NewResponse(&filesystem.GetWatcherEventsResponse{Events: events}), connectError(err)
}

// RemoveWatcher ends a watcher.
func (s *filesystemService) RemoveWatcher(
	_ context.Context,
	req *connect.Request[filesystem.RemoveWatcherRequest],
) (*connect.Response[filesystem.RemoveWatcherResponse], error) {
	if !s.watchers.remove(req.Msg.GetWatcherId()) {
		return nil, noWatcher(req.Msg.GetWatcherId())
	}
	return connect.NewResponse(&filesystem.RemoveWatcherResponse{}), nil
}

func noWatcher(id string) error {
	return connect.NewError(connect.CodeNotFound, fmt.Errorf("watcher with id %s not found", id))
}
