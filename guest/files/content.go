package files

import (
	"crypto/rand"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"sandyard/guest/protocol"
	"sandyard/guest/saferoot"
)

// Open opens a regular file for reading and answers ReasonTooLarge when it holds more than limit bytes; a negative
// limit is none. The caller closes the file.
func (t *Tree) Open(path string, limit int64) (*os.File, fs.FileInfo, error) {
	p, err := t.locateToRead(path, true)
	return openAt(p, err, path, limit)
}

// openServed is Open in the part that is served.
func (t *Tree) openServed(path string) (*os.File, error) {
	p, err := t.locate(path, true)
	f, _, err := openAt(p, err, path, -1)
	return f, err
}

func openAt(p place, err error, path string, limit int64) (*os.File, fs.FileInfo, error) {
	type opened struct {
		file *os.File
		info fs.FileInfo
	}
	o, err := at(p, err, path, func(root *saferoot.Root, p place) (opened, error) {
		f, err := openRegular(root, p.rel, path, limit)
		if err != nil {
			return opened{}, err
		}
		info, err := f.Stat()
		if err == nil {
			err = lawful(f, p)
		}
		if err != nil {
			return opened{}, errors.Join(err, f.Close())
		}
		return opened{f, info}, nil
	})
	return o.file, o.info, err
}

// openRegular opens a regular file that holds at most limit bytes; a negative limit is none.
func openRegular(root *saferoot.Root, rel, path string, limit int64) (*os.File, error) {
	// To open a device may do things. Without O_NONBLOCK opening a FIFO would wait for a writer.
	if info, err := root.Lstat(rel); err == nil && info.Mode().Type() != fs.ModeSymlink {
		if err := readable(info, path, limit); err != nil {
			return nil, err
		}
	}
	f, err := root.OpenFile(rel, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil {
		err = readable(info, path, limit)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

func readable(info fs.FileInfo, path string, limit int64) error {
	switch {
	case info.IsDir():
		return protocol.Errorf(protocol.ReasonNotAFile, "path '%s' is a directory", path)
	case !info.Mode().IsRegular():
		return protocol.Errorf(protocol.ReasonNotAFile, "path '%s' is not a regular file", path)
	case limit >= 0 && info.Size() > limit:
		return protocol.Errorf(protocol.ReasonTooLarge, "path '%s' holds %d bytes; the limit is %d", path, info.Size(), limit)
	}
	return nil
}

// Content is what a file is made of.
type Content struct {
	Body     io.Reader
	Size     int64 // of what the body holds; negative = unknown
	Mode     fs.FileMode
	Metadata map[string]string // see CheckMetadata
}

// Write replaces a file with its metadata, in one step and with its parents made. The old file stays when anything
// fails.
func (t *Tree) Write(path string, c Content) (Entry, error) {
	return inRoot(t, path, true, func(root *saferoot.Root, p place) (Entry, error) {
		prefix, err := replaceable(root, p, path)
		if err != nil {
			return Entry{}, err
		}
		if err := root.MkdirAll(filepath.Dir(p.rel), 0o755); err != nil {
			return Entry{}, err
		}
		return exchange(root, p, prefix, c, func() error { return nil })
	})
}

// exchange puts a new file in the place of what is there, if ready agrees when it is written.
func exchange(root *saferoot.Root, p place, prefix string, c Content, ready func() error) (Entry, error) {
	temp := filepath.Join(filepath.Dir(p.rel), prefix+rand.Text())
	err := fill(root, temp, c)
	if err == nil {
		err = ready()
	}
	if err == nil {
		err = root.Rename(temp, p.rel)
	}
	if err != nil {
		_ = root.Remove(temp)
		return Entry{}, err
	}
	return entryAt(root, p)
}

// replaceable refuses what a rename would not replace with a clear error, or should not. Else it answers with the
// beginning of a temporary name.
func replaceable(root *saferoot.Root, p place, path string) (prefix string, err error) {
	info, err := root.Lstat(p.rel)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return protocol.TempNew, nil
	case err != nil:
		return "", err
	case info.IsDir():
		return "", protocol.Errorf(protocol.ReasonNotAFile, "path '%s' is a directory", path)
	case !info.Mode().IsRegular():
		return "", protocol.Errorf(protocol.ReasonNotAFile, "path '%s' is not a regular file", path)
	}
	return protocol.TempReplace, nil
}

func fill(root *saferoot.Root, name string, c Content) error {
	f, err := root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	err = copyAll(f, c)
	if err == nil {
		err = setMetadata(f, c.Metadata)
	}
	if err == nil {
		err = f.Chmod(c.Mode) // not through the umask
	}
	return errors.Join(err, f.Close())
}

// copyBuffer is what is written at once of a file that is larger.
const copyBuffer = 256 << 10

func copyAll(to io.Writer, c Content) error {
	from := &upload{r: c.Body}
	// An *os.File would read for itself, by 32 KiB.
	n, err := io.CopyBuffer(struct{ io.Writer }{to}, from, make([]byte, bufferFor(c.Size)))
	if refused, ok := errors.AsType[*protocol.Error](from.err); ok {
		return refused
	}
	switch {
	case from.err != nil:
		return protocol.Errorf(protocol.ReasonInvalid, "the upload was interrupted after %d bytes: %v", n, from.err)
	case err == nil && c.Size >= 0 && n != c.Size:
		return protocol.Errorf(protocol.ReasonInvalid, "the upload has %d bytes, not %d", n, c.Size)
	}
	return err
}

func bufferFor(size int64) int64 {
	if size < 0 {
		return copyBuffer / 8
	}
	return min(size+1, copyBuffer)
}

// upload remembers whether it was the reading that failed.
type upload struct {
	r   io.Reader
	err error
}

func (u *upload) Read(p []byte) (int, error) {
	n, err := u.r.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		u.err = err
	}
	return n, err
}
