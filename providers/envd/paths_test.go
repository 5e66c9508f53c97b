package envd_test

import (
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sandyard/guest/envdpb/filesystem"
	"sandyard/guest/envdpb/filesystem/filesystemconnect"
	"sandyard/guest/envdpb/process"
	"sandyard/guest/envdpb/process/processconnect"
	"sandyard/providers"
	"sandyard/providers/envd"

	"connectrpc.com/connect"
)

// newHome starts a guest whose home directory is its work directory, as sandboxes have it.
func newHome(t *testing.T) *engine {
	t.Helper()
	cmd := guestAsProcess1()
	cmd.Env = slices.DeleteFunc(os.Environ(), func(pair string) bool { return strings.HasPrefix(pair, "HOME=") })
	return startEngine(t, cmd)
}

// TestPathsOfEnvdsClients: what they may call a place, in every call that takes a path.
func TestPathsOfEnvdsClients(t *testing.T) {
	t.Parallel()
	e := newHome(t)
	hc := outsider(t, e.sandbox(envd.Options{}))
	ctx := patient(t)
	c := filesystemconnect.NewFilesystemClient(hc, "http://guest")
	for i, path := range []string{"~/x", "/home/user/y"} {
		if code, text := ask(t, hc, "POST", "/files?username=user&path="+path, "text", "Content-Type", "application/octet-stream"); code != 200 {
			t.Errorf("write %s: %d %s", path, code, text)
		}
		if code, text := ask(t, hc, "GET", "/files?username=user&path="+path, ""); code != 200 || text != "text" {
			t.Errorf("read %s: %d %s", path, code, text)
		}
		for _, dir := range []string{"", "~", "/home/user", "."} {
			list, err := c.ListDir(ctx, connect.NewRequest(&filesystem.ListDirRequest{Path: dir}))
			must(t, err)
			if n := len(list.Msg.GetEntries()); n != i+1 {
				t.Errorf("list %q: %d entries", dir, n)
			}
		}
	}
	if code, text := ask(t, hc, "POST", "/files/compose", `{"source_paths":["~/x","/home/user/y"],"destination":"~/z","username":"user"}`); code != 200 {
		t.Errorf("compose: %d %s", code, text)
	}
	if text, err := os.ReadFile(filepath.Join(e.workDir, "z")); err != nil || string(text) != "texttext" {
		t.Errorf("composed %q, %v", text, err)
	}
	watcher, err := c.CreateWatcher(ctx, connect.NewRequest(&filesystem.CreateWatcherRequest{Path: "/home/user"}))
	must(t, err)
	_, err = c.RemoveWatcher(ctx, connect.NewRequest(&filesystem.RemoveWatcherRequest{WatcherId: watcher.Msg.GetWatcherId()}))
	must(t, err)
	_, err = c.Stat(ctx, connect.NewRequest(&filesystem.StatRequest{Path: "~root/x"}))
	if connect.CodeOf(err) != connect.CodeInvalidArgument {
		t.Errorf("another user's home: %v", err)
	}
}

// TestWorkDirectoriesOfEnvdsClients: and of ours, who may call their home so.
func TestWorkDirectoriesOfEnvdsClients(t *testing.T) {
	t.Parallel()
	e := newHome(t)
	s := e.sandbox(envd.Options{})
	must(t, os.Mkdir(filepath.Join(e.workDir, "sub"), 0o755))
	hc := outsider(t, s)
	hc.Transport = withHeaders{hc.Transport, http.Header{"Authorization": {"Basic dXNlcjo="}}} // user:
	c := processconnect.NewProcessClient(hc, "http://guest", connect.WithProtoJSON())
	for dir, want := range map[string]string{"~": ".", "~/sub": "sub", "/home/user": ".", "/home/user/sub": "sub", "": ".", "sub": "sub"} {
		req := &process.StartRequest{Process: &process.ProcessConfig{Cmd: "pwd", Cwd: &dir}}
		stream, o := startPlain(patient(t), t, c, req)
		finishPlain(t, stream, o)
		if o.stdout != filepath.Join(e.workDir, want)+"\n" {
			t.Errorf("%q is %q", dir, o.stdout)
		}
	}
	if r := run(t, s, providers.Command{Name: "own", Argv: []string{"pwd"}, Dir: "~/sub"}); string(r.Stdout) != filepath.Join(e.workDir, "sub")+"\n" {
		t.Errorf("our own: %+v", r)
	}
	if r := run(t, s, providers.Command{Name: "moved", Shell: "pwd", Dir: "~", Env: map[string]string{"HOME": "/"}}); string(r.Stdout) != "/\n" {
		t.Errorf("in the command's own home: %+v", r)
	}
}

// TestEnvdsClientsReadTheImage: they see what commands see, the worker's calls only what is the sandbox's own.
func TestEnvdsClientsReadTheImage(t *testing.T) {
	t.Parallel()
	s := newEngine(t).sandbox(envd.Options{})
	hc := outsider(t, s)
	ctx := patient(t)
	passwd, err := os.ReadFile("/etc/passwd")
	must(t, err)
	if code, text := ask(t, hc, "GET", "/files?path=/etc/passwd", ""); code != 200 || text != string(passwd) {
		t.Errorf("read: %d %s", code, text)
	}
	c := filesystemconnect.NewFilesystemClient(hc, "http://guest")
	list, err := c.ListDir(ctx, connect.NewRequest(&filesystem.ListDirRequest{Path: "/"}))
	must(t, err)
	if len(list.Msg.GetEntries()) < 5 {
		t.Errorf("list: %v", list.Msg)
	}
	_, err = c.Stat(ctx, connect.NewRequest(&filesystem.StatRequest{Path: "/etc/passwd"}))
	must(t, err)
	_, err = c.Stat(ctx, connect.NewRequest(&filesystem.StatRequest{Path: "/etc/no-such-file"}))
	if connect.CodeOf(err) != connect.CodeNotFound {
		t.Errorf("what is not there: %v", err)
	}
	for _, target := range []string{"/proc/1/environ", "/proc/self/mem", "/dev/stdin"} {
		if code, text := ask(t, hc, "GET", "/files?path="+target, ""); code != 403 && code != 400 {
			t.Errorf("%s: %d %.20s", target, code, text)
		}
	}
	if code, _ := ask(t, hc, "POST", "/files?path=/etc/sandyard-test", "x", "Content-Type", "application/octet-stream"); code != 400 {
		t.Errorf("write: %d", code)
	}
	if _, err = s.ReadFile(ctx, "/etc/passwd", 1<<20); !errors.Is(err, &providers.Error{Class: providers.InvalidPath}) {
		t.Errorf("the worker's own call: %v", err)
	}
}
