package files_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sandyard/guest/files"
	"sandyard/guest/protocol"
)

// archive packs entries, whose content is their name.
func archive(entries ...tar.Header) []byte {
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, h := range entries {
		if h.Typeflag == tar.TypeReg && h.Size == 0 {
			h.Size = int64(len(h.Name))
		}
		_ = w.WriteHeader(&h) // what cannot be written makes an archive that is broken, which is a seed, too
		if h.Typeflag == tar.TypeReg {
			_, _ = io.WriteString(w, h.Name)
		}
	}
	_ = w.Close()
	return out.Bytes()
}

func zipped(b []byte) []byte {
	var out bytes.Buffer
	z := gzip.NewWriter(&out)
	_, _ = z.Write(b)
	_ = z.Close()
	return out.Bytes()
}

// FuzzUnpack unpacks what was never packed: nothing comes to be outside of the directory, nothing but files, directories and
// links in it, nothing with more than permissions, and nothing is left of what was under way.
func FuzzUnpack(f *testing.F) {
	reg, dir, link, hard := byte(tar.TypeReg), byte(tar.TypeDir), byte(tar.TypeSymlink), byte(tar.TypeLink)
	for _, entries := range [][]tar.Header{
		{{Name: "d/", Typeflag: dir, Mode: 0o700}, {Name: "d/f", Typeflag: reg, Mode: 0o4755}, {Name: "d/f", Typeflag: reg, Mode: 0o644}},
		{{Name: "up", Typeflag: link, Linkname: "../../outside"}, {Name: "up/new", Typeflag: reg, Mode: 0o644}},
		{{Name: "../new", Typeflag: reg}, {Name: "/new", Typeflag: reg}},
		{{Name: "..", Typeflag: dir}},
		{{Name: "a", Typeflag: reg}, {Name: "b", Typeflag: hard, Linkname: "a"}, {Name: "c", Typeflag: hard, Linkname: "out/secret"}},
		{{Name: "closed/", Typeflag: dir, Mode: 0o100}, {Name: "closed/f", Typeflag: reg}, {Name: "out", Typeflag: link, Linkname: "x"}},
		{{Name: "dev", Typeflag: tar.TypeChar, Devmajor: 1, Devminor: 3}},
		{{Name: "pipe", Typeflag: tar.TypeFifo}},
		{{Name: strings.Repeat("long/", 60) + "f", Typeflag: reg, Format: tar.FormatPAX, PAXRecords: map[string]string{"SCHILY.xattr.user.a": "b"}}},
		{{Name: "file", Typeflag: dir, Mode: 0o755}, {Name: "f", Typeflag: reg, Format: tar.FormatGNU}, {Name: ".", Typeflag: reg}, {Name: "", Typeflag: reg}},
	} {
		f.Add(archive(entries...))
		f.Add(zipped(archive(entries...)))
	}
	f.Add([]byte{})
	f.Add([]byte("\x1f\x8b"))
	f.Fuzz(func(t *testing.T, body []byte) {
		if !small(body) {
			return // it would only fill the disk
		}
		base := t.TempDir()
		outside, root := filepath.Join(base, "outside"), filepath.Join(base, "root")
		for _, dir := range []string{outside, root, filepath.Join(root, "dir")} {
			must(t, os.Mkdir(dir, 0o755))
		}
		must(t, os.WriteFile(filepath.Join(outside, "secret"), []byte("secret"), 0o644))
		must(t, os.WriteFile(filepath.Join(root, "dir", "file"), []byte("inside"), 0o644))
		must(t, os.Symlink(outside, filepath.Join(root, "dir", "out")))
		tree := files.NewTree([]string{root}, root)
		_, err := tree.Unpack("dir", bytes.NewReader(body))
		refused(t, err)
		refused(t, tree.Pack("dir", io.Discard))
		checkUnpacked(t, filepath.Join(root, "dir"))
		for dir, want := range map[string]int{base: 2, outside: 1, root: 1} {
			if left, err := os.ReadDir(dir); err != nil || len(left) != want {
				t.Errorf("in %s are %v, %v", dir, left, err)
			}
		}
		if b, err := os.ReadFile(filepath.Join(outside, "secret")); err != nil || string(b) != "secret" {
			t.Errorf("outside: %q, %v", b, err)
		}
		refused(t, tree.Remove("dir")) // also what only its owner could not enter
	})
}

// small says whether what is packed is.
func small(body []byte) bool {
	const most = 1 << 20
	var plain io.Reader = bytes.NewReader(body)
	if bytes.HasPrefix(body, []byte("\x1f\x8b")) {
		z, err := gzip.NewReader(plain)
		if err != nil {
			return true
		}
		plain = io.LimitReader(z, most)
		if n, _ := io.Copy(io.Discard, plain); n == most {
			return false
		}
		_ = z.Reset(bytes.NewReader(body))
		plain = z
	}
	total := int64(0)
	for in := tar.NewReader(plain); ; {
		h, err := in.Next()
		if err != nil {
			return true
		}
		if total += h.Size; h.Size > most || total > most {
			return false
		}
	}
}

func checkUnpacked(t *testing.T, dir string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrPermission) {
			return fs.SkipDir
		}
		must(t, err)
		info, err := e.Info()
		must(t, err)
		mode := info.Mode()
		if mode&(fs.ModeSetuid|fs.ModeSetgid|fs.ModeSticky) != 0 || !mode.IsRegular() && !mode.IsDir() && mode.Type() != fs.ModeSymlink {
			t.Errorf("%s is %v", path, mode)
		}
		if strings.HasPrefix(e.Name(), protocol.TempNew) || strings.HasPrefix(e.Name(), protocol.TempReplace) {
			t.Errorf("%s is left", path)
		}
		return nil
	})
	must(t, err)
}
