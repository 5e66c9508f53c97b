package dockerfile

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"
)

// files are what a build may copy into its image, by clean relative path.
type files struct {
	sent     map[string]file
	paths    []string        // of what was sent, and of the directories above it, in order
	dirs     map[string]bool // those of the paths that are directories
	matching int             // what wildcards may still cost
	meter    *meter
	keep     bool // what is copied; else it is only counted
}

type file struct {
	mode int64
	dir  bool
	data []byte
}

// Bounds of a context; its bytes are bounded by the request's body.
const (
	maxFiles   = 10_000
	maxDirs    = 10_000   // with those that have no entry of their own
	maxName    = 1024     // bytes
	maxRecords = 64 << 10 // bytes of what an entry says of itself beside its name
)

// readContext reads a tar. Only regular files and directories are for a build to have: a link could lead anywhere.
func readContext(archive []byte, keep bool) (*files, error) {
	f := &files{
		sent:     map[string]file{},
		dirs:     map[string]bool{},
		matching: maxMatching,
		meter:    newMeter(archive),
		keep:     keep,
	}
	left := bytes.NewReader(archive)
	r := tar.NewReader(left)
	for entries := 0; len(archive) > 0; entries++ {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, noTar(err)
		}
		if entries >= maxFiles {
			return nil, contextError("holds more than %d files", maxFiles)
		}
		if err := f.read(h, r, left.Len()); err != nil {
			return nil, err
		}
	}
	f.paths = slices.AppendSeq(slices.Collect(maps.Keys(f.dirs)), maps.Keys(f.sent))
	slices.Sort(f.paths)
	f.paths = slices.Compact(f.paths) // directories that were sent are in both
	return f, nil
}

func contextError(format string, args ...any) error {
	return &Error{Message: "the context " + fmt.Sprintf(format, args...)}
}

func noTar(err error) error { return contextError("is not a tar archive: %v", err) }

// read takes an entry over, of whose archive so many bytes are left.
func (f *files) read(h *tar.Header, r io.Reader, left int) error {
	name := path.Clean(strings.TrimPrefix(h.Name, "/"))
	if err := checkEntry(h, name); err != nil {
		return err
	}
	switch {
	case name == "." || h.Typeflag == tar.TypeXGlobalHeader:
		return nil
	case h.Typeflag == tar.TypeDir:
		f.sent[name] = file{mode: h.Mode & 0o777, dir: true}
		f.dirs[name] = true
	case h.Size > int64(left): // before anything is allocated for it
		return noTar(io.ErrUnexpectedEOF)
	default:
		data := make([]byte, h.Size)
		if _, err := io.ReadFull(r, data); err != nil {
			return noTar(err)
		}
		f.sent[name] = file{mode: h.Mode & 0o777, data: data}
	}
	for dir := path.Dir(name); dir != "." && !f.dirs[dir]; dir = path.Dir(dir) {
		f.dirs[dir] = true
	}
	if len(f.dirs) > maxDirs {
		return contextError("holds more than %d directories", maxDirs)
	}
	return nil
}

// checkEntry refuses what is not for a build to have, and what asks for much more than the archive's bytes.
func checkEntry(h *tar.Header, name string) error {
	records := 0
	sparse := h.Typeflag == tar.TypeGNUSparse
	for key, value := range h.PAXRecords {
		records += len(key) + len(value)
		sparse = sparse || strings.HasPrefix(key, "GNU.sparse.")
	}
	switch {
	case name == ".." || strings.HasPrefix(name, "../"):
		return contextError("holds %.200q, which leaves its root directory", h.Name)
	case len(h.Name) > maxName:
		return contextError("holds %.200q…, a name of more than %d bytes", h.Name, maxName)
	case records > maxRecords:
		return contextError(
			"holds more than %d bytes of metadata about %.200q; remove extended attributes",
			maxRecords,
			h.Name,
		)
	case sparse:
		return contextError("holds %.200q as a sparse file; create the tar without --sparse", h.Name)
	}
	switch h.Typeflag {
	case tar.TypeDir, tar.TypeReg, tar.TypeXGlobalHeader:
		return nil
	}
	return contextError("holds %.200q, which is neither a file nor a directory", h.Name)
}

// ownership is whose the copied files are.
type ownership struct {
	uid, gid int
	mode     int64 // 0 = as they are
}

func newOwnership(chown, chmod string) (o ownership, err error) {
	if chown != "" {
		user, group, both := strings.Cut(chown, ":")
		if !both {
			group = user
		}
		var errUser, errGroup error
		o.uid, errUser = strconv.Atoi(user)
		o.gid, errGroup = strconv.Atoi(group)
		if errUser != nil || errGroup != nil || o.uid < 0 || o.gid < 0 {
			return o, errors.New("--chown takes only numbers, such as 1000:1000")
		}
	}
	if chmod != "" {
		mode, err := strconv.ParseInt(chmod, 8, 16)
		if err != nil {
			return o, errors.New("--chmod takes an octal number")
		}
		o.mode = mode & 0o777
	}
	return o, nil
}

// under returns all files as a tar that unpacks into dir.
func (f *files) under(dir string, o ownership) ([]byte, error) {
	w := f.writer()
	w.dir(dir)
	w.tree("", dir, o)
	return w.finish()
}

// directory returns a tar of one directory.
func (f *files) directory(dir string) ([]byte, error) {
	w := f.writer()
	w.dir(dir)
	return w.finish()
}

// source is what a step copies. Errors quote its text: variables in its path may hold what nobody is to read.
type source struct {
	path, text string
	content    *string // of a here-document, which path is the name of
}

// pick returns what the sources name as a tar that unpacks to the absolute path to, as COPY does: directories give
// their content, and of several sources, or with a slash at its end, to is a directory.
func (f *files) pick(sources []source, to string, o ownership) ([]byte, error) {
	w := f.writer()
	into := strings.HasSuffix(to, "/") || len(sources) > 1
	for _, from := range sources {
		if from.content != nil {
			w.here(from, to, into, o)
			continue
		}
		if strings.Contains(from.path, "://") {
			return nil, fmt.Errorf("%.200s: a build has no network; send the file in the context", from.text)
		}
		found, err := f.match(strings.TrimPrefix(path.Clean("/"+from.path), "/"))
		if err != nil {
			return nil, err
		}
		if len(found) == 0 {
			return nil, fmt.Errorf("%.200q is not among the files of the build", from.text)
		}
		for _, root := range found {
			if root == "" || f.dirs[root] {
				w.dir(path.Clean(to))
				w.tree(root, to, o)
				continue
			}
			dest := path.Clean(to)
			if into || len(found) > 1 {
				dest = path.Join(to, path.Base(root))
			}
			w.add(dest, f.sent[root], o)
		}
		if w.err != nil {
			break
		}
	}
	return w.finish()
}

// here adds a here-document.
func (w *writer) here(from source, to string, into bool, o ownership) {
	dest := path.Clean(to)
	if into {
		dest = path.Join(to, from.path)
	}
	w.add(dest, file{mode: 0o644, data: []byte(*from.content)}, o)
}

// match returns the paths that a source names; an empty one is the whole context.
func (f *files) match(pattern string) ([]string, error) {
	if pattern == "" {
		return []string{""}, nil
	}
	wild := strings.IndexAny(pattern, `*?[\`)
	if wild < 0 {
		if _, found := slices.BinarySearch(f.paths, pattern); found {
			return []string{pattern}, nil
		}
		return nil, nil
	}
	if len(pattern) > maxName {
		return nil, nil
	}
	var found []string
	for _, name := range f.from(pattern[:wild]) {
		if f.matching -= len(name) * len(pattern); f.matching < 0 {
			return nil, errors.New("the wildcards take too long among so many files; name directories instead")
		}
		if ok, err := path.Match(pattern, name); err == nil && ok {
			found = append(found, name)
		}
	}
	return found, nil
}

// from returns the paths that begin with prefix.
func (f *files) from(prefix string) []string {
	first, _ := slices.BinarySearch(f.paths, prefix)
	n := 0
	for first+n < len(f.paths) && strings.HasPrefix(f.paths[first+n], prefix) {
		n++
	}
	return f.paths[first : first+n]
}

// writer makes a tar with the directories that its files need.
type writer struct {
	files *files
	buf   bytes.Buffer
	tar   *tar.Writer
	made  map[string]bool
	err   error
}

func (f *files) writer() *writer {
	w := &writer{files: f, made: map[string]bool{"/": true, ".": true}}
	out := metered{io.Discard, f.meter}
	if f.keep {
		out.Writer = &w.buf
	}
	w.tar = tar.NewWriter(out)
	return w
}

// tree adds what was sent below root, which goes to the directory to.
func (w *writer) tree(root, to string, o ownership) {
	prefix := ""
	if root != "" {
		prefix = root + "/"
	}
	for _, name := range w.files.from(prefix) {
		if w.err != nil {
			return
		}
		dest := path.Join(to, name[len(prefix):])
		f, sent := w.files.sent[name]
		if !sent || f.dir && w.made[dest] {
			w.err = w.files.meter.take(tarBlock) // for the time that it takes
			continue
		}
		w.add(dest, f, o)
	}
}

// dir adds a directory and those above it. One that the image has already keeps its rights: no entry is made for /tmp
// and what every system has.
func (w *writer) dir(dir string) {
	if w.err != nil || w.made[dir] ||
		slices.Contains(
			[]string{"/tmp", "/usr", "/etc", "/var", "/opt", "/root", "/home", "/srv", "/bin", "/lib", "/sbin"},
			dir,
		) {
		return
	}
	w.dir(path.Dir(dir))
	w.made[dir] = true
	w.put(&tar.Header{Typeflag: tar.TypeDir, Name: strings.TrimPrefix(dir, "/") + "/", Mode: 0o755}, nil)
}

func (w *writer) add(name string, f file, o ownership) {
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
		Typeflag: tar.TypeReg,
		Name:     strings.TrimPrefix(name, "/"),
		Mode:     mode,
		Size:     int64(len(f.data)),
		Uid:      o.uid,
		Gid:      o.gid,
	}, f.data)
}

func (w *writer) put(h *tar.Header, data []byte) {
	if w.err == nil {
		w.err = w.tar.WriteHeader(h)
		if w.err != nil && w.files.meter.left >= 0 { // else the words quote the name
			w.err = errors.New("a file has a name that tar archives do not support; rename it")
		}
	}
	if w.err == nil {
		_, w.err = w.tar.Write(data)
	}
}

func (w *writer) finish() ([]byte, error) {
	if w.err != nil {
		return nil, w.err
	}
	return w.buf.Bytes(), w.tar.Close()
}
