package files_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"sandyard/guest/files"
	"sandyard/guest/protocol"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// FuzzPaths checks that no path, and no links on its way, lead a call out of the roots, and that every refusal has a
// reason of the caller's.
func FuzzPaths(f *testing.F) {
	for _, path := range []string{
		"", ".", "..", "/", "a", "a/b", "../outside/secret", "out/secret", "out/../secret", "up/outside/secret", "loop", "a\x00b",
		"//a", "~", "~/a", "~a", "/home/user/a", "/etc/passwd", "/proc/self/environ", "a/./b/..", "dir/up", "dangling", strings.Repeat("a/", 3000), strings.Repeat("n", 300), "\xff", "...", "dir/../../x",
	} {
		f.Add(path, "target")
		f.Add("dir/file", path)
	}
	f.Fuzz(func(t *testing.T, path, other string) {
		base := t.TempDir()
		outside, root := filepath.Join(base, "outside"), filepath.Join(base, "root")
		for _, dir := range []string{outside, root, filepath.Join(root, "dir")} {
			must(t, os.Mkdir(dir, 0o755))
		}
		must(t, os.WriteFile(filepath.Join(outside, "secret"), []byte("secret"), 0o644))
		must(t, os.WriteFile(filepath.Join(root, "dir", "file"), []byte("inside"), 0o644))
		for name, to := range map[string]string{"out": outside, "up": "..", "loop": "loop", "dangling": "../outside/new", "dir/up": "../.."} {
			must(t, os.Symlink(to, filepath.Join(root, name)))
		}
		useAll(t, files.NewTree([]string{root}, root), path, other)
		changeAll(t, files.NewTree([]string{root}, root).AsEnvd(), path, other)
		left, err := os.ReadDir(outside)
		must(t, err)
		if b, err := os.ReadFile(filepath.Join(outside, "secret")); len(left) != 1 || err != nil || string(b) != "secret" {
			t.Errorf("outside: %v, %q, %v", left, b, err)
		}
		if left, err := os.ReadDir(base); err != nil || len(left) != 2 {
			t.Errorf("beside: %v, %v", left, err)
		}
	})
}

// useAll makes every call with the paths.
func useAll(t *testing.T, tree *files.Tree, path, other string) {
	t.Helper()
	if file, info, err := tree.Open(path, -1); err == nil {
		if info.Size() == int64(len("secret")) && strings.Contains(file.Name(), "outside") {
			t.Errorf("%q opened %s", path, file.Name())
		}
		must(t, file.Close())
	} else {
		refused(t, err)
	}
	_, err := tree.Stat(path)
	refused(t, err)
	_, err = tree.List(path, 3)
	refused(t, err)
	if root, _, _, err := tree.Directory(path); err == nil {
		must(t, root.Close())
	} else {
		refused(t, err)
	}
	changeAll(t, tree, path, other)
	found, err := tree.Glob(t.Context(), protocol.GlobRequest{Path: ".", Pattern: path, Hidden: true, Limit: 100})
	refused(t, err)
	for _, e := range found.Entries {
		if strings.Contains(e.Path, "outside") {
			t.Errorf("%q finds %s", path, e.Path)
		}
	}
	lines, err := tree.Grep(t.Context(), protocol.GrepRequest{Path: path, Pattern: "secret", Include: other, Hidden: true, Limit: 100})
	refused(t, err)
	if len(lines.Matches) > 0 {
		t.Errorf("%q, %q read %+v", path, other, lines.Matches)
	}
	refused(t, tree.Remove(other))
	refused(t, tree.Remove(path))
}

// changeAll makes the calls with the paths that change something.
func changeAll(t *testing.T, tree *files.Tree, path, other string) {
	t.Helper()
	_, err := tree.Write(path, files.Content{Body: strings.NewReader("x"), Size: 1, Mode: 0o600})
	refused(t, err)
	_, err = tree.MakeDir(path)
	refused(t, err)
	_, err = tree.Move(path, other)
	refused(t, err)
	_, err = tree.Compose([]string{path, "dir/file"}, other)
	refused(t, err)
	_, err = tree.Edit(protocol.EditRequest{Path: path, Edits: []protocol.Edit{{Old: []byte("s"), New: []byte("x"), All: true}}})
	refused(t, err)
}

func refused(t *testing.T, err error) {
	t.Helper()
	var e *protocol.Error
	if err != nil && (!errors.As(err, &e) || e.Reason == protocol.ReasonInternal) {
		t.Errorf("not the caller's fault: %v", err)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
