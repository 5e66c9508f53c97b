package remote

import (
	"archive/tar"
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"strings"

	"sandyard/providers"
	"sandyard/providers/spool"
	"sandyard/providers/upload"
)

const (
	maxNames    = 500_000 // entries of an archive
	maxStripped = 100
)

// Packing is the script that prints a directory as a tar archive.
func Packing(abs string) string {
	// Two modes for one file that has two names: an archive of both, or of a link to what may lie outside of it.
	return "cd " + spool.Quote(abs) + " || exit 9\n" +
		"o=--hard-dereference; tar $o -cf /dev/null --files-from /dev/null 2>/dev/null || o=\n" +
		"exec tar -cf - $o . 2>/dev/null"
}

// Packed says what is wrong with the exit code of Packing.
func Packed(code int64) error {
	if code == 0 || code == 1 { // 1: something has changed meanwhile
		return nil
	}
	return providers.Internal.Errorf("the sandbox's tar failed with exit code %d", code)
}

// Directory resolves the path of a directory that is to be read.
func (f *Files) Directory(ctx context.Context, given string) (string, error) {
	abs, err := f.Sendable(given)
	if err != nil {
		return "", err
	}
	at, err := f.look(ctx, abs)
	if err != nil {
		return "", err
	}
	if class := at.class(ToList); class != "" {
		return "", &providers.Error{Class: class, Message: classMessage(class, abs)}
	}
	return abs, nil
}

// OpenTree reads an archive of Packing and gives it out with clean names. Pack writes it, until its context or its
// writer says that nobody reads any more.
func OpenTree(ctx context.Context, zip bool, pack func(ctx context.Context, to io.Writer) error) io.ReadCloser {
	ctx, stop := context.WithCancel(ctx)
	packed, write := io.Pipe()
	sent, send := io.Pipe()
	go func() {
		_ = write.CloseWithError(pack(ctx, write)) // EOF for nil; it never fails
	}()
	go func() {
		err := repack(send, packed, zip)
		stop()
		_ = packed.CloseWithError(err)
		_ = send.CloseWithError(err)
	}()
	return &tree{sent, stop}
}

// tree is an archive as it comes.
type tree struct {
	*io.PipeReader

	stop context.CancelFunc
}

func (t *tree) Close() error {
	t.stop()
	return t.PipeReader.Close()
}

// repack copies an archive of ".": files, directories and links, by their clean names.
func repack(to io.Writer, from io.Reader, zip bool) error {
	out := to
	var zipped *gzip.Writer
	if zip {
		zipped = gzip.NewWriter(to)
		out = zipped
	}
	w := tar.NewWriter(out)
	for in := tar.NewReader(from); ; {
		h, err := in.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return wrapped(err)
		}
		name := path.Clean(h.Name)
		if !known(h.Typeflag) || name == "." || !inTree(name) {
			continue
		}
		if h.Name = name; h.Typeflag == tar.TypeDir {
			h.Name += "/"
		}
		if h.Typeflag == tar.TypeLink {
			h.Linkname = path.Clean(h.Linkname)
		}
		h.Format = tar.FormatUnknown
		if err := w.WriteHeader(h); err != nil {
			return wrapped(err)
		}
		if _, err := io.Copy(w, in); err != nil {
			return wrapped(err)
		}
	}
	if _, err := io.Copy(io.Discard, from); err != nil { // how tar has ended
		return wrapped(err)
	}
	err := w.Close()
	if zipped != nil {
		err = errors.Join(err, zipped.Close())
	}
	return err
}

// wrapped keeps a provider's error and makes one of any other.
func wrapped(err error) error {
	var own *providers.Error
	if errors.As(err, &own) || errors.Is(err, io.ErrClosedPipe) {
		return err
	}
	return &providers.Error{Class: providers.Internal, Message: "the sandbox sent a broken archive", Err: err}
}

func known(flag byte) bool {
	switch flag {
	case tar.TypeReg, tar.TypeDir, tar.TypeSymlink, tar.TypeLink:
		return true
	}
	return false
}

func inTree(name string) bool {
	return name != ".." && !strings.HasPrefix(name, "../") && !path.IsAbs(name)
}

// SaveTree implements providers.Streams: what is harmless of the archive goes into the sandbox, where tar unpacks it.
func (f *Files) SaveTree(ctx context.Context, given string, r io.Reader) (providers.TreeReport, error) {
	abs, err := f.Sendable(given)
	if err != nil {
		return providers.TreeReport{}, err
	}
	out, err := f.box.Script(
		ctx,
		"",
		"p="+spool.Quote(abs)+"; mkdir -p \"$p\" 2>/dev/null && [ -w \"$p\" ] && echo ready || echo no",
		100,
	)
	if err != nil {
		return providers.TreeReport{}, err
	}
	if strings.TrimSpace(string(out)) != "ready" {
		return providers.TreeReport{}, f.Explain(
			ctx,
			abs,
			ToMake,
			providers.FileDenied.Errorf("'%s' cannot be written to", abs),
		)
	}
	temp := Moment(abs)
	source := upload.New(r, -1)
	checked, send := io.Pipe()
	c := &checking{kinds: map[string]byte{}}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		c.run(send, source)
	}()
	if err := f.box.Upload(ctx, temp, checked, -1); err != nil {
		_ = checked.CloseWithError(errNobodyReads) // c may still wait for its source, and is left alone
		f.Discard(ctx, temp)
		return providers.TreeReport{}, f.Explain(ctx, abs, ToMake, err)
	}
	<-ended
	// What stood before a bad entry, or before the source's failure, stays.
	if err := f.unpack(ctx, temp, abs, c.good); err != nil {
		return providers.TreeReport{}, f.Explain(ctx, abs, ToMake, err)
	}
	if failed := source.Failed(); failed != nil {
		return providers.TreeReport{}, failed
	}
	if c.bad != nil {
		return providers.TreeReport{}, c.bad
	}
	return c.report, nil
}

var errNobodyReads = errors.New("nobody reads the archive any more")

// unpack lets tar unpack the first good bytes of an archive that was checked, and removes it.
func (f *Files) unpack(ctx context.Context, temp, abs string, good int64) error {
	text := fmt.Sprintf(`t=%s p=%s
e=$(head -c %d "$t" | tar -xpf - -C "$p" 2>&1); c=$?
rm -f "$t"
case $e in *"No space"*) c=space ;; esac
echo "tar $c"
`, spool.Quote(temp), spool.Quote(abs), good)
	out, err := f.box.Script(ctx, "", text, 100)
	switch said := strings.TrimSpace(string(out)); {
	case err != nil:
		f.Discard(ctx, temp)
		return err
	case said == "tar space":
		return providers.NoSpace.Errorf("the sandbox's disk is full")
	case said != "tar 0" && good > 0:
		return providers.Internal.Errorf("the sandbox's tar could not unpack the archive")
	}
	return nil
}

// checking copies the harmless part of an archive.
type checking struct {
	kinds  map[string]byte // of the entries so far, by their clean names
	report providers.TreeReport
	good   int64            // bytes of the copy up to the end of the last whole entry
	bad    *providers.Error // why it ended before the archive did
}

// run copies to the end or the first bad entry.
func (c *checking) run(to *io.PipeWriter, from io.Reader) {
	n := &counting{w: to}
	w := tar.NewWriter(n)
	err := c.copy(w, n, from)
	if err == nil {
		err = w.Close()
		c.good = n.n
	}
	if errors.Is(err, errCutOff) {
		err = nil
	}
	_ = to.CloseWithError(err)
}

// counting knows how much went through.
type counting struct {
	w io.Writer
	n int64
}

func (c *counting) Write(p []byte) (int, error) {
	n, err := c.w.Write(p)
	c.n += int64(n)
	return n, err
}

func (c *checking) copy(w *tar.Writer, n *counting, from io.Reader) error {
	plain, err := unzipped(from)
	if err != nil {
		c.bad = badArchive("the archive is empty or broken")
		return nil
	}
	for in := tar.NewReader(plain); ; {
		h, err := in.Next()
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			c.bad = badArchive("the archive is broken or cut off")
			return nil
		case h.Typeflag == tar.TypeXGlobalHeader:
			continue
		case len(c.kinds) >= maxNames:
			c.bad = badArchive("the archive has more than %d entries", maxNames)
			return nil
		}
		skip, why := c.judge(h)
		if why != "" {
			c.bad = badArchive("entry '%s' %s", Storable(h.Name), why)
			return nil
		}
		if skip {
			continue
		}
		if err := c.copyEntry(w, in, *h); err != nil {
			return err
		}
		c.good = n.n
	}
}

// copyEntry copies one entry.
func (c *checking) copyEntry(w *tar.Writer, in *tar.Reader, h tar.Header) error {
	given := h.Name
	h.Name = path.Clean(h.Name)
	if h.Typeflag == tar.TypeLink {
		h.Linkname = path.Clean(h.Linkname)
	}
	if odd := h.Mode & 0o7000; odd != 0 && (h.Typeflag == tar.TypeReg || h.Typeflag == tar.TypeDir) {
		if len(c.report.Stripped) < maxStripped {
			c.report.Stripped = append(c.report.Stripped, Storable(strings.TrimSuffix(given, "/")))
		}
	}
	clean := tar.Header{
		Typeflag: h.Typeflag, Name: h.Name, Linkname: h.Linkname, Size: h.Size, Mode: h.Mode & 0o777, ModTime: h.ModTime,
	}
	if err := w.WriteHeader(&clean); err != nil {
		return err
	}
	out := &failing{w: w}
	n, err := io.Copy(out, in)
	switch {
	case out.err != nil:
		return out.err
	case err != nil:
		c.bad = badArchive("the archive is cut off in '%s'", Storable(given))
		return errCutOff
	}
	switch h.Typeflag {
	case tar.TypeReg:
		c.report.Files++
		c.report.Bytes += n
	case tar.TypeDir:
		c.report.Directories++
	default:
		c.report.Links++
	}
	return w.Flush()
}

// failing tells an error of the writer from one of the reader.
type failing struct {
	w   io.Writer
	err error
}

func (f *failing) Write(p []byte) (n int, err error) {
	n, f.err = f.w.Write(p)
	return n, f.err
}

var errCutOff = errors.New("the archive is cut off")

func badArchive(format string, args ...any) *providers.Error {
	return providers.BadArchive.Errorf(format, args...)
}

// unzipped reads an archive, compressed or not. Error: it has not even a beginning.
func unzipped(r io.Reader) (io.Reader, error) {
	b := bufio.NewReaderSize(r, 64<<10)
	magic, err := b.Peek(2)
	if err != nil {
		return nil, err
	}
	if bytes.Equal(magic, []byte{0x1f, 0x8b}) {
		return gzip.NewReader(b)
	}
	return b, nil
}

// judge says what is wrong with an entry, and whether it is already there.
func (c *checking) judge(h *tar.Header) (skip bool, why string) {
	name := path.Clean(h.Name)
	switch {
	case h.Name == "" || strings.IndexByte(h.Name, 0) >= 0 || len(name) > maxPath:
		return false, "has no proper name"
	case path.IsAbs(h.Name) || hasDots(h.Name):
		return false, "leads out of the directory"
	case !known(h.Typeflag):
		return false, "is no file, directory or link"
	}
	if name == "." {
		return true, map[bool]string{false: "is the directory itself"}[h.Typeflag == tar.TypeDir]
	}
	for dir := path.Dir(name); dir != "."; dir = path.Dir(dir) {
		if kind, ok := c.kinds[dir]; ok && kind != tar.TypeDir {
			return false, "goes through a link or a file"
		}
	}
	before, ok := c.kinds[name]
	switch {
	case ok && before == tar.TypeDir && h.Typeflag != tar.TypeDir:
		return false, "replaces a directory"
	case ok && before != tar.TypeDir && h.Typeflag == tar.TypeDir:
		return false, "is a directory in place of a file or link"
	case h.Typeflag == tar.TypeSymlink && (h.Linkname == "" || strings.IndexByte(h.Linkname, 0) >= 0):
		return false, "is a link to nothing"
	case h.Typeflag == tar.TypeLink:
		to := path.Clean(h.Linkname)
		if h.Linkname == "" || path.IsAbs(h.Linkname) || hasDots(h.Linkname) || c.kinds[to] != tar.TypeReg {
			return false, "is a hard link to something that is no file of the archive"
		}
		if to == name {
			return true, ""
		}
	}
	if c.kinds[name] = h.Typeflag; h.Typeflag == tar.TypeLink {
		c.kinds[name] = tar.TypeReg
	}
	for dir := path.Dir(name); dir != "."; dir = path.Dir(dir) {
		c.kinds[dir] = tar.TypeDir
	}
	return false, ""
}

func hasDots(name string) bool {
	for part := range strings.SplitSeq(name, "/") {
		if part == ".." {
			return true
		}
	}
	return false
}
