package envd_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sandyard/dev/testenv"
	"sandyard/guest/envdpb/filesystem"
	"sandyard/guest/envdpb/filesystem/filesystemconnect"
	"sandyard/providers/envd"

	"connectrpc.com/connect"
)

func watchClient(t *testing.T, e *engine) filesystemconnect.FilesystemClient {
	t.Helper()
	return filesystemconnect.NewFilesystemClient(outsider(t, e.sandbox(envd.Options{})), "http://guest", connect.WithProtoJSON())
}

func eventWord(e *filesystem.FilesystemEvent) string {
	return strings.ToLower(strings.TrimPrefix(e.GetType().String(), "EVENT_TYPE_")) + " " + e.GetName()
}

// watchStream starts a stream and reads its start event.
func watchStream(ctx context.Context, t *testing.T, c filesystemconnect.FilesystemClient, req *connect.Request[filesystem.WatchDirRequest]) *connect.ServerStreamForClient[filesystem.WatchDirResponse] {
	t.Helper()
	stream, err := c.WatchDir(ctx, req)
	must(t, err)
	t.Cleanup(func() { _ = stream.Close() })
	if !stream.Receive() || stream.Msg().GetStart() == nil {
		t.Fatalf("no start: %v, %v", stream.Msg(), stream.Err())
	}
	return stream
}

func TestWatchDir(t *testing.T) {
	t.Parallel()
	e := newEngine(t)
	must(t, os.Mkdir(filepath.Join(e.workDir, "d"), 0o755))
	req := connect.NewRequest(&filesystem.WatchDirRequest{Path: "d", Recursive: true, IncludeEntry: true})
	req.Header().Set("Keepalive-Ping-Interval", "1")
	stream := watchStream(patient(t), t, watchClient(t, e), req)
	if !stream.Receive() || stream.Msg().GetKeepalive() == nil {
		t.Fatalf("no keepalive: %v, %v", stream.Msg(), stream.Err())
	}
	must(t, os.Mkdir(filepath.Join(e.workDir, "d/sub"), 0o755))
	var got []string
	for len(got) < 4 && stream.Receive() {
		event := stream.Msg().GetFilesystem()
		if event == nil {
			continue
		}
		if got = append(got, eventWord(event)); event.GetName() == "sub" && event.GetEntry().GetPath() != e.workDir+"/d/sub" {
			t.Errorf("got the entry %v", event.GetEntry())
		}
		if len(got) == 1 { // sub is watched now
			must(t, os.WriteFile(filepath.Join(e.workDir, "d/sub/bad\xff"), []byte("text"), 0o644))
			must(t, os.Remove(filepath.Join(e.workDir, "d/sub/bad\xff")))
		}
	}
	if want := "create sub,create sub/bad\uFFFD,write sub/bad\uFFFD,remove sub/bad\uFFFD"; strings.Join(got, ",") != want {
		t.Errorf("got %q, %v", got, stream.Err())
	}
	must(t, os.Remove(filepath.Join(e.workDir, "d/sub")))
	must(t, os.Remove(filepath.Join(e.workDir, "d")))
	for stream.Receive() {
	}
	if connect.CodeOf(stream.Err()) != connect.CodeNotFound {
		t.Errorf("the end: got %v", stream.Err())
	}
}

func TestAFileCallIsToldAsOneWrite(t *testing.T) {
	t.Parallel()
	e := newEngine(t)
	s := e.sandbox(envd.Options{})
	c := filesystemconnect.NewFilesystemClient(outsider(t, s), "http://guest")
	stream := watchStream(patient(t), t, c, connect.NewRequest(&filesystem.WatchDirRequest{Path: ".", Recursive: true}))
	for range 2 {
		_, err := s.WriteFile(patient(t), "f", []byte("text"), 0)
		must(t, err)
	}
	must(t, os.Mkdir(filepath.Join(e.workDir, "last"), 0o755))
	var got []string
	for !slices.Contains(got, "create last") && stream.Receive() {
		got = append(got, eventWord(stream.Msg().GetFilesystem()))
	}
	if want := "create f,write f,write f,create last"; strings.Join(got, ",") != want {
		t.Errorf("got %q, %v", got, stream.Err())
	}
}

func TestWatchErrors(t *testing.T) {
	t.Parallel()
	e := newEngine(t)
	furnish(t, e)
	c := watchClient(t, e)
	for path, want := range map[string]connect.Code{
		"absent": connect.CodeNotFound, "real": connect.CodeInvalidArgument, "out": connect.CodeInvalidArgument,
		"/etc": connect.CodeInvalidArgument, "~nobody": connect.CodeInvalidArgument,
	} {
		_, err := c.CreateWatcher(patient(t), connect.NewRequest(&filesystem.CreateWatcherRequest{Path: path}))
		if connect.CodeOf(err) != want {
			t.Errorf("create %q: got %v", path, err)
		}
		stream, err := c.WatchDir(patient(t), connect.NewRequest(&filesystem.WatchDirRequest{Path: path}))
		must(t, err)
		if stream.Receive() || connect.CodeOf(stream.Err()) != want {
			t.Errorf("watch %q: got %v", path, stream.Err())
		}
		must(t, stream.Close())
	}
	_, err := c.GetWatcherEvents(patient(t), connect.NewRequest(&filesystem.GetWatcherEventsRequest{WatcherId: "none"}))
	if connect.CodeOf(err) != connect.CodeNotFound {
		t.Errorf("got %v", err)
	}
	_, err = c.RemoveWatcher(patient(t), connect.NewRequest(&filesystem.RemoveWatcherRequest{WatcherId: "none"}))
	if connect.CodeOf(err) != connect.CodeNotFound {
		t.Errorf("got %v", err)
	}
}

// A watcher belongs to no connection; it is asked until it has told what is expected.
func TestPollingWatcher(t *testing.T) {
	t.Parallel()
	e := newEngine(t)
	c := watchClient(t, e)
	ctx := patient(t)
	made, err := c.CreateWatcher(ctx, connect.NewRequest(&filesystem.CreateWatcherRequest{Path: ".", IncludeEntry: true}))
	must(t, err)
	id := made.Msg.GetWatcherId()
	must(t, os.WriteFile(filepath.Join(e.workDir, "f"), []byte("text"), 0o644))
	var got []string
	testenv.Eventually(t, "the write was told", func() bool {
		answer, err := c.GetWatcherEvents(ctx, connect.NewRequest(&filesystem.GetWatcherEventsRequest{WatcherId: id}))
		must(t, err)
		for _, event := range answer.Msg.GetEvents() {
			if got = append(got, eventWord(event)); event.GetEntry().GetType() != filesystem.FileType_FILE_TYPE_FILE {
				t.Errorf("got the entry %v", event.GetEntry())
			}
		}
		return slices.Contains(got, "write f")
	})
	if got[0] != "create f" {
		t.Errorf("got %q", got)
	}
	_, err = c.RemoveWatcher(ctx, connect.NewRequest(&filesystem.RemoveWatcherRequest{WatcherId: id}))
	must(t, err)
	_, err = c.GetWatcherEvents(ctx, connect.NewRequest(&filesystem.GetWatcherEventsRequest{WatcherId: id}))
	if connect.CodeOf(err) != connect.CodeNotFound {
		t.Errorf("got %v", err)
	}
}

func TestWatchersAreBounded(t *testing.T) {
	t.Parallel()
	e := newEngine(t)
	c := watchClient(t, e)
	ctx := patient(t)
	create := func() (string, error) {
		answer, err := c.CreateWatcher(ctx, connect.NewRequest(&filesystem.CreateWatcherRequest{Path: "."}))
		if err != nil {
			return "", err
		}
		return answer.Msg.GetWatcherId(), nil
	}
	streaming, leave := context.WithCancel(ctx)
	watchStream(streaming, t, c, connect.NewRequest(&filesystem.WatchDirRequest{Path: "."}))
	var ids []string
	for range 15 {
		id, err := create()
		must(t, err)
		ids = append(ids, id)
	}
	if _, err := create(); connect.CodeOf(err) != connect.CodeResourceExhausted {
		t.Errorf("one more: got %v", err)
	}
	leave()
	testenv.Eventually(t, "the place of a stream that was left is free", func() bool {
		_, err := create()
		return err == nil
	})
	_, err := c.RemoveWatcher(ctx, connect.NewRequest(&filesystem.RemoveWatcherRequest{WatcherId: ids[0]}))
	must(t, err)
	_, err = create()
	must(t, err)
}

func TestAWatcherThatIsAskedTooSeldomEnds(t *testing.T) {
	t.Parallel()
	e := newEngine(t)
	c := watchClient(t, e)
	ctx := patient(t)
	deep := strings.Repeat("/"+strings.Repeat("n", 250), 14) // makes an event of 3.5 KB
	must(t, os.MkdirAll(e.workDir+deep, 0o755))
	made, err := c.CreateWatcher(ctx, connect.NewRequest(&filesystem.CreateWatcherRequest{Path: ".", Recursive: true}))
	must(t, err)
	files, told := 0, 0
	testenv.Eventually(t, "more events come between two questions than are kept", func() bool {
		for range 1000 {
			files++
			must(t, os.Mkdir(fmt.Sprint(e.workDir, deep, "/", files), 0o755))
		}
		answer, err := c.GetWatcherEvents(ctx, connect.NewRequest(&filesystem.GetWatcherEventsRequest{WatcherId: made.Msg.GetWatcherId()}))
		if err != nil {
			return connect.CodeOf(err) == connect.CodeResourceExhausted
		}
		told += len(answer.Msg.GetEvents())
		return false
	})
	if told < 500 || told > files {
		t.Errorf("%d events of %d were told", told, files)
	}
}

// In a sandbox the guest runs as nobody in particular, and is shielded from processes of the same user.
func TestAGuestWithoutRightsWatches(t *testing.T) {
	t.Parallel()
	unprivileged := guestAsProcess1()
	unprivileged.Args = slices.Insert(unprivileged.Args, 1, "--setgid", "1000", "--setuid", "1000")
	must(t, os.Chmod(testBinaries, 0o755))
	e := startEngine(t, unprivileged)
	must(t, os.Chmod(filepath.Dir(e.workDir), 0o755))
	must(t, os.Chown(e.workDir, 1000, 1000))
	stream := watchStream(patient(t), t, watchClient(t, e), connect.NewRequest(&filesystem.WatchDirRequest{Path: ".", Recursive: true}))
	must(t, os.Mkdir(filepath.Join(e.workDir, "d"), 0o755))
	if !stream.Receive() || stream.Msg().GetFilesystem().GetName() != "d" {
		t.Fatalf("got %v, %v", stream.Msg(), stream.Err())
	}
	must(t, os.Mkdir(filepath.Join(e.workDir, "d/e"), 0o755))
	if !stream.Receive() || stream.Msg().GetFilesystem().GetName() != "d/e" {
		t.Fatalf("got %v, %v", stream.Msg(), stream.Err())
	}
}
