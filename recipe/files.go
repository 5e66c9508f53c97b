package recipe

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strconv"
	"strings"
)

// files are what a build may copy into its image, by clean relative path.
type files map[string]file

type file struct {
	mode int64
	dir  bool
	data []byte
}

// maxFiles bounds a context; its bytes are bounded by the request's body.
const maxFiles = 10_000

// readContext reads a tar. Only regular files and directories are for a build to have: a link could lead anywhere.
func readContext(archive []byte) (files, error) {
	all := files{}
	r := tar.NewReader(bytes.NewReader(archive))
	for len(archive) > 0 {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, &Error{Message: "the context is no tar: " + err.Error()}
		}
		name := path.Clean(strings.TrimPrefix(h.Name, "/"))
		switch {
		case name == ".":
			continue
		case name == ".." || strings.HasPrefix(name, "../"):
			return nil, &Error{Message: fmt.Sprintf("the context holds %.200q, which leads out of it", h.Name)}
		case len(all) >= maxFiles:
			return nil, &Error{Message: fmt.Sprintf("the context holds more than %d files", maxFiles)}
		}
		switch h.Typeflag {
		case tar.TypeDir:
			all[name] = file{mode: h.Mode & 0o777, dir: true}
		case tar.TypeReg:
			data, err := io.ReadAll(r)
			if err != nil {
				return nil, &Error{Message: "the context is no tar: " + err.Error()}
			}
			all[name] = file{mode: h.Mode & 0o777, data: data}
		case tar.TypeXGlobalHeader:
		default:
			return nil, &Error{Message: fmt.Sprintf("the context holds %.200q, which is neither a file nor a directory", h.Name)}
		}
	}
	return all, nil
}

// ownership is whose the copied files are.
type ownership struct {
	uid, gid int
	mode     int64 // 0 = as they are
}

func (o *ownership) option(text string) error {
	name, value, _ := strings.Cut(text, "=")
	switch name {
	case "--chown":
		user, group, both := strings.Cut(value, ":")
		if !both {
			group = user
		}
		var errUser, errGroup error
		o.uid, errUser = strconv.Atoi(user)
		o.gid, errGroup = strconv.Atoi(group)
		if errUser != nil || errGroup != nil || o.uid < 0 || o.gid < 0 {
			return fmt.Errorf("--chown takes numbers here, such as 1000:1000")
		}
	case "--chmod":
		mode, err := strconv.ParseInt(value, 8, 16)
		if err != nil {
			return fmt.Errorf("--chmod takes an octal number")
		}
		o.mode = mode & 0o777
	default:
		return fmt.Errorf("%s is not possible here", name)
	}
	return nil
}

// under returns all files as a tar that unpacks into dir.
func (f files) under(dir string, o ownership) ([]byte, error) {
	var w writer
	w.dir(dir)
	for _, name := range f.names() {
		w.add(path.Join(dir, name), f[name], o)
	}
	return w.finish()
}

// directory returns a tar of one directory.
func directory(dir string) ([]byte, error) {
	var w writer
	w.dir(dir)
	return w.finish()
}

// pick returns what the sources name as a tar that unpacks to the absolute path to, as COPY does: directories give their
// content, and of several sources, or with a slash at its end, to is a directory.
func (f files) pick(sources []string, to string, o ownership) ([]byte, error) {
	var w writer
	into := strings.HasSuffix(to, "/") || len(sources) > 1
	for _, source := range sources {
		found := f.match(strings.TrimPrefix(path.Clean("/"+source), "/"))
		if strings.Contains(source, "://") {
			return nil, fmt.Errorf("%s: a build has no network; send the file in the context", source)
		}
		if len(found) == 0 {
			return nil, fmt.Errorf("%q is not among the files of the build", source)
		}
		for _, root := range found {
			if !f.isDir(root) {
				dest := path.Clean(to)
				if into || len(found) > 1 {
					dest = path.Join(to, path.Base(root))
				}
				w.add(dest, f[root], o)
				continue
			}
			w.dir(path.Clean(to))
			for _, name := range f.names() {
				if rest, in := within(name, root); in {
					w.add(path.Join(to, rest), f[name], o)
				}
			}
		}
	}
	return w.finish()
}

func within(name, root string) (string, bool) {
	if root == "" {
		return name, true
	}
	return strings.CutPrefix(name, root+"/")
}

func (f files) isDir(name string) bool {
	return name == "" || f[name].dir || slices.ContainsFunc(f.names(), func(n string) bool { return strings.HasPrefix(n, name+"/") })
}

// match returns the paths that a source names; an empty one is the whole context.
func (f files) match(pattern string) []string {
	if pattern == "" {
		return []string{""}
	}
	var found []string
	for _, name := range f.names() {
		for part := name; part != "."; part = path.Dir(part) { // directories need no entry of their own
			if ok, err := path.Match(pattern, part); err == nil && ok && !slices.Contains(found, part) {
				found = append(found, part)
			}
		}
	}
	return found
}

func (f files) names() []string {
	names := make([]string, 0, len(f))
	for name := range f {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// writer makes a tar with the directories that its files need.
type writer struct {
	buf  bytes.Buffer
	tar  *tar.Writer
	made map[string]bool
	err  error
}

func (w *writer) begin() {
	if w.tar == nil {
		w.tar, w.made = tar.NewWriter(&w.buf), map[string]bool{"/": true, ".": true}
	}
}

// dir adds a directory and those above it. One that the image has already keeps its rights: no entry is made for /tmp
// and what every system has.
func (w *writer) dir(dir string) {
	w.begin()
	if w.made[dir] || slices.Contains([]string{"/tmp", "/usr", "/etc", "/var", "/opt", "/root", "/home", "/srv", "/bin", "/lib", "/sbin"}, dir) {
		return
	}
	w.dir(path.Dir(dir))
	w.made[dir] = true
	w.put(&tar.Header{Typeflag: tar.TypeDir, Name: strings.TrimPrefix(dir, "/") + "/", Mode: 0o755}, nil)
}

func (w *writer) add(name string, f file, o ownership) {
	w.begin()
	if f.dir {
		w.dir(name)
		return
	}
	w.dir(path.Dir(name))
	mode := f.mode
	if o.mode != 0 {
		mode = o.mode
	}
	w.put(&tar.Header{
		Typeflag: tar.TypeReg, Name: strings.TrimPrefix(name, "/"), Mode: mode, Size: int64(len(f.data)), Uid: o.uid, Gid: o.gid,
	}, f.data)
}

func (w *writer) put(h *tar.Header, data []byte) {
	if w.err == nil {
		w.err = w.tar.WriteHeader(h)
	}
	if w.err == nil {
		_, w.err = w.tar.Write(data)
	}
}

func (w *writer) finish() ([]byte, error) {
	w.begin()
	return w.buf.Bytes(), errors.Join(w.err, w.tar.Close())
}
