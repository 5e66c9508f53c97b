package daytona

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"net/url"
	"path"
	"strings"

	"sandyard/providers"
	"sandyard/providers/remote"
	"sandyard/providers/spool"
	"sandyard/providers/upload"
)

const (
	// maxTyped is how much of an upload stands in a script.
	maxTyped = 32 << 10
	// partSize is how much is uploaded at once: some servers take no larger bodies.
	partSize = 4 << 20
	// firstPiece is how much of a file comes with its description.
	firstPiece = 1 << 20
	// pieceSize is how much of a file a script prints at once.
	pieceSize = maxInline - 64<<10
)

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
func (s *sandbox) piece(
	ctx context.Context,
	abs string,
	offset, length, whole int64,
) (r record, data []byte, err error) {
	m := mark()
	text := shell(m, abs) + fmt.Sprintf("o=%d n=%d w=%d\n", offset, length, whole) + pieceScript
	out, err := s.Script(ctx, "", text, length+16<<10)
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
		return r, nil, s.Explain(ctx, abs, remote.ToRead, err)
	}
	return found[0], data, nil
}

// OpenFile implements providers.Streams.
func (s *sandbox) OpenFile(ctx context.Context, given string, offset, length int64) (providers.FileStream, error) {
	abs, err := s.Resolve(given)
	if err != nil {
		return providers.FileStream{}, err
	}
	return s.open(ctx, abs, offset, length)
}

// open reads a file: a small one comes with its description, a large one by a download or, where the toolbox does not
// give it, in pieces.
func (s *sandbox) open(ctx context.Context, abs string, offset, length int64) (providers.FileStream, error) {
	want := int64(firstPiece)
	if length >= 0 {
		want = min(want, length)
	}
	r, data, err := s.piece(ctx, abs, offset, want, max(firstPiece, offset+want))
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
	d := &download{ctx: ctx, s: s, abs: abs, file: r, at: offset, left: left}
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
	ctx  context.Context
	s    *sandbox
	abs  string
	file record
	body io.Reader // of what comes next; nil = the next piece is to be read
	end  func()    // of body; nil = there is nothing to end
	at   int64     // where the next piece begins
	left int64
}

// ask lets the toolbox send the whole file. What it does not send comes in pieces.
func (d *download) ask(ctx context.Context) error {
	ctx, end := d.s.p.calls.Begin(ctx, d.s.backend)
	at := d.s.toolbox.JoinPath("files/download")
	at.RawQuery = url.Values{"path": {d.abs}}.Encode()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, at.String(), nil)
	if err != nil {
		end()
		return err
	}
	res, err := d.s.call(req) //nolint:bodyclose // d closes it
	// Without its size it is another file by now, or the server does not say.
	if err == nil && res.ContentLength != d.file.Size {
		_ = res.Body.Close()
		end()
		return nil
	}
	if err == nil {
		d.ctx, d.body, d.end = ctx, res.Body, func() { end(); _ = res.Body.Close() }
		return nil
	}
	var r *remote.Refusal
	if errors.As(err, &r) && r.Status != http.StatusUnauthorized && r.Status != http.StatusTooManyRequests {
		end()
		return nil // a piece says what is wrong
	}
	err = d.s.broken(ctx, err)
	end()
	return err
}

func (d *download) Read(p []byte) (int, error) {
	if d.left <= 0 {
		return 0, io.EOF
	}
	if d.body == nil {
		r, data, err := d.s.piece(d.ctx, d.abs, d.at, min(d.left, pieceSize), 1<<62)
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
		return n, d.s.broken(d.ctx, err)
	case d.end != nil:
		return n, d.s.broken(d.ctx, io.ErrUnexpectedEOF)
	}
	d.body = nil
	return n, nil
}

func (d *download) Close() error {
	if d.end != nil {
		d.end()
		d.end, d.body, d.left = nil, nil, 0
	}
	return nil
}

// ReadFile implements providers.Files.
func (s *sandbox) ReadFile(ctx context.Context, given string, limit int64) ([]byte, error) {
	abs, err := s.Resolve(given)
	if err != nil {
		return nil, err
	}
	f, err := s.open(ctx, abs, 0, -1)
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
func (s *sandbox) Upload(ctx context.Context, abs string, r io.Reader, size int64) error {
	body := upload.New(r, size)
	first, most := true, int64(partSize)
	if size >= 0 {
		most = min(size+1, partSize)
	}
	if size < 0 || size > maxTyped { // what cannot be written to is not sent for nothing
		if err := s.add(ctx, abs, nil, true); err != nil {
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
		if err := s.add(ctx, abs, part[:n], first); err != nil {
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
func (s *sandbox) add(ctx context.Context, abs string, data []byte, fresh bool) error {
	from, kept := "printf %s "+base64.StdEncoding.EncodeToString(data)+" | base64 -d", "f=\n"
	if len(data) > maxTyped {
		file := remote.Moment("/tmp")
		if err := s.send(ctx, file, data); err != nil {
			s.Discard(ctx, file)
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
	out, err := s.Script(ctx, "", text, 100)
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

// send gives the toolbox a file of /tmp.
func (s *sandbox) send(ctx context.Context, file string, data []byte) error {
	ctx, end := s.p.calls.Begin(ctx, s.backend)
	defer end()
	var body bytes.Buffer
	form := multipart.NewWriter(&body)
	err := form.WriteField("files[0].path", file)
	if err == nil {
		var part io.Writer
		if part, err = form.CreateFormFile("files[0].file", path.Base(file)); err == nil {
			_, err = part.Write(data)
		}
	}
	if err = errors.Join(err, form.Close()); err != nil {
		return err
	}
	res, err := s.post(ctx, "files/bulk-upload", form.FormDataContentType(), body.Bytes())
	if err != nil {
		return s.broken(ctx, err)
	}
	_, err = io.Copy(io.Discard, io.LimitReader(res.Body, maxAnswer))
	_ = res.Body.Close()
	if err != nil {
		return s.broken(ctx, err)
	}
	return nil
}

// OpenTree implements providers.Streams: tar packs into a file of /tmp, which is packed again here, with clean names.
func (s *sandbox) OpenTree(ctx context.Context, given string, zip bool) (io.ReadCloser, error) {
	abs, err := s.Directory(ctx, given)
	if err != nil {
		return nil, err
	}
	return remote.OpenTree(ctx, zip, func(ctx context.Context, to io.Writer) error {
		file := remote.Moment("/tmp")
		defer s.Discard(ctx, file)
		out, err := s.Script(ctx, "", "( "+remote.Packing(abs)+"\n) >"+file+"\necho \"tar $?\"\n", 100)
		if err != nil {
			return err
		}
		var code int64
		if _, err := fmt.Sscanf(string(out), "tar %d", &code); err != nil {
			return errNotDaytona
		}
		if err := remote.Packed(code); err != nil {
			return err
		}
		f, err := s.open(ctx, file, 0, -1)
		if err != nil {
			return err
		}
		defer f.Close()
		_, err = io.Copy(to, f)
		return err
	}), nil
}
