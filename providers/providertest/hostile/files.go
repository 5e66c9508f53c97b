package hostile

import (
	"context"
	"slices"
	"strings"
	"testing"

	"sandyard/providers"
	"sandyard/providers/providertest/fixture"
)

// links tries every file call on links that lead out of the sandbox's roots.
func links(t *testing.T, s *fixture.Suite) {
	s.NeedsSystem(t)
	if s.Caps.Files == providers.Unsupported {
		t.Skip("skipped: the provider declares files unsupported")
	}
	r := s.NewRoom(t)
	res := fixture.Run(t, r, python(`
import os
os.chdir("/workspace")
os.symlink("/etc/passwd", "file"); os.symlink("/etc", "dir"); os.symlink("/proc/1/root", "proc"); os.symlink("/proc/self/root/etc", "self")
os.symlink("../../../../etc", "up"); os.symlink("/proc/1/environ", "environ"); os.symlink("/etc/new", "dangling"); os.symlink("a", "b"); os.symlink("b", "a")
os.mkdir("real"); os.symlink("/workspace/real/../../etc", "real/way"); open("mine", "w").close()
for source, name in [("/etc/passwd", "h1"), ("/proc/1/environ", "h2"), ("/.sandyard/guest", "h3"), ("/bin/bash", "h4")]:
    try: os.link(source, name); print("hard", source)
    except OSError: pass`))
	if len(res.Stdout) > 0 || res.ExitCode != 0 {
		t.Errorf("hard links out of the roots: %s", fixture.Show(res))
	}
	for _, path := range []string{
		"file", "dir/passwd", "proc/etc/passwd", "self/passwd", "up/passwd", "environ",
		"dangling", "a", "real/way/passwd",
	} {
		staysInside(t, r, path)
	}
	res = fixture.Shell(t, r, "ls /etc/new /etc/moved 2>/dev/null; head -c 5 /etc/passwd")
	if string(res.Stdout) != "root:" {
		t.Errorf("/etc now: %s", fixture.Show(res))
	}
	if found := fixture.Paths(t, r, ".", 100); len(found) > 20 {
		t.Errorf("a list went through links: %v", found)
	}
	goesOn(t, r)
}

// staysInside makes every call on a path that leads outside through a link. Calls on the link itself are the user's own
// affair: to move or remove it, or to put a file in its place.
func staysInside(t *testing.T, r fixture.Room, path string) {
	ctx := fixture.Within(t)
	isLink := !strings.Contains(path, "/")
	for name, call := range map[string]func(context.Context) error{
		"read":      func(ctx context.Context) error { _, err := r.ReadFile(ctx, path, 1<<20); return err },
		"list":      func(ctx context.Context) error { _, err := r.ListDir(ctx, path, 2); return err },
		"make":      func(ctx context.Context) error { _, err := r.MakeDir(ctx, path+"/moved"); return err },
		"write":     func(ctx context.Context) error { _, err := r.WriteFile(ctx, path+"/new", []byte("x"), 0); return err },
		"move to":   func(ctx context.Context) error { _, err := r.Move(ctx, "mine", path+"/moved"); return err },
		"move from": func(ctx context.Context) error { _, err := r.Move(ctx, path+"/x", "mine"); return err },
		"remove":    func(ctx context.Context) error { return r.Remove(ctx, path+"/x") },
		"open file": func(ctx context.Context) error { _, err := fixture.ReadAll(r.OpenFile(ctx, path, 0, -1)); return err },
		"save file": func(ctx context.Context) error {
			_, err := r.SaveFile(ctx, path+"/new", strings.NewReader("x"), 1, 0)
			return err
		},
		"open tree": func(ctx context.Context) error { _, err := fixture.ReadAll(r.OpenTree(ctx, path, false)); return err },
		"save tree": func(ctx context.Context) error {
			_, err := r.SaveTree(ctx, path, fixture.TarOf("new", "x"))
			return err
		},
		"save tree below": func(ctx context.Context) error {
			_, err := r.SaveTree(ctx, path+"/moved", fixture.TarOf("new", "x"))
			return err
		},
		"watch": func(ctx context.Context) error {
			w, ok := r.Sandbox.(providers.Watcher)
			if !ok {
				return fixture.ErrSeen
			}
			_, err := fixture.WatchAWhile(ctx, w, path)
			return err
		},
	} {
		if err := call(ctx); err == nil {
			t.Errorf("%s of %s succeeds", name, path)
		}
	}
	if !isLink {
		_, err := r.Stat(ctx, path)
		fixture.WantClass(t, err, providers.InvalidPath)
	}
}

// flippingLinks makes file calls on a directory that a program all the while replaces by a link out of the roots.
func flippingLinks(t *testing.T, s *fixture.Suite) {
	s.NeedsSystem(t)
	if s.Caps.Files == providers.Unsupported {
		t.Skip("skipped: the provider declares files unsupported")
	}
	r := s.NewRoom(t)
	until(t, r, python(`
import ctypes, os
os.chdir("/workspace")
os.mkdir("flip"); open("flip/passwd", "w").write("mine\n"); os.symlink("/etc", "out")
libc, both = ctypes.CDLL(None), ctypes.c_uint(2)
open("begun", "w").close()
while True: libc.renameat2(-100, b"flip", -100, b"out", both)`), func() bool { _, err := r.Stat(t.Context(), "begun"); return err == nil })
	for range 60 {
		if data, err := r.ReadFile(fixture.Within(t), "flip/passwd", 1<<20); err == nil &&
			strings.HasPrefix(string(data), "root:") {
			t.Fatal("a file call read the image's /etc/passwd")
		}
		found, err := r.ListDir(fixture.Within(t), "flip", 1)
		if err == nil && slices.ContainsFunc(found, func(f providers.FileInfo) bool { return f.Name == "group" }) {
			t.Fatalf("a file call listed the image's /etc: %d entries", len(found))
		}
		_, _ = r.WriteFile(fixture.Within(t), "flip/new", []byte("x"), 0)
		_ = r.Remove(fixture.Within(t), "flip/hosts")
	}
	if res := fixture.Shell(t, r, "ls /etc/new 2>/dev/null; head -c 5 /etc/passwd"); string(res.Stdout) != "root:" {
		t.Errorf("/etc now: %s", fixture.Show(res))
	}
}

// neighbours lets one sandbox look for what another holds: files, memory, sockets, processes.
func neighbours(t *testing.T, s *fixture.Suite) {
	s.NeedsSystem(t)
	victim, thief := s.NewRoom(t), s.NewRoom(t)
	secret := fixture.NewID(t)
	until(t, victim, python(`
import os, socket, signal, sys
name = sys.argv[1]
for path in ["/workspace/", "/tmp/", "/dev/shm/"]: open(path + name, "w").write(name)
s = socket.socket(socket.AF_UNIX); s.bind("\0" + name); s.listen()
tcp = socket.socket(); tcp.bind(("127.0.0.1", 7007)); tcp.listen()
open("/workspace/begun", "w").close()
signal.pause()`, secret), func() bool { _, err := victim.Stat(t.Context(), "begun"); return err == nil })
	res := fixture.Run(t, thief, python(`
import os, socket, sys
name = sys.argv[1][::-1]
for dir, dirs, files in os.walk("/"):
    if dir.startswith(("/proc", "/sys", "/usr")): dirs.clear(); continue
    if name in files: print("file", dir)
for pid in filter(str.isdigit, os.listdir("/proc")):
    if int(pid) == os.getpid(): continue
    try:
        if name.encode() in open("/proc/%s/cmdline" % pid, "rb").read(): print("process", pid)
    except OSError: pass
for family, address in [(socket.AF_UNIX, "\0" + name), (socket.AF_INET, ("127.0.0.1", 7007))]:
    try: socket.socket(family).connect(address); print("socket", address)
    except OSError: pass
print("looked", len(os.listdir("/workspace")))`, reversed(secret)))
	if string(res.Stdout) != "looked 0\n" {
		t.Errorf("one sandbox found of another: %s", fixture.Show(res))
	}
	fixture.WantFile(t, victim, secret, secret)
}

func reversed(s string) string {
	var b strings.Builder
	for i := len(s) - 1; i >= 0; i-- {
		b.WriteByte(s[i])
	}
	return b.String()
}
