package envd_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"sandyard/providers"
	"sandyard/providers/envd"
)

func TestFilesComeBackAsWritten(t *testing.T) {
	t.Parallel()
	e := newEngine(t)
	s := e.sandbox(envd.Options{})
	ctx := patient(t)
	for path, data := range map[string][]byte{
		"text.txt":             []byte("hello\n"),
		"deep/er/empty":        {},
		"bin ary/ü \n&?#%":     {0, 0xff, 0xfe, '\n'},
		e.workDir + "/abs.bin": bytes.Repeat([]byte{1, 2, 3, 0}, 5<<20/4),
		"..dots..":             []byte("x"),
		"a/../b":               []byte("inside"),
	} {
		info, err := s.WriteFile(ctx, path, data, 0)
		must(t, err)
		if info.Size != int64(len(data)) || info.Mode != "0644" || info.Type != "file" || !filepath.IsAbs(info.Path) {
			t.Errorf("%q: got %+v", path, info)
		}
		got, err := s.ReadFile(ctx, path, 6<<20)
		must(t, err)
		if !bytes.Equal(got, data) {
			t.Errorf("%q came back with %d bytes of %d", path, len(got), len(data))
		}
	}
	info, err := s.WriteFile(ctx, "text.txt", []byte("#!/bin/sh\necho run\n"), 0o755)
	must(t, err)
	stat, err := s.Stat(ctx, "text.txt")
	must(t, err)
	if info.Mode != "0755" || stat.Mode != "0755" || stat.Path != info.Path || stat.Size != info.Size || stat.Owner != "root" {
		t.Errorf("wrote %+v, found %+v", info, stat)
	}
	if left, err := filepath.Glob(filepath.Join(e.workDir, ".sandyard-*")); err != nil || len(left) > 0 {
		t.Errorf("left over: %v, %v", left, err)
	}
}

func TestDirectories(t *testing.T) {
	t.Parallel()
	s := newEngine(t).sandbox(envd.Options{})
	ctx := patient(t)
	for _, path := range []string{"d/b", "d/sub/c", "d/a"} {
		_, err := s.WriteFile(ctx, path, []byte(path), 0)
		must(t, err)
	}
	made, err := s.MakeDir(ctx, "d/sub/empty/deep")
	must(t, err)
	if made.Type != "directory" {
		t.Errorf("made %+v", made)
	}
	_, err = s.MakeDir(ctx, "d/sub")
	must(t, err)
	for depth, want := range []string{"", "a b sub", "a b sub sub/c sub/empty", "a b sub sub/c sub/empty sub/empty/deep"} {
		if depth == 0 {
			continue
		}
		list, err := s.ListDir(ctx, "d", depth)
		must(t, err)
		var names []string
		for _, f := range list {
			_, rest, _ := strings.Cut(f.Path, "/d/")
			names = append(names, rest)
		}
		if got := strings.Join(names, " "); got != want {
			t.Errorf("depth %d: got %q, want %q", depth, got, want)
		}
	}
	_, err = s.Move(ctx, "d/a", "d/new/b")
	must(t, err)
	_, err = s.Move(ctx, "d/new/b", "d/b")
	must(t, err)
	if b, err := s.ReadFile(ctx, "d/b", 100); err != nil || string(b) != "d/a" {
		t.Errorf("moved %q, %v", b, err)
	}
	must(t, s.Remove(ctx, "d"))
	if _, err := s.Stat(ctx, "d"); class(t, err) != providers.FileNotFound {
		t.Errorf("got %v", err)
	}
}

// fileCalls are all calls that take a path.
func fileCalls(t *testing.T, s *envd.Sandbox) map[string]func(string) error {
	t.Helper()
	ctx := patient(t)
	return map[string]func(string) error{
		"read":      func(path string) error { _, err := s.ReadFile(ctx, path, 3); return err },
		"write":     func(path string) error { _, err := s.WriteFile(ctx, path, []byte("x"), 0); return err },
		"list":      func(path string) error { _, err := s.ListDir(ctx, path, 1); return err },
		"stat":      func(path string) error { _, err := s.Stat(ctx, path); return err },
		"mkdir":     func(path string) error { _, err := s.MakeDir(ctx, path); return err },
		"remove":    func(path string) error { return s.Remove(ctx, path) },
		"move to":   func(path string) error { _, err := s.Move(ctx, "real", path); return err },
		"move from": func(path string) error { _, err := s.Move(ctx, path, "elsewhere"); return err },
	}
}

// furnish fills a work directory with links in and out, and returns the directory outside.
func furnish(t *testing.T, e *engine) string {
	t.Helper()
	outside := t.TempDir()
	must(t, os.WriteFile(filepath.Join(outside, "secret"), []byte("secret"), 0o644))
	for link, to := range map[string]string{
		"out": outside, "passwd": "/etc/passwd", "dangling": filepath.Join(outside, "new"), "up": "../..",
		"loop": "loop", "inside": filepath.Join(e.workDir, "real"), "relative": "real",
	} {
		must(t, os.Symlink(to, filepath.Join(e.workDir, link)))
	}
	must(t, os.WriteFile(filepath.Join(e.workDir, "real"), []byte("real"), 0o644))
	must(t, os.Mkdir(filepath.Join(e.workDir, "dir"), 0o755))
	must(t, syscall.Mkfifo(filepath.Join(e.workDir, "fifo"), 0o644))
	return outside
}

func TestEveryCallRefusesAPathThatLeaves(t *testing.T) {
	t.Parallel()
	e := newEngine(t)
	outside := furnish(t, e)
	calls := fileCalls(t, e.sandbox(envd.Options{}))
	for _, path := range []string{
		"", "../x", "/etc/hosts", "a/../../x", "/", "nul\x00byte", strings.Repeat("n", 256),
		strings.Repeat("long/", 900), "out/secret", "out/new", "up/x", "loop/x", "not\xffutf8/\x00",
	} {
		for name, call := range calls {
			if err := call(path); class(t, err) != providers.InvalidPath {
				t.Errorf("%s %.40q: got %v", name, path, err)
			}
		}
	}
	if left, err := os.ReadDir(outside); err != nil || len(left) != 1 {
		t.Errorf("outside holds %v, %v", left, err)
	}
}

func TestFileErrorsHaveTheirClass(t *testing.T) {
	t.Parallel()
	e := newEngine(t)
	furnish(t, e)
	calls := fileCalls(t, e.sandbox(envd.Options{}))
	for _, c := range []struct {
		call, path string
		want       providers.Class
	}{
		{"read", "passwd", providers.InvalidPath},
		{"read", "dangling", providers.InvalidPath},
		{"write", "passwd", providers.InvalidPath},
		{"write", "dangling", providers.InvalidPath},
		{"write", "loop", providers.InvalidPath},
		{"mkdir", "dangling", providers.InvalidPath},
		{"list", "out", providers.InvalidPath},
		{"remove", ".", providers.InvalidPath},
		{"read", "absent", providers.FileNotFound},
		{"list", "absent", providers.FileNotFound},
		{"stat", "absent/x", providers.FileNotFound},
		{"remove", "absent", providers.FileNotFound},
		{"move from", "absent", providers.FileNotFound},
		{"read", "dir", providers.NotAFile},
		{"write", "dir", providers.NotAFile},
		{"read", "fifo", providers.NotAFile},
		{"write", "fifo", providers.NotAFile},
		{"list", "real", providers.NotADir},
		{"write", "real/below", providers.NotADir},
		{"mkdir", "real", providers.NotADir},
		{"read", "real", providers.TooLarge},
		{"move to", "dir", providers.FileExists},
	} {
		if err := calls[c.call](c.path); class(t, err) != c.want {
			t.Errorf("%s %q: got %v, want %s", c.call, c.path, err, c.want)
		}
	}
}

func TestLinks(t *testing.T) {
	t.Parallel()
	e := newEngine(t)
	outside := furnish(t, e)
	s := e.sandbox(envd.Options{})
	ctx := patient(t)
	for _, link := range []string{"inside", "relative"} {
		if b, err := s.ReadFile(ctx, link, 10); err != nil || string(b) != "real" {
			t.Errorf("%s: %q, %v", link, b, err)
		}
	}
	if info, err := s.Stat(ctx, "passwd"); err != nil || info.Type != "symlink" || info.SymlinkTarget != "/etc/passwd" {
		t.Errorf("stat of a link: %+v, %v", info, err)
	}
	_, err := s.WriteFile(ctx, "relative", []byte("through the link"), 0)
	must(t, err)
	if b, err := os.ReadFile(filepath.Join(e.workDir, "real")); err != nil || string(b) != "through the link" {
		t.Errorf("got %q, %v", b, err)
	}
	must(t, s.Remove(ctx, "out"))
	if _, err := os.Stat(filepath.Join(outside, "secret")); err != nil {
		t.Errorf("removing a link removed what it leads to: %v", err)
	}
}
