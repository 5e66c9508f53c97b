package scripted

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"sandyard/providers"
	"sandyard/providers/remote"
	"sandyard/providers/spool"
	"sandyard/providers/upload"
)

const (
	// maxTyped is how much of an upload stands in a script.
	maxTyped = 32 << 10
	// maxDescribed is what a script prints of a file beside its bytes.
	maxDescribed = 16 << 10
	// partSize is how much is uploaded at once: some servers take no larger bodies.
	partSize = 4 << 20
)

// firstPiece is how much of a file comes with its description.
func (b *Box) firstPiece() int64 { return min(1<<20, b.o.Inline/2) }

// pieceSize is how much of a file a script prints at once.
func (b *Box) pieceSize() int64 { return b.o.Inline - maxDescribed }

// pieceScript describes the regular file that p leads to and prints n of its bytes from o on, if it is no larger than
// w.
const pieceScript = describe + `
if [ -f "$p" ] && [ -r "$p" ]; then
	q=$p i=0
	while [ -L "$q" ] && [ "$i" -lt 40 ]; do
		t=$(readlink -- "$q"; echo .)
		t=${t%??}
		case $t in /*) q=$t ;; *) q=${q%/*}/$t ;; esac
		i=$((i + 1))
	done
	describe "$q"
	echo "$m."
	if [ "$(($(wc -c <"$q")))" -le "$w" ]; then tail -c "+$((o + 1))" -- "$q" | head -c "$n"; fi
else
	echo "$m!"
fi
`

// piece describes a file and reads some bytes of it; none where the whole file is larger than whole.
func (b *Box) piece(
	ctx context.Context,
	abs string,
	offset, length, whole int64,
) (r record, data []byte, err error) {
	m := mark()
	text := shell(m, abs) + fmt.Sprintf("o=%d n=%d w=%d\n", offset, length, whole) + pieceScript
	out, err := b.Script(ctx, "", text, length+maxDescribed)
	if err != nil {
		return r, nil, err
	}
	end := []byte(m + ".\n")
	head, data, ok := bytes.Cut(out, end)
	if !ok {
		head, end = out, nil
	}
	found, err := records(string(head)+string(end), m)
	if err == nil && (len(found) != 1 || found[0].Type != "file" || int64(len(data)) > length) {
		err = providers.Internal.Errorf("the sandbox did not describe '%s'", remote.Storable(abs))
	}
	if err != nil {
		return r, nil, b.Explain(ctx, abs, remote.ToRead, err)
	}
	return found[0], data, nil
}

// OpenFile implements providers.Streams.
func (b *Box) OpenFile(ctx context.Context, given string, offset, length int64) (providers.FileStream, error) {
	abs, err := b.Resolve(given)
	if err != nil {
		return providers.FileStream{}, err
	}
	return b.open(ctx, abs, offset, length)
}

// open reads a file: a small one comes with its description, a large one by a download or, where the toolbox does not
// give it, in pieces.
func (b *Box) open(ctx context.Context, abs string, offset, length int64) (providers.FileStream, error) {
	first := b.firstPiece()
	want := first
	if length >= 0 {
		want = min(want, length)
	}
	r, data, err := b.piece(ctx, abs, offset, want, max(first, offset+want))
	if err != nil {
		return providers.FileStream{}, err
	}
	f := providers.FileStream{Size: r.Size, ModifiedAt: r.ModifiedAt, ReadCloser: http.NoBody}
	if _, err := fmt.Sscanf(r.Mode, "%o", &f.Mode); err != nil {
		return f, err
	}
	left := max(r.Size-offset, 0)
	if length >= 0 {
		left = min(left, length)
	}
	if left == 0 {
		return f, nil
	}
	d := &download{ctx: ctx, b: b, abs: abs, file: r, at: offset, left: left}
	f.ReadCloser = d
	switch {
	case int64(len(data)) == left:
		d.body = bytes.NewReader(data)
	case offset == 0 && left == r.Size:
		err = d.ask(ctx)
	}
	return f, err
}

// download reads as much as was told, or fails.
type download struct {
	ctx   context.Context
	b     *Box
	abs   string
	file  record
	body  io.Reader     // of what comes next; nil = the next piece is to be read
	whole io.ReadCloser // where the vendor sends the file; nil = it comes in pieces
	at    int64         // where the next piece begins
	left  int64
}

// ask lets the vendor send the whole file. What it does not send comes in pieces.
func (d *download) ask(ctx context.Context) error {
	body, size, err := d.b.backend.Download(ctx, d.abs)
	if err != nil || body == nil {
		return err
	}
	if size >= 0 && size != d.file.Size { // it is another file by now
		return body.Close()
	}
	d.body, d.whole = body, body
	return nil
}

func (d *download) Read(p []byte) (int, error) {
	if d.left <= 0 {
		return 0, io.EOF
	}
	if d.body == nil {
		r, data, err := d.b.piece(d.ctx, d.abs, d.at, min(d.left, d.b.pieceSize()), 1<<62)
		switch {
		case err != nil:
			return 0, err
		case r.inode != d.file.inode || r.mtime != d.file.mtime || r.Size != d.file.Size || len(data) == 0:
			return 0, providers.Internal.Errorf("'%s' was changed while it was read", remote.Storable(d.abs))
		}
		d.body = bytes.NewReader(data)
	}
	n, err := d.body.Read(p[:min(int64(len(p)), d.left)])
	d.left, d.at = d.left-int64(n), d.at+int64(n)
	switch {
	case err == nil || d.left <= 0:
		return n, nil
	case !errors.Is(err, io.EOF):
		return n, err
	case d.whole != nil:
		return n, d.b.backend.Broken(d.ctx, io.ErrUnexpectedEOF)
	}
	d.body = nil
	return n, nil
}

func (d *download) Close() (err error) {
	if d.whole != nil {
		err = d.whole.Close()
		d.whole, d.body, d.left = nil, nil, 0
	}
	return err
}

// ReadFile implements providers.Files.
func (b *Box) ReadFile(ctx context.Context, given string, limit int64) ([]byte, error) {
	abs, err := b.Resolve(given)
	if err != nil {
		return nil, err
	}
	f, err := b.open(ctx, abs, 0, -1)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if f.Size > limit {
		return nil, providers.TooLarge.Errorf(
			"path '%s' holds more than %d bytes; "+
				"download it with GET /v1/sandboxes/{id}/files/raw, or read a part of it with a command",
			abs,
			limit,
		)
	}
	return io.ReadAll(f)
}

// Upload implements remote.Box: a few bytes stand in a script, more come as parts to /tmp and are put together.
// Parents are made, and a file of another user is not written to.
func (b *Box) Upload(ctx context.Context, abs string, r io.Reader, size int64) error {
	body := upload.New(r, size)
	first, most := true, int64(partSize)
	if size >= 0 {
		most = min(size+1, partSize)
	}
	if size < 0 || size > maxTyped { // what cannot be written to is not sent for nothing
		if err := b.add(ctx, abs, nil, true); err != nil {
			return err
		}
		first = false
	}
	for part := make([]byte, most); ; first = false {
		n, err := io.ReadFull(body, part)
		if failed := body.Failed(); failed != nil {
			return failed
		}
		if n == 0 && !first {
			break
		}
		if err := b.add(ctx, abs, part[:n], first); err != nil {
			return err
		}
		if err != nil {
			break
		}
	}
	if size >= 0 && body.Sent() != size {
		return providers.Invalid.Errorf("the upload has %d bytes, not %d", body.Sent(), size)
	}
	return nil
}

// addScript puts what g prints, n bytes, into the file p: at its end, or into a new one where a is empty. It comes from
// the file f, where that is not empty.
const addScript = `
umask 022
refuse() { case $e in *"o space left"*) echo space ;; *) echo no ;; esac; exit 0; }
if [ -z "$a" ]; then e=$(mkdir -p -- "${p%/*}/" 2>&1 && : 2>&1 >"$p") || refuse; fi
b=$(($(wc -c <"$p")))
[ -z "$f" ] || [ -r "$f" ] || { echo short; exit 0; }
e=$(g 2>&1 >>"$p") || refuse
[ "$(($(wc -c <"$p")))" = "$((b + n))" ] || { e=$(g 2>&1 >/dev/null); echo short; exit 0; }
echo added
`

// add puts bytes at the end of a file, or into a new one.
func (b *Box) add(ctx context.Context, abs string, data []byte, fresh bool) error {
	from, kept := "printf %s "+base64.StdEncoding.EncodeToString(data)+" | base64 -d", "f=\n"
	if len(data) > maxTyped {
		file := remote.Moment("/tmp")
		if err := b.backend.Send(ctx, file, data); err != nil {
			b.Discard(ctx, file)
			return err
		}
		from, kept = "cat "+file, "f="+file+"\ntrap 'rm -f "+file+"' EXIT\n"
	}
	if !fresh {
		kept += "a=1\n"
	} else {
		kept += "a=\n"
	}
	text := kept + fmt.Sprintf("p=%s n=%d\ng() { %s; }", spool.Quote(abs), len(data), from) + addScript
	out, err := b.Script(ctx, "", text, 100)
	switch said := strings.TrimSpace(string(out)); {
	case err != nil:
		return err
	case said == "added":
		return nil
	case said == "space":
		return providers.NoSpace.Errorf("the sandbox's disk is full")
	case said == "short":
		return remote.Unavailable("not all of an upload has arrived in the sandbox", nil)
	}
	return providers.Invalid.Errorf("'%s' cannot be written to", remote.Storable(abs))
}

// OpenTree implements providers.Streams: tar packs into a file of /tmp, which is packed again here, with clean names.
func (b *Box) OpenTree(ctx context.Context, given string, zip bool) (io.ReadCloser, error) {
	abs, err := b.Directory(ctx, given)
	if err != nil {
		return nil, err
	}
	return remote.OpenTree(ctx, zip, func(ctx context.Context, to io.Writer) error {
		file := remote.Moment("/tmp")
		defer b.Discard(ctx, file)
		out, err := b.Script(ctx, "", "( "+remote.Packing(abs)+"\n) >"+file+"\necho \"tar $?\"\n", 100)
		if err != nil {
			return err
		}
		var code int64
		if _, err := fmt.Sscanf(string(out), "tar %d", &code); err != nil {
			return b.o.Foreign
		}
		if err := remote.Packed(code); err != nil {
			return err
		}
		f, err := b.open(ctx, file, 0, -1)
		if err != nil {
			return err
		}
		defer f.Close()
		_, err = io.Copy(to, f)
		return err
	}), nil
}
