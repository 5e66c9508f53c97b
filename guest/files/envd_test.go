package files_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sandyard/guest/files"
	"sandyard/guest/protocol"

	"golang.org/x/sys/unix"
)

// served is a part of the file system with a home in it, and a directory beside.
type served struct {
	own, envd *files.Tree
	work      string
	beside    string
}

func serve(t *testing.T) served {
	t.Helper()
	base := t.TempDir()
	s := served{work: filepath.Join(base, "work"), beside: filepath.Join(base, "beside")}
	for _, dir := range []string{s.work, s.beside, filepath.Join(s.work, "home")} {
		must(t, os.Mkdir(dir, 0o755))
	}
	must(t, os.WriteFile(filepath.Join(s.beside, "f"), []byte("beside"), 0o644))
	must(t, os.Symlink(s.beside, filepath.Join(s.work, "link")))
	s.own = files.NewTree([]string{s.work}, s.work)
	s.own.SetHome(func() string { return filepath.Join(s.work, "home") })
	s.envd = s.own.AsEnvd()
	return s
}

func reason(err error) string {
	var refused *protocol.Error
	if errors.As(err, &refused) {
		return refused.Reason
	}
	return ""
}

func TestWhatPathsMean(t *testing.T) {
	t.Parallel()
	s := serve(t)
	for path, want := range map[string][2]string{
		"~":               {"home", "home"},
		"~/a":             {"home/a", "home/a"},
		"~/../a":          {"a", "a"},
		"~a":              {"~a", protocol.ReasonInvalidPath},
		"./~a":            {"~a", "~a"},
		"":                {protocol.ReasonInvalidPath, "."},
		"a/~":             {"a/~", "a/~"},
		"/home/user/a":    {"/home/user/a", "home/a"},
		"/home/user":      {"/home/user", "home"},
		"/home/username":  {"/home/username", "/home/username"},
		"/home/user/../x": {"/home/x", "x"},
	} {
		for i, tree := range []*files.Tree{s.own, s.envd} {
			got, err := tree.Absolute(path)
			if err != nil {
				got = reason(err)
			} else if rel, err := filepath.Rel(s.work, got); err == nil && filepath.IsLocal(rel) {
				got = rel
			}
			if got != want[i] {
				t.Errorf("%q is %s, want %s", path, got, want[i])
			}
		}
	}
}

// TestEnvdReadsWhatTheUserMay: also outside of what is served, and through links; but nothing is changed there, and nothing
// told of processes.
func TestEnvdReadsWhatTheUserMay(t *testing.T) {
	t.Parallel()
	s := serve(t)
	for _, dir := range []string{s.beside, filepath.Join(s.work, "link")} {
		path := filepath.Join(dir, "f")
		found, err := s.envd.Stat(path)
		if err != nil || found.Size != int64(len("beside")) || found.Path != filepath.Join(s.beside, "f") {
			t.Errorf("stat %s: %+v, %v", path, found, err)
		}
		list, err := s.envd.List(dir, 2)
		if err != nil || len(list) != 1 || list[0].Name != "f" {
			t.Errorf("list %s: %+v, %v", dir, list, err)
		}
		f, _, err := s.envd.Open(path, -1)
		must(t, err)
		must(t, f.Close())
		for name, err := range map[string]error{
			"own stat": second(s.own.Stat(path)), "own list": second(s.own.List(dir, 1)), "own open": third(s.own.Open(path, -1)),
			"write": second(s.envd.Write(path, files.Content{Body: strings.NewReader("x"), Size: 1, Mode: 0o600})),
			"make":  second(s.envd.MakeDir(dir + "/new")), "move": second(s.envd.Move(path, "f")), "move to": second(s.envd.Move("home", dir+"/home")),
			"remove": s.envd.Remove(path), "compose": second(s.envd.Compose([]string{path}, "f")),
		} {
			if reason(err) != protocol.ReasonInvalidPath {
				t.Errorf("%s of %s: %v", name, path, err)
			}
		}
	}
}

func second[T any](_ T, err error) error        { return err }
func third[T, U any](_ T, _ U, err error) error { return err }

func TestEnvdReadsNothingOfProcesses(t *testing.T) {
	t.Parallel()
	s := serve(t)
	must(t, os.Symlink("/proc/self/root/"+s.beside, filepath.Join(s.work, "root")))
	must(t, os.Symlink("/proc/self/cwd", filepath.Join(s.work, "cwd")))
	for _, path := range []string{"/proc/self/environ", "/proc/1/maps", "/proc/self/fd/0", "/dev/fd/0", "/dev/stdin", "root/f", "cwd/envd_test.go"} {
		for name, err := range map[string]error{
			"stat": second(s.envd.Stat(path + "/x")), "list": second(s.envd.List(path, 1)), "open": third(s.envd.Open(path, -1)),
		} {
			if reason(err) != protocol.ReasonDenied {
				t.Errorf("%s of %s: %v", name, path, err)
			}
		}
	}
	if err := second(s.envd.List("/proc", 1)); reason(err) != protocol.ReasonDenied {
		t.Errorf("list of /proc: %v", err)
	}
	found, err := s.envd.List("/", 1)
	if err != nil || !slices.ContainsFunc(found, func(e files.Entry) bool { return e.Path == "/proc" }) {
		t.Errorf("list of /: %+v, %v", found, err)
	}
	if _, _, err := s.envd.Open("/dev/null", -1); reason(err) != protocol.ReasonNotAFile {
		t.Errorf("open of a device: %v", err)
	}
}

// TestMetadataOfASwappedDirectory: what is said of a file is of one file, also while its directory is a link by turns.
func TestMetadataOfASwappedDirectory(t *testing.T) {
	t.Parallel()
	s := serve(t)
	inside, link := filepath.Join(s.work, "home"), filepath.Join(s.work, "link")
	must(t, os.WriteFile(filepath.Join(inside, "f"), nil, 0o644))
	err := unix.Setxattr(filepath.Join(s.beside, "f"), "user.e2b.secret", []byte("beside"), 0)
	if errors.Is(err, unix.ENOTSUP) {
		t.Skip("skipped: the file system of temporary files keeps no metadata")
	}
	must(t, err)
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			select {
			case <-stop:
				return
			default:
				_ = unix.Renameat2(unix.AT_FDCWD, inside, unix.AT_FDCWD, link, unix.RENAME_EXCHANGE)
			}
		}
	}()
	for range 300 {
		if found, err := s.own.Stat("home/f"); err == nil && found.Metadata["secret"] != "" {
			t.Errorf("%+v", found)
			break
		}
	}
	close(stop)
	<-stopped
}
