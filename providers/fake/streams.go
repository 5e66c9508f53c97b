package fake

import (
	"archive/tar"
	"bufio"
	"bytes"
	"cmp"
	"compress/gzip"
	"errors"
	"io"
	"maps"
	"path"
	"slices"
	"strings"
	"time"

	"sandyard/providers"
)

// maxStripped bounds the list of a report, as the guest does.
const maxStripped = 100

// open is a look at one moment: what is written later is not in it.
func (t *tree) open(name string, offset, length int64) (f providers.FileStream, err error) {
	err = t.at(name, func(full string) error {
		n, err := t.find(full)
		if err != nil {
			return err
		}
		if n.dir {
			return providers.NotAFile.Errorf("%s is a directory", full)
		}
		size := int64(len(n.data))
		from := min(max(offset, 0), size)
		to := size
		if length >= 0 {
			to = min(from+length, size)
		}
		f = providers.FileStream{
			ReadCloser: io.NopCloser(bytes.NewReader(slices.Clone(n.data[from:to]))), Size: size, Mode: n.mode, ModifiedAt: n.changed,
		}
		return nil
	})
	return f, err
}

func (t *tree) pack(name string, zip bool) (io.ReadCloser, error) {
	var b bytes.Buffer
	err := t.at(name, func(full string) error {
		n, err := t.find(full)
		if err != nil {
			return err
		}
		if !n.dir {
			return providers.NotADir.Errorf("%s is a file", full)
		}
		return t.archive(full, &b)
	})
	if err != nil || !zip {
		return io.NopCloser(&b), err
	}
	var small bytes.Buffer
	z := gzip.NewWriter(&small)
	_, err = z.Write(b.Bytes())
	return io.NopCloser(&small), errors.Join(err, z.Close())
}

func (t *tree) archive(full string, to io.Writer) error {
	out := tar.NewWriter(to)
	for _, p := range slices.Sorted(maps.Keys(t.within(full))) {
		if p == full {
			continue
		}
		n := t.nodes[p]
		h := &tar.Header{Typeflag: tar.TypeReg, Name: p[len(full)+1:], Size: int64(len(n.data)), Mode: int64(n.mode), ModTime: n.changed}
		if n.dir {
			h.Typeflag, h.Name = tar.TypeDir, h.Name+"/"
		}
		if err := out.WriteHeader(h); err != nil {
			return err
		}
		if _, err := out.Write(n.data); err != nil {
			return err
		}
	}
	return out.Close()
}

func (t *tree) unpack(name string, r io.Reader) (made providers.TreeReport, err error) {
	if _, err := t.makeDir(name); err != nil {
		return made, err
	}
	plain := bufio.NewReader(r)
	var source io.Reader = plain
	switch head, err := plain.Peek(2); {
	case len(head) == 0:
		return made, broken(err)
	case string(head) == "\x1f\x8b":
		if source, err = gzip.NewReader(plain); err != nil {
			return made, broken(err)
		}
	}
	for in := tar.NewReader(source); ; {
		h, err := in.Next()
		if errors.Is(err, io.EOF) {
			return made, nil
		}
		if err != nil {
			return made, broken(err)
		}
		if err := t.take(name, h, in, &made); err != nil {
			return made, err
		}
	}
}

func broken(err error) error {
	return providers.BadArchive.Errorf("the body is not a readable tar archive: %w", err)
}

// take makes one entry. There are no links here.
func (t *tree) take(dir string, h *tar.Header, in io.Reader, made *providers.TreeReport) error {
	if path.IsAbs(h.Name) || slices.Contains(strings.Split(h.Name, "/"), "..") {
		return providers.BadArchive.Errorf("entry '%s' leaves the directory through '..'", h.Name)
	}
	name := t.join(dir) + "/" + path.Clean(h.Name)
	if h.Mode&0o7000 != 0 && len(made.Stripped) < maxStripped {
		made.Stripped = append(made.Stripped, path.Clean(h.Name))
	}
	switch h.Typeflag {
	case tar.TypeDir:
		made.Directories++
		_, err := t.makeDir(name)
		return err
	case tar.TypeReg:
		data, err := io.ReadAll(in)
		if err != nil {
			return broken(err)
		}
		if _, err := t.write(name, data, cmp.Or(uint32(h.Mode)&0o777, 0o644)); err != nil {
			return err
		}
		made.Files, made.Bytes = made.Files+1, made.Bytes+int64(len(data))
		return t.at(name, func(full string) error { t.nodes[full].changed = h.ModTime.In(time.UTC); return nil })
	}
	return providers.BadArchive.Errorf("entry '%s' is no file or directory", h.Name)
}
