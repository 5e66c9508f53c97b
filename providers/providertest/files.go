package providertest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"sandyard/providers"
)

// files checks what files hold and what is said of them, in one sandbox, each case in a folder of its own.
func files(t *testing.T, s *suite) {
	if s.caps.Files == providers.Unsupported {
		t.Skip("skipped: the provider declares files unsupported")
	}
	r := s.room(t)
	t.Run("content survives", func(t *testing.T) {
		t.Parallel()
		for name, data := range map[string][]byte{
			"empty": {}, "text": []byte("line\n"), "binary": pattern(1 << 16), "5 MiB": pattern(5 << 20), "ü/日本 語/ a b '\"$.txt": []byte("named"),
		} {
			info, err := r.WriteFile(within(t), "content/"+name, data, 0)
			if err != nil || info.Size != int64(len(data)) || info.Type != "file" || info.Path != "/workspace/content/"+name {
				t.Errorf("write %q: %+v, %v", name, info, err)
			}
			back, err := r.ReadFile(within(t), "/workspace/content/"+name, int64(len(data)))
			if err != nil || !bytes.Equal(back, data) {
				t.Errorf("read %q: %d bytes, %v", name, len(back), err)
			}
		}
	})
	t.Run("in the home directory", func(t *testing.T) {
		t.Parallel()
		mustWrite(t, r, "~/home/f", "at home")
		wantFile(t, r, "/workspace/home/f", "at home")
		mustWrite(t, r, "~home", "a name like others")
		wantFile(t, r, "/workspace/~home", "a name like others")
	})
	t.Run("replaced in one step", func(t *testing.T) { t.Parallel(); replaced(t, r) })
	t.Run("a command sees them", func(t *testing.T) {
		t.Parallel()
		mustWrite(t, r, "seen/by", "files ")
		shell(t, r, s.Script.Append("/workspace/seen/by", "and commands"))
		wantFile(t, r, "seen/by", "files and commands")
	})
	t.Run("too large", func(t *testing.T) {
		t.Parallel()
		mustWrite(t, r, "large", "123456")
		_, err := r.ReadFile(within(t), "large", 5)
		wantClass(t, err, providers.TooLarge)
	})
	t.Run("missing", func(t *testing.T) { t.Parallel(); missing(t, r) })
	t.Run("directory in place of a file", func(t *testing.T) { t.Parallel(); wrongKind(t, r) })
	t.Run("list", func(t *testing.T) { t.Parallel(); list(t, r) })
	t.Run("move", func(t *testing.T) { t.Parallel(); move(t, r) })
	t.Run("remove", func(t *testing.T) { t.Parallel(); remove(t, r) })
	t.Run("no space", func(t *testing.T) { t.Parallel(); s.needsLimits(t); noSpace(t, s) })
}

func mustWrite(t *testing.T, box providers.Files, path, text string) {
	t.Helper()
	if _, err := box.WriteFile(within(t), path, []byte(text), 0); err != nil {
		t.Fatalf("write %s: %v", path, err)
	}
}

func replaced(t *testing.T, r room) {
	mustWrite(t, r, "replaced/f", "a longer first content")
	info, err := r.WriteFile(within(t), "replaced/f", []byte("short"), 0o600)
	if err != nil || info.Size != 5 || info.Mode != "0600" {
		t.Errorf("write again: %+v, %v", info, err)
	}
	wantFile(t, r, "replaced/f", "short")
	if left := paths1(t, r, "replaced", 1); !slices.Equal(left, []string{"/workspace/replaced/f"}) {
		t.Errorf("the folder holds %v", left)
	}
	if info, err := r.WriteFile(within(t), "replaced/new", nil, 0); err != nil || info.Mode != "0644" {
		t.Errorf("default mode: %+v, %v", info, err)
	}
}

func missing(t *testing.T, r room) {
	_, err := r.ReadFile(within(t), "none/f", 10)
	wantClass(t, err, providers.FileNotFound)
	_, err = r.Stat(within(t), "none")
	wantClass(t, err, providers.FileNotFound)
	_, err = r.ListDir(within(t), "none", 1)
	wantClass(t, err, providers.FileNotFound)
	_, err = r.Move(within(t), "none", "elsewhere")
	wantClass(t, err, providers.FileNotFound)
	wantClass(t, r.Remove(within(t), "none"), providers.FileNotFound)
}

func wrongKind(t *testing.T, r room) {
	mustWrite(t, r, "kinds/dir/f", "x")
	_, err := r.ReadFile(within(t), "kinds/dir", 10)
	wantClass(t, err, providers.NotAFile)
	_, err = r.WriteFile(within(t), "kinds/dir", []byte("x"), 0)
	wantClass(t, err, providers.NotAFile)
	_, err = r.ListDir(within(t), "kinds/dir/f", 1)
	wantClass(t, err, providers.NotADir)
	_, err = r.MakeDir(within(t), "kinds/dir/f")
	wantClass(t, err, providers.FileExists, providers.NotADir)
}

func list(t *testing.T, r room) {
	for _, f := range []string{"list/b", "list/a/z", "list/a/deep/er", "list/c d"} {
		mustWrite(t, r, f, "x")
	}
	for range 2 {
		if info, err := r.MakeDir(within(t), "list/empty/inner"); err != nil || info.Type != "directory" {
			t.Errorf("make directory: %+v, %v", info, err)
		}
	}
	const at = "/workspace/list/"
	for depth, want := range map[int][]string{
		1: {at + "a", at + "b", at + "c d", at + "empty"},
		2: {at + "a", at + "a/deep", at + "a/z", at + "b", at + "c d", at + "empty", at + "empty/inner"},
		3: {at + "a", at + "a/deep", at + "a/deep/er", at + "a/z", at + "b", at + "c d", at + "empty", at + "empty/inner"},
	} {
		if got := paths1(t, r, "list", depth); !slices.Equal(got, want) {
			t.Errorf("depth %d: %v, want %v", depth, got, want)
		}
	}
	info, err := r.Stat(within(t), "list/a")
	if err != nil || info.Type != "directory" || info.Name != "a" || info.Path != at+"a" || info.ModifiedAt.IsZero() {
		t.Errorf("stat: %+v, %v", info, err)
	}
}

func paths1(t *testing.T, box providers.Files, dir string, depth int) []string {
	t.Helper()
	infos, err := box.ListDir(within(t), dir, depth)
	if err != nil {
		t.Fatalf("list %s: %v", dir, err)
	}
	var found []string
	for _, i := range infos {
		found = append(found, i.Path)
	}
	return found
}

func move(t *testing.T, r room) {
	mustWrite(t, r, "move/from", "moved")
	mustWrite(t, r, "move/in the way", "old")
	info, err := r.Move(within(t), "move/from", "move/in the way")
	if err != nil || info.Path != "/workspace/move/in the way" {
		t.Errorf("move: %+v, %v", info, err)
	}
	wantFile(t, r, "move/in the way", "moved")
	_, err = r.Stat(within(t), "move/from")
	wantClass(t, err, providers.FileNotFound)
	mustWrite(t, r, "move/dir/f", "inside")
	if _, err := r.Move(within(t), "move/dir", "move/renamed"); err != nil {
		t.Errorf("move a directory: %v", err)
	}
	wantFile(t, r, "move/renamed/f", "inside")
}

func remove(t *testing.T, r room) {
	mustWrite(t, r, "remove/dir/sub/f", "x")
	mustWrite(t, r, "remove/f", "x")
	for _, path := range []string{"remove/f", "remove/dir"} {
		if err := r.Remove(within(t), path); err != nil {
			t.Errorf("remove %s: %v", path, err)
		}
		_, err := r.Stat(within(t), path)
		wantClass(t, err, providers.FileNotFound)
	}
}

func noSpace(t *testing.T, s *suite) {
	r := s.roomWith(t, providers.Spec{Resources: providers.Resources{MemoryMB: 256, DiskMB: 8}})
	_, err := r.WriteFile(within(t), "fits", pattern(3<<20), 0)
	if err != nil {
		t.Fatal(err)
	}
	_, err = r.WriteFile(within(t), "too much", pattern(7<<20), 0)
	wantClass(t, err, providers.NoSpace)
	if left := paths1(t, r, ".", 1); !slices.Equal(left, []string{"/workspace/fits"}) {
		t.Errorf("a failed write leaves %v", left)
	}
	if _, err := r.WriteFile(within(t), "fits too", pattern(3<<20), 0); err != nil {
		t.Errorf("the space of a failed write is not free again: %v", err)
	}
}

// paths checks that nothing outside the sandbox's roots can be reached.
func paths(t *testing.T, s *suite) {
	if s.caps.Files == providers.Unsupported {
		t.Skip("skipped: the provider declares files unsupported")
	}
	r := s.room(t)
	if s.System {
		shell(t, r, "ln -s /etc out; ln -s /etc/passwd file; ln -s ../../../etc up; ln -s loop loop; mkdir in; ln -s in fine; echo x >in/f; mkfifo pipe")
	}
	bad := []string{"../etc/passwd", "/workspace/../etc/passwd", "a/../../etc/passwd", "a\x00b", "/workspace/" + string(bytes.Repeat([]byte("n/"), 5000))}
	if s.System && s.confined() {
		bad = append(bad, "out/passwd", "up/passwd")
	}
	for _, path := range bad {
		t.Run(fmt.Sprintf("%.30q", path), func(t *testing.T) {
			t.Parallel()
			refuses(t, r, path)
		})
	}
	t.Run("links within", func(t *testing.T) {
		t.Parallel()
		s.needsSystem(t)
		wantFile(t, r, "fine/f", "x\n")
		if s.confined() {
			_, err := r.ReadFile(within(t), "file", 1000)
			wantClass(t, err, providers.InvalidPath)
		} else {
			t.Log("links that lead out are not tried: the provider declares confined unsupported")
		}
		if info, err := r.Stat(within(t), "out"); err != nil || info.Type != "symlink" || info.SymlinkTarget != "/etc" {
			t.Errorf("stat of a link: %+v, %v", info, err)
		}
	})
	t.Run("neither file nor directory", func(t *testing.T) {
		t.Parallel()
		s.needsSystem(t)
		_, err := r.ReadFile(within(t), "pipe", 1000)
		wantClass(t, err, providers.NotAFile)
		_, err = r.ReadFile(within(t), "loop", 1000)
		wantClass(t, err, providers.InvalidPath, providers.FileNotFound)
	})
}

func refuses(t *testing.T, r room, path string) {
	ctx := within(t)
	for name, call := range map[string]func(context.Context) error{
		"read":      func(ctx context.Context) error { _, err := r.ReadFile(ctx, path, 1000); return err },
		"write":     func(ctx context.Context) error { _, err := r.WriteFile(ctx, path, []byte("x"), 0); return err },
		"list":      func(ctx context.Context) error { _, err := r.ListDir(ctx, path, 1); return err },
		"make":      func(ctx context.Context) error { _, err := r.MakeDir(ctx, path+"/x"); return err },
		"move from": func(ctx context.Context) error { _, err := r.Move(ctx, path, "here"); return err },
		"remove":    func(ctx context.Context) error { return r.Remove(ctx, path) },
		"edit": func(ctx context.Context) error {
			_, err := toolsOf(r).Edit(ctx, providers.Edit{Path: path, Edits: []providers.Replacement{replace("root", "x")}})
			return err
		},
		"glob": func(ctx context.Context) error {
			_, err := toolsOf(r).Glob(ctx, providers.Glob{Path: path, Pattern: "*", Limit: 10})
			return err
		},
		"grep": func(ctx context.Context) error {
			_, err := toolsOf(r).Grep(ctx, providers.Grep{Path: path, Pattern: "root", Limit: 10})
			return err
		},
		"read many": func(ctx context.Context) error {
			read, err := toolsOf(r).ReadFiles(ctx, []string{path}, 1000)
			return errors.Join(err, outcome(read))
		},
		"write many": func(ctx context.Context) error {
			written, err := toolsOf(r).WriteFiles(ctx, []providers.FileWrite{{Path: path, Data: []byte("x")}})
			return errors.Join(err, outcome(written))
		},
	} {
		if err := call(ctx); err == nil || providers.AsError(err).Class != providers.InvalidPath {
			t.Errorf("%s: got %v, want class %s", name, err, providers.InvalidPath)
		}
	}
}

// outcome is what became of the one file of a batch.
func outcome(all []providers.FileOutcome) error {
	if len(all) != 1 {
		return fmt.Errorf("%d outcomes", len(all))
	}
	return asError(all[0].Err)
}
