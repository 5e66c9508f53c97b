package saferoot_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"sandyard/guest/saferoot"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// world is a directory with links out of it, beside what they lead to.
type world struct {
	outside string
	root    *saferoot.Root
}

func newWorld(t *testing.T) world {
	t.Helper()
	base := t.TempDir()
	inside := filepath.Join(base, "inside")
	w := world{outside: filepath.Join(base, "outside")}
	for _, dir := range []string{inside, w.outside, filepath.Join(inside, "dir"), filepath.Join(w.outside, "dir")} {
		must(t, os.Mkdir(dir, 0o755))
	}
	for _, dir := range []string{w.outside, filepath.Join(inside, "dir")} {
		must(t, os.WriteFile(filepath.Join(dir, "file"), []byte(filepath.Base(dir)), 0o600))
	}
	for name, target := range map[string]string{"abs": w.outside, "rel": "../outside", "same": "dir", "file": "../outside/file", "none": "nowhere"} {
		must(t, os.Symlink(target, filepath.Join(inside, name)))
	}
	var err error
	w.root, err = saferoot.Open(inside)
	must(t, err)
	t.Cleanup(func() { must(t, w.root.Close()) })
	return w
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// calls makes each call on dir and what is in it.
func (w world) calls(dir string) map[string]func() error {
	file := dir + "/file"
	return map[string]func() error{
		"open root":  func() error { return closing(w.root.OpenRoot(dir)) },
		"open dir":   func() error { return closing(w.root.OpenDir(dir)) },
		"dir below":  func() error { return closing(w.root.OpenDir(dir + "/dir")) },
		"open":       func() error { return closing(w.root.OpenFile(file, os.O_RDONLY, 0)) },
		"create":     func() error { return closing(w.root.OpenFile(dir+"/new", os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)) },
		"stat":       func() error { _, err := w.root.Lstat(file); return err },
		"readlink":   func() error { _, err := w.root.Readlink(file); return err },
		"mkdir":      func() error { return w.root.Mkdir(dir+"/new", 0o755) },
		"mkdir all":  func() error { return w.root.MkdirAll(dir+"/new/deeper", 0o755) },
		"mkdir self": func() error { return w.root.MkdirAll(dir, 0o755) },
		"symlink":    func() error { return w.root.Symlink("x", dir+"/new") },
		"link from":  func() error { return w.root.Link(file, "new") },
		"link to":    func() error { return w.root.Link("dir/file", dir+"/new") },
		"move from":  func() error { return w.root.Rename(file, "new") },
		"move to":    func() error { return w.root.Rename("dir/file", dir+"/new") },
		"times":      func() error { return w.root.SetTimes(file, time.Unix(1, 0), time.Unix(1, 0)) },
		"remove":     func() error { return w.root.Remove(file) },
		"remove all": func() error { return w.root.RemoveAll(file) },
	}
}

type closer interface{ Close() error }

func closing[T closer](opened T, err error) error {
	if err != nil {
		return err
	}
	return opened.Close()
}

func TestLinksAreNotFollowed(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, dir := range []string{"abs", "rel", "same", "dir/../abs"} {
		for name, call := range w.calls(dir) {
			if err := call(); !errors.Is(err, syscall.ELOOP) {
				t.Errorf("%s through %s: %v", name, dir, err)
			}
		}
	}
	for _, name := range []string{"file", "none"} {
		if err := closing(w.root.OpenFile(name, os.O_RDONLY, 0)); !errors.Is(err, syscall.ELOOP) {
			t.Errorf("open the link %s: %v", name, err)
		}
		if err := closing(w.root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)); !errors.Is(err, fs.ErrExist) {
			t.Errorf("create in the place of the link %s: %v", name, err)
		}
	}
	w.isUntouched(t)
}

func TestNamesThatLeadOut(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, dir := range []string{"..", "../outside", w.outside, "dir/../../outside"} {
		for name, call := range w.calls(dir) {
			if err := call(); !errors.Is(err, syscall.EXDEV) {
				t.Errorf("%s in %s: %v", name, dir, err)
			}
		}
	}
	w.isUntouched(t)
}

func (w world) isUntouched(t *testing.T) {
	t.Helper()
	left, err := os.ReadDir(w.outside)
	must(t, err)
	content, err := os.ReadFile(filepath.Join(w.outside, "file"))
	must(t, err)
	if len(left) != 2 || string(content) != "outside" {
		t.Errorf("outside are %v, the file holds %q", left, content)
	}
}

// TestSwappedDirectory makes all calls on what is a directory and a link to another by turns.
func TestSwappedDirectory(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	inside := filepath.Join(filepath.Dir(w.outside), "inside")
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			select {
			case <-stop:
				return
			default:
				_ = os.Rename(filepath.Join(inside, "dir"), filepath.Join(inside, "real"))
				_ = os.Symlink(w.outside, filepath.Join(inside, "dir"))
				_ = os.Remove(filepath.Join(inside, "dir"))
				_ = os.Rename(filepath.Join(inside, "real"), filepath.Join(inside, "dir"))
			}
		}
	}()
	for range 200 {
		if f, err := w.root.OpenFile("dir/file", os.O_RDONLY, 0); err == nil {
			var b [7]byte
			if n, _ := f.Read(b[:]); string(b[:n]) == "outside" {
				t.Error("it read what is outside")
			}
			must(t, f.Close())
		}
		for _, call := range w.calls("dir") {
			_ = call()
		}
		_ = w.root.RemoveAll("dir/new")
		_ = w.root.RemoveAll("new")
	}
	close(stop)
	<-stopped
	w.isUntouched(t)
}

func TestWhatIsInside(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	must(t, w.root.MkdirAll("a/b/c", 0o755))
	must(t, w.root.MkdirAll("a/b/c", 0o700))
	f, err := w.root.OpenFile("a/b/c/new", os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	must(t, err)
	_, err = f.WriteString("content")
	must(t, errors.Join(err, f.Close()))
	must(t, w.root.Symlink("../b", "a/link"))
	must(t, w.root.Link("a/b/c/new", "a/hard"))
	must(t, w.root.SetTimes("a/hard", time.Unix(7, 0), time.Unix(1e9, 0)))
	must(t, w.root.Rename("a/hard", "a/moved"))
	target, err := w.root.Readlink("a/link")
	if err != nil || target != "../b" {
		t.Errorf("the link leads to %q, %v", target, err)
	}
	info, err := w.root.Lstat("a/b/c/new")
	if err != nil || info.Name() != "new" || info.Size() != 7 || !info.ModTime().Equal(time.Unix(1e9, 0)) {
		t.Errorf("%+v, %v", info, err)
	}
	if info, err := w.root.Lstat("a/link"); err != nil || info.Mode().Type() != fs.ModeSymlink {
		t.Errorf("%+v, %v", info, err)
	}
	a, err := w.root.OpenRoot("a")
	must(t, err)
	if names := namesIn(t, a, "."); !slices.Equal(names, []string{"b", "link", "moved"}) {
		t.Errorf("there are %v", names)
	}
	must(t, a.Close())
	if err := closing(a.OpenDir(".")); !errors.Is(err, fs.ErrClosed) {
		t.Errorf("after its end: %v", err)
	}
}

func namesIn(t *testing.T, root *saferoot.Root, dir string) []string {
	t.Helper()
	f, err := root.OpenDir(dir)
	must(t, err)
	names, err := f.Readdirnames(-1)
	must(t, errors.Join(err, f.Close()))
	slices.Sort(names)
	return names
}

func TestWhatCannotBe(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	must(t, w.root.Mkdir("other", 0o755))
	must(t, syscall.Mkfifo(filepath.Join(filepath.Dir(w.outside), "inside", "pipe"), 0o600))
	for name, c := range map[string]struct {
		err  error
		want syscall.Errno
	}{
		"a file as a directory":     {closing(w.root.OpenDir("dir/file")), syscall.ENOTDIR},
		"a pipe as a directory":     {closing(w.root.OpenDir("pipe")), syscall.ENOTDIR},
		"through a file":            {closing(w.root.OpenFile("dir/file/x", os.O_RDONLY, 0)), syscall.ENOTDIR},
		"directories below a file":  {w.root.MkdirAll("dir/file/x", 0o755), syscall.ENOTDIR},
		"what is not there":         {closing(w.root.OpenDir("gone/x")), syscall.ENOENT},
		"over a directory":          {w.root.Rename("dir", "other"), syscall.EEXIST},
		"a directory over itself":   {w.root.Rename("dir", "dir"), 0},
		"a directory as a file":     {w.root.Remove("dir"), syscall.EISDIR},
		"a name with a NUL":         {closing(w.root.OpenDir("a\x00b")), syscall.EINVAL},
		"remove what is not there":  {w.root.RemoveAll("gone"), 0},
		"a pipe without its writer": {closing(w.root.OpenFile("pipe", os.O_RDONLY|syscall.O_NONBLOCK, 0)), 0},
	} {
		if c.want == 0 && c.err != nil || c.want != 0 && !errors.Is(c.err, c.want) {
			t.Errorf("%s: %v", name, c.err)
		}
	}
}

func TestRemoveAll(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	inside := filepath.Join(filepath.Dir(w.outside), "inside")
	deep := filepath.Join("tree", strings.Repeat("d/", 200))
	must(t, w.root.MkdirAll(deep, 0o755))
	for i := range 3000 {
		must(t, os.WriteFile(filepath.Join(inside, "tree", strconv.Itoa(i)), nil, 0o600))
	}
	must(t, w.root.Symlink(w.outside, filepath.Join(deep, "out")))
	must(t, w.root.RemoveAll("tree"))
	if _, err := w.root.Lstat("tree"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("it is there: %v", err)
	}
	must(t, w.root.RemoveAll("abs"))
	w.isUntouched(t)
}
