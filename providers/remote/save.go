package remote

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"path"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"sandyard/providers"
	"sandyard/providers/spool"
	"sandyard/providers/upload"
)

// ValidText says whether text can be a part of a script.
func ValidText(text string) bool { return utf8.ValidString(text) && strings.IndexByte(text, 0) < 0 }

// Moment is a name beside abs for what is there for a moment.
func Moment(dir string) string { return path.Join(dir, temporary+strings.ToLower(rand.Text())) }

// Discard removes what an upload has left, as far as that can be done now.
func (f *Files) Discard(ctx context.Context, abs string) {
	ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
	defer stop()
	if _, err := f.box.Script(ctx, "", "rm -f "+spool.Quote(abs), 100); err != nil {
		f.Log.DebugContext(ctx, "leftover of an upload not removed", "sandbox_id", f.ID, "error", err)
	}
}

// commitScript puts the file t of size n into its place p with mode m.
const commitScript = `
refuse() { rm -f "$t"; echo "$1"; exit 0; }
if [ ! -L "$p" ] && [ -e "$p" ] && [ ! -f "$p" ]; then refuse notafile; fi
[ "$(($(wc -c <"$t")))" = "$n" ] || refuse size
chmod "$m" "$t" || refuse denied
mv -fT "$t" "$p" 2>/dev/null || { [ ! -L "$p" ] && mv -f "$t" "$p" 2>/dev/null; } || refuse denied
echo saved $(stat -c '%s %a %Y %U %G' "$p")
`

// SaveFile implements providers.Streams: the bytes go to a file of their own beside the old one, which they replace in
// one step.
func (f *Files) SaveFile(
	ctx context.Context,
	given string,
	r io.Reader,
	size int64,
	mode uint32,
) (providers.FileInfo, error) {
	abs, err := f.Changeable(given)
	if err != nil {
		if IsClass(err, providers.InvalidPath) && given != "" && ValidText(given) {
			if root, rootErr := f.Resolve(given); rootErr == nil { // a root is a directory
				return providers.FileInfo{}, providers.NotAFile.Errorf("path '%s' is not a regular file", root)
			}
		}
		return providers.FileInfo{}, err
	}
	if mode == 0 {
		mode = 0o644
	}
	temp := Moment(path.Dir(abs))
	body := upload.New(r, size)
	if err := f.box.Upload(ctx, temp, body, size); err != nil {
		f.Discard(ctx, temp)
		if body.Failed() != nil {
			return providers.FileInfo{}, err
		}
		return providers.FileInfo{}, f.Explain(ctx, abs, ToWrite, err)
	}
	text := fmt.Sprintf("t=%s p=%s n=%d m=%o\n", spool.Quote(temp), spool.Quote(abs), body.Sent(), mode&0o777)
	out, err := f.box.Script(ctx, "", text+commitScript, 1000)
	if err != nil {
		f.Discard(ctx, temp)
		return providers.FileInfo{}, err
	}
	words := strings.Fields(string(out))
	switch {
	case len(words) == 6 && words[0] == "saved":
		return savedInfo(abs, words[1:])
	case len(words) == 1 && words[0] == "notafile":
		return providers.FileInfo{}, &providers.Error{
			Class:   providers.NotAFile,
			Message: classMessage(providers.NotAFile, abs),
		}
	case len(words) == 1 && words[0] == "denied":
		return providers.FileInfo{}, f.Explain(
			ctx,
			abs,
			ToWrite,
			&providers.Error{Class: providers.FileDenied, Message: classMessage(providers.FileDenied, abs)},
		)
	}
	return providers.FileInfo{}, providers.Internal.Errorf("the sandbox did not confirm all bytes of '%s'", abs)
}

func savedInfo(abs string, words []string) (providers.FileInfo, error) {
	size, err := strconv.ParseInt(words[0], 10, 64)
	mode, modeErr := strconv.ParseUint(words[1], 8, 32)
	at, atErr := strconv.ParseInt(words[2], 10, 64)
	if err = errors.Join(err, modeErr, atErr); err != nil || size < 0 {
		return providers.FileInfo{}, providers.Internal.Errorf("the sandbox did not describe '%s'", abs)
	}
	return providers.FileInfo{
		Name: path.Base(
			abs,
		), Path: abs, Type: "file", Size: size, Mode: providers.Octal(uint32(mode)),
		Owner: Storable(words[3]), Group: Storable(words[4]),
		ModifiedAt: providers.Possible(time.Unix(at, 0)),
	}, nil
}

// WriteFile implements providers.Files.
func (f *Files) WriteFile(ctx context.Context, given string, data []byte, mode uint32) (providers.FileInfo, error) {
	return f.SaveFile(ctx, given, bytes.NewReader(data), int64(len(data)), mode)
}

// MakeWorkDir makes the work directory, with root's help where the user may not. Error: Invalid where nobody can,
// foreign where the sandbox answers with something else.
func (f *Files) MakeWorkDir(ctx context.Context, foreign *providers.Error) error {
	dir := spool.Quote(f.WorkDir)
	out, err := f.box.Script(
		ctx,
		"",
		"mkdir -p "+dir+" 2>/dev/null; if [ -d "+dir+" ] && [ -w "+dir+" ]; then echo ready; else id -u; fi",
		100,
	)
	if err != nil {
		return err
	}
	said := strings.TrimSpace(string(out))
	if said == "ready" {
		return nil
	}
	if _, err := strconv.ParseUint(said, 10, 32); err != nil {
		return foreign
	}
	out, err = f.box.Script(ctx, "root", "mkdir -p "+dir+" && chown "+said+" "+dir+" && echo ready", 100)
	if err == nil && strings.TrimSpace(string(out)) == "ready" {
		return nil
	}
	if err != nil && providers.AsError(err).Class != providers.NoUser {
		return err
	}
	return providers.Invalid.Errorf(
		"the sandbox's user cannot have the work directory %s; use another work_dir",
		f.WorkDir,
	)
}
