package providertest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"sandyard/providers"
	"sandyard/providers/providertest/fixture"
)

// files checks what files hold and what is said of them, in one sandbox, each case in a folder of its own.
func files(t *testing.T, s *fixture.Suite) {
	if s.Caps.Files == providers.Unsupported {
		t.Skip("skipped: the provider declares files unsupported")
	}
	r := s.NewRoom(t)
	t.Run("content survives", func(t *testing.T) {
		t.Parallel()
		for name, data := range map[string][]byte{
			"empty": {}, "text": []byte("line\n"), "binary": fixture.Pattern(1 << 16), "5 MiB": fixture.Pattern(5 << 20),
			"ü/日本 語/ a b '\"$.txt": []byte("named"),
		} {
			info, err := r.WriteFile(fixture.Within(t), "content/"+name, data, 0)
			if err != nil || info.Size != int64(len(data)) || info.Type != "file" || info.Path != "/workspace/content/"+name {
				t.Errorf("write %q: %+v, %v", name, info, err)
			}
			back, err := r.ReadFile(fixture.Within(t), "/workspace/content/"+name, int64(len(data)))
			if err != nil || !bytes.Equal(back, data) {
				t.Errorf("read %q: %d bytes, %v", name, len(back), err)
			}
		}
	})
	t.Run("in the home directory", func(t *testing.T) {
		t.Parallel()
		fixture.MustWrite(t, r, "~/home/f", "at home")
		fixture.WantFile(t, r, "/workspace/home/f", "at home")
		fixture.MustWrite(t, r, "~home", "a name like others")
		fixture.WantFile(t, r, "/workspace/~home", "a name like others")
	})
	t.Run("replaced in one step", func(t *testing.T) { t.Parallel(); replaced(t, r) })
	t.Run("a command sees them", func(t *testing.T) {
		t.Parallel()
		fixture.MustWrite(t, r, "seen/by", "files ")
		fixture.Shell(t, r, s.Script.Append("/workspace/seen/by", "and commands"))
		fixture.WantFile(t, r, "seen/by", "files and commands")
	})
	t.Run("too large", func(t *testing.T) {
		t.Parallel()
		fixture.MustWrite(t, r, "large", "123456")
		_, err := r.ReadFile(fixture.Within(t), "large", 5)
		fixture.WantClass(t, err, providers.TooLarge)
	})
	t.Run("missing", func(t *testing.T) { t.Parallel(); missing(t, r) })
	t.Run("directory in place of a file", func(t *testing.T) { t.Parallel(); wrongKind(t, r) })
	t.Run("list", func(t *testing.T) { t.Parallel(); list(t, r) })
	t.Run("move", func(t *testing.T) { t.Parallel(); move(t, r) })
	t.Run("remove", func(t *testing.T) { t.Parallel(); remove(t, r) })
	t.Run("no space", func(t *testing.T) { t.Parallel(); s.NeedsLimits(t); noSpace(t, s) })
}

func replaced(t *testing.T, r fixture.Room) {
	fixture.MustWrite(t, r, "replaced/f", "a longer first content")
	info, err := r.WriteFile(fixture.Within(t), "replaced/f", []byte("short"), 0o600)
	if err != nil || info.Size != 5 || info.Mode != "0600" {
		t.Errorf("write again: %+v, %v", info, err)
	}
	fixture.WantFile(t, r, "replaced/f", "short")
	if left := fixture.Paths(t, r, "replaced", 1); !slices.Equal(left, []string{"/workspace/replaced/f"}) {
		t.Errorf("the folder holds %v", left)
	}
	if info, err := r.WriteFile(fixture.Within(t), "replaced/new", nil, 0); err != nil || info.Mode != "0644" {
		t.Errorf("default mode: %+v, %v", info, err)
	}
}

func missing(t *testing.T, r fixture.Room) {
	_, err := r.ReadFile(fixture.Within(t), "none/f", 10)
	fixture.WantClass(t, err, providers.FileNotFound)
	_, err = r.Stat(fixture.Within(t), "none")
	fixture.WantClass(t, err, providers.FileNotFound)
	_, err = r.ListDir(fixture.Within(t), "none", 1)
	fixture.WantClass(t, err, providers.FileNotFound)
	_, err = r.Move(fixture.Within(t), "none", "elsewhere")
	fixture.WantClass(t, err, providers.FileNotFound)
	fixture.WantClass(t, r.Remove(fixture.Within(t), "none"), providers.FileNotFound)
}

func wrongKind(t *testing.T, r fixture.Room) {
	fixture.MustWrite(t, r, "kinds/dir/f", "x")
	_, err := r.ReadFile(fixture.Within(t), "kinds/dir", 10)
	fixture.WantClass(t, err, providers.NotAFile)
	_, err = r.WriteFile(fixture.Within(t), "kinds/dir", []byte("x"), 0)
	fixture.WantClass(t, err, providers.NotAFile)
	_, err = r.ListDir(fixture.Within(t), "kinds/dir/f", 1)
	fixture.WantClass(t, err, providers.NotADir)
	_, err = r.MakeDir(fixture.Within(t), "kinds/dir/f")
	fixture.WantClass(t, err, providers.FileExists, providers.NotADir)
}

func list(t *testing.T, r fixture.Room) {
	for _, f := range []string{"list/b", "list/a/z", "list/a/deep/er", "list/c d"} {
		fixture.MustWrite(t, r, f, "x")
	}
	for range 2 {
		if info, err := r.MakeDir(fixture.Within(t), "list/empty/inner"); err != nil || info.Type != "directory" {
			t.Errorf("make directory: %+v, %v", info, err)
		}
	}
	const at = "/workspace/list/"
	for depth, want := range map[int][]string{
		1: {at + "a", at + "b", at + "c d", at + "empty"},
		2: {at + "a", at + "a/deep", at + "a/z", at + "b", at + "c d", at + "empty", at + "empty/inner"},
		3: {at + "a", at + "a/deep", at + "a/deep/er", at + "a/z", at + "b", at + "c d", at + "empty", at + "empty/inner"},
	} {
		if got := fixture.Paths(t, r, "list", depth); !slices.Equal(got, want) {
			t.Errorf("depth %d: %v, want %v", depth, got, want)
		}
	}
	info, err := r.Stat(fixture.Within(t), "list/a")
	if err != nil || info.Type != "directory" || info.Name != "a" || info.Path != at+"a" || info.ModifiedAt.IsZero() {
		t.Errorf("stat: %+v, %v", info, err)
	}
}

func move(t *testing.T, r fixture.Room) {
	fixture.MustWrite(t, r, "move/from", "moved")
	fixture.MustWrite(t, r, "move/in the way", "old")
	info, err := r.Move(fixture.Within(t), "move/from", "move/in the way")
	if err != nil || info.Path != "/workspace/move/in the way" {
		t.Errorf("move: %+v, %v", info, err)
	}
	fixture.WantFile(t, r, "move/in the way", "moved")
	_, err = r.Stat(fixture.Within(t), "move/from")
	fixture.WantClass(t, err, providers.FileNotFound)
	fixture.MustWrite(t, r, "move/dir/f", "inside")
	if _, err := r.Move(fixture.Within(t), "move/dir", "move/renamed"); err != nil {
		t.Errorf("move a directory: %v", err)
	}
	fixture.WantFile(t, r, "move/renamed/f", "inside")
}

func remove(t *testing.T, r fixture.Room) {
	fixture.MustWrite(t, r, "remove/dir/sub/f", "x")
	fixture.MustWrite(t, r, "remove/f", "x")
	for _, path := range []string{"remove/f", "remove/dir"} {
		if err := r.Remove(fixture.Within(t), path); err != nil {
			t.Errorf("remove %s: %v", path, err)
		}
		_, err := r.Stat(fixture.Within(t), path)
		fixture.WantClass(t, err, providers.FileNotFound)
	}
}

func noSpace(t *testing.T, s *fixture.Suite) {
	r := s.NewRoomWith(t, providers.Spec{Resources: providers.Resources{MemoryMB: 256, DiskMB: 8}})
	_, err := r.WriteFile(fixture.Within(t), "fits", fixture.Pattern(3<<20), 0)
	if err != nil {
		t.Fatal(err)
	}
	_, err = r.WriteFile(fixture.Within(t), "too much", fixture.Pattern(7<<20), 0)
	fixture.WantClass(t, err, providers.NoSpace)
	if left := fixture.Paths(t, r, ".", 1); !slices.Equal(left, []string{"/workspace/fits"}) {
		t.Errorf("a failed write leaves %v", left)
	}
	if _, err := r.WriteFile(fixture.Within(t), "fits too", fixture.Pattern(3<<20), 0); err != nil {
		t.Errorf("the space of a failed write is not free again: %v", err)
	}
}

// paths checks that nothing outside the sandbox's roots can be reached.
func paths(t *testing.T, s *fixture.Suite) {
	if s.Caps.Files == providers.Unsupported {
		t.Skip("skipped: the provider declares files unsupported")
	}
	r := s.NewRoom(t)
	if s.System {
		fixture.Shell(
			t,
			r,
			"ln -s /etc out; ln -s /etc/passwd file; ln -s ../../../etc up; ln -s loop loop; mkdir in; ln -s in fine; "+
				"echo x >in/f; mkfifo pipe",
		)
	}
	bad := []string{
		"../etc/passwd",
		"/workspace/../etc/passwd",
		"a/../../etc/passwd",
		"a\x00b",
		"/workspace/" + string(bytes.Repeat([]byte("n/"), 5000)),
	}
	if s.System && s.Confined() {
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
		s.NeedsSystem(t)
		fixture.WantFile(t, r, "fine/f", "x\n")
		if s.Confined() {
			_, err := r.ReadFile(fixture.Within(t), "file", 1000)
			fixture.WantClass(t, err, providers.InvalidPath)
		} else {
			t.Log("links that lead out are not tried: the provider declares confined unsupported")
		}
		if info, err := r.Stat(fixture.Within(t), "out"); err != nil || info.Type != "symlink" ||
			info.SymlinkTarget != "/etc" {
			t.Errorf("stat of a link: %+v, %v", info, err)
		}
	})
	t.Run("neither file nor directory", func(t *testing.T) {
		t.Parallel()
		s.NeedsSystem(t)
		_, err := r.ReadFile(fixture.Within(t), "pipe", 1000)
		fixture.WantClass(t, err, providers.NotAFile)
		_, err = r.ReadFile(fixture.Within(t), "loop", 1000)
		fixture.WantClass(t, err, providers.InvalidPath, providers.FileNotFound)
	})
}

func refuses(t *testing.T, r fixture.Room, path string) {
	ctx := fixture.Within(t)
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
