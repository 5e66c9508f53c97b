package envd_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"sandyard/dev/testenv"
	"sandyard/guest/envdpb/filesystem"
	"sandyard/guest/envdpb/filesystem/filesystemconnect"
	"sandyard/providers"
	"sandyard/providers/envd"

	"connectrpc.com/connect"
)

// emptyMount mounts a file system of its own at "mounted": an empty directory, served as FUSE asks for it.
const emptyMount = `
import ctypes, os, struct
UNKNOWN, NOT_THERE = -38, -2
os.mkdir("mounted")
fuse = os.open("/dev/fuse", os.O_RDWR)
options = b"fd=%d,rootmode=40000,user_id=0,group_id=0" % fuse
libc = ctypes.CDLL(None, use_errno=True)
if libc.mount(b"test", b"mounted", b"fuse", 6, options) != 0:
    raise OSError(ctypes.get_errno(), "mount")
attributes = struct.pack("<QII6Q10I", 60, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0o40755, 2, 0, 0, 0, 512, 0)
answers = {
    26: struct.pack("<IIIIHHI", 7, 22, 0, 0, 0, 0, 4096), # INIT
    3: attributes, # GETATTR
    17: struct.pack("<5Q10I", *[0] * 5, 512, 255, 512, *[0] * 7), # STATFS
    27: struct.pack("<QII", 0, 0, 0), # OPENDIR
    28: b"", 29: b"", # READDIR, RELEASEDIR
}
open("ready", "w").close()
while True:
    length, op, unique = struct.unpack("<IIQ", os.read(fuse, 1 << 17)[:16])
    if op in (2, 36, 42): # FORGET, INTERRUPT, BATCH_FORGET
        continue
    body = answers.get(op)
    error = 0 if body is not None else NOT_THERE if op == 1 else UNKNOWN
    body = body or b""
    os.write(fuse, struct.pack("<IiQ", 16 + len(body), error, unique) + body)
`

// TestNetworkMountsAreWatchedOnDemand: of a file system whose files change unseen a watch tells only who says that he
// knows. FUSE counts as one.
func TestNetworkMountsAreWatchedOnDemand(t *testing.T) {
	t.Parallel()
	if f, err := os.OpenFile("/dev/fuse", os.O_RDWR, 0); err != nil {
		t.Skipf("a file system that counts as one of the network is served by FUSE: %v", err)
	} else {
		_ = f.Close()
	}
	e := newEngine(t)
	s := e.sandbox(envd.Options{})
	must(t, os.WriteFile(filepath.Join(e.workDir, "mount.py"), []byte(emptyMount), 0o644))
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan providers.Result, 1)
	go func() {
		r, _ := s.Run(ctx, providers.Command{Name: "mount", Argv: []string{"python3", "mount.py"}})
		ended <- r
	}()
	t.Cleanup(func() {
		cancel()
		<-ended
	})
	testenv.Eventually(t, "it is mounted", func() bool {
		select {
		case r := <-ended:
			ended <- r
			t.Fatalf("the mount ended: %s", r.Stderr)
		default:
		}
		_, err := os.Stat(filepath.Join(e.workDir, "ready"))
		return err == nil
	})
	hc, base := s.HTTP()
	c := filesystemconnect.NewFilesystemClient(hc, base)
	for _, allowed := range []bool{false, true} {
		err := watchOnce(t, c, &filesystem.WatchDirRequest{Path: "mounted", AllowNetworkMounts: allowed})
		if allowed && err != nil {
			t.Errorf("a watch that allows it: %v", err)
		}
		if !allowed && (connect.CodeOf(err) != connect.CodeInvalidArgument || !strings.Contains(err.Error(), "network")) {
			t.Errorf("a watch that does not: %v", err)
		}
		_, err = c.CreateWatcher(patient(t), connect.NewRequest(&filesystem.CreateWatcherRequest{Path: "mounted", AllowNetworkMounts: allowed}))
		if (err == nil) != allowed {
			t.Errorf("a watcher that allows it: %v, got %v", allowed, err)
		}
	}
}

// watchOnce watches until the first event.
func watchOnce(t *testing.T, c filesystemconnect.FilesystemClient, req *filesystem.WatchDirRequest) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	stream, err := c.WatchDir(ctx, connect.NewRequest(req))
	if err != nil {
		return err
	}
	defer stream.Close()
	defer cancel()
	if !stream.Receive() {
		return stream.Err()
	}
	return nil
}
