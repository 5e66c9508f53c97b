package envd_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"sandyard/providers"
	"sandyard/providers/envd"
)

func TestFilesComeBackAsWritten(t *testing.T) {
	t.Parallel()
	e := newEngine(t)
	s := e.sandbox(envd.Options{})
	ctx := deadline(t, 30*time.Second)
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
	ctx := deadline(t, 30*time.Second)
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

func TestFileErrors(t *testing.T) {
	t.Parallel()
	e := newEngine(t)
	s := e.sandbox(envd.Options{})
	ctx := deadline(t, 30*time.Second)
	outside := t.TempDir()
	must(t, os.WriteFile(filepath.Join(outside, "secret"), []byte("secret"), 0o644))
	for link, to := range map[string]string{
		"out": outside, "passwd": "/etc/passwd", "dangling": filepath.Join(outside, "new"), "up": "../..",
		"loop": "loop", "inside": filepath.Join(e.workDir, "real"), "relative": "real", "self": "out/../x",
	} {
		must(t, os.Symlink(to, filepath.Join(e.workDir, link)))
	}
	must(t, os.WriteFile(filepath.Join(e.workDir, "real"), []byte("real"), 0o644))
	must(t, os.Mkdir(filepath.Join(e.workDir, "dir"), 0o755))
	r := run(t, s, providers.Command{Name: "fifo", Shell: "mkfifo fifo"})
	if r.ExitCode != 0 {
		t.Fatal(string(r.Stderr))
	}
	read := func(path string) error { _, err := s.ReadFile(ctx, path, 3); return err }
	write := func(path string) error { _, err := s.WriteFile(ctx, path, []byte("x"), 0); return err }
	list := func(path string) error { _, err := s.ListDir(ctx, path, 1); return err }
	stat := func(path string) error { _, err := s.Stat(ctx, path); return err }
	mkdir := func(path string) error { _, err := s.MakeDir(ctx, path); return err }
	remove := func(path string) error { return s.Remove(ctx, path) }
	moveTo := func(path string) error { _, err := s.Move(ctx, "real", path); return err }
	moveFrom := func(path string) error { _, err := s.Move(ctx, path, "elsewhere"); return err }
	every := map[string]func(string) error{
		"read": read, "write": write, "list": list, "stat": stat, "mkdir": mkdir, "remove": remove, "move to": moveTo, "move from": moveFrom,
	}
	for _, path := range []string{
		"", "../x", "/etc/hosts", "a/../../x", "/", "nul\x00byte", strings.Repeat("n", 256),
		strings.Repeat("long/", 900), "out/secret", "out/new", "up/x", "loop/x", "not\xffutf8/\x00",
	} {
		for name, call := range every {
			if err := call(path); class(t, err) != providers.InvalidPath {
				t.Errorf("%s %.40q: got %v", name, path, err)
			}
		}
	}
	for _, c := range []struct {
		name string
		call func(string) error
		path string
		want providers.Class
	}{
		{"read", read, "passwd", providers.InvalidPath},
		{"read", read, "dangling", providers.InvalidPath},
		{"write", write, "passwd", providers.InvalidPath},
		{"write", write, "dangling", providers.InvalidPath},
		{"write", write, "loop", providers.InvalidPath},
		{"mkdir", mkdir, "dangling", providers.InvalidPath},
		{"list", list, "out", providers.InvalidPath},
		{"remove", remove, ".", providers.InvalidPath},
		{"read", read, "absent", providers.FileNotFound},
		{"list", list, "absent", providers.FileNotFound},
		{"stat", stat, "absent/x", providers.FileNotFound},
		{"remove", remove, "absent", providers.FileNotFound},
		{"move from", moveFrom, "absent", providers.FileNotFound},
		{"read", read, "dir", providers.NotAFile},
		{"write", write, "dir", providers.NotAFile},
		{"read", read, "fifo", providers.NotAFile},
		{"write", write, "fifo", providers.NotAFile},
		{"list", list, "real", providers.NotADir},
		{"write", write, "real/below", providers.NotADir},
		{"mkdir", mkdir, "real", providers.NotADir},
		{"read", read, "real", providers.TooLarge},
		{"move to", moveTo, "dir", providers.FileExists},
	} {
		if err := c.call(c.path); class(t, err) != c.want {
			t.Errorf("%s %q: got %v, want %s", c.name, c.path, err, c.want)
		}
	}
	for _, link := range []string{"inside", "relative"} {
		if b, err := s.ReadFile(ctx, link, 10); err != nil || string(b) != "real" {
			t.Errorf("%s: %q, %v", link, b, err)
		}
	}
	if info, err := s.Stat(ctx, "passwd"); err != nil || info.Type != "symlink" || info.SymlinkTarget != "/etc/passwd" {
		t.Errorf("stat of a link: %+v, %v", info, err)
	}
	must(t, s.Remove(ctx, "out"))
	if _, err := os.Stat(filepath.Join(outside, "secret")); err != nil {
		t.Errorf("removing a link removed what it leads to: %v", err)
	}
}
