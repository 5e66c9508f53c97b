// Package scripted is the inside of a sandbox whose backend runs a line of shell and moves whole files, and can do no
// more: commands, files and archives are made of both.
//
// A sandbox needs what package spool lists, and find, mkdir, readlink, stat, tar and tr.
package scripted

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"io"
	"log/slog"
	"regexp"
	"strings"
	"time"

	"sandyard/providers"
	"sandyard/providers/remote"
	"sandyard/providers/spool"
)

const (
	// maxCommand is how long the code of a line may be: Linux takes no argument of 128 KiB.
	maxCommand = 96 << 10
	// maxFrame is what a line prints beside the output of its script.
	maxFrame = 64 << 10
)

// Backend is what a vendor can do in one of its sandboxes. Its errors are providers' errors.
type Backend interface {
	// Execute runs a line by the sandbox's shell and returns what it has printed to its standard output, which is text
	// and shorter than most bytes. It must not run it twice.
	Execute(ctx context.Context, line string, most int64) (string, error)
	// Send writes a new file in /tmp.
	Send(ctx context.Context, file string, data []byte) error
	// Download reads a whole file, and says how large that is; negative = the vendor does not say. It answers nil where
	// the vendor does not give the file so: scripts read it then, and say what is wrong.
	Download(ctx context.Context, file string) (body io.ReadCloser, size int64, err error)
	// Broken explains why an answer ended before all of it had come.
	Broken(ctx context.Context, err error) error
}

// Options describe a sandbox.
type Options struct {
	ID       string        // ours, for the log
	WorkDir  string        // absolute and clean
	Home     string        // absolute and clean
	Inline   int64         // how many bytes of output one answer may hold; more goes through a file
	Patience time.Duration // how long a line may wait for a command
	Foreign  *providers.Error
	Log      *slog.Logger
}

// Box is the inside of a sandbox that runs.
type Box struct {
	*spool.Spool
	*remote.Files

	backend Backend
	o       Options
}

var _ providers.Sandbox = (*Box)(nil)

// New returns the inside of a sandbox. Foreign of the options is what an answer means that no script of ours has
// printed.
func New(backend Backend, o Options) *Box {
	b := &Box{backend: backend, o: o}
	b.Spool = spool.New(b, spool.Options{WorkDir: o.WorkDir, Home: o.Home, Patience: o.Patience, Lasting: true})
	b.Files = remote.NewFiles(b, o.ID, o.WorkDir, o.Home, o.Log)
	return b
}

// What stands around the output of a script: a backend may give both outputs as one text, and says no more of a script
// that was killed.
const (
	frameBegin = "sandyard-begin"
	frameEnd   = "sandyard-end"
	frameUser  = "sandyard-nobody"
)

var userNames = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_.-]{0,31}$`)

// fileScript prints what the script before it has written to a file, if that is not longer than n, behind "in". Else
// the file stays, and it prints "out", or "none" where no file could be made.
const fileScript = `
if [ ! -f %[1]s ]; then printf none
elif [ "$(($(wc -c <%[1]s)))" -le %[2]d ]; then printf 'in '; cat %[1]s; rm -f %[1]s
else printf out; fi
`

// Script implements spool.Shell.
func (b *Box) Script(ctx context.Context, user, text string, limit int64) ([]byte, error) {
	if user != "" && !userNames.MatchString(user) {
		return nil, providers.NoUser.Errorf("user %.80q is not available", user)
	}
	if limit <= b.o.Inline {
		return b.framed(ctx, user, text, limit)
	}
	// What is long is read from a file that the script's user has written.
	file := remote.Moment("/tmp")
	text = "(\n" + text + "\n) >" + file + fmt.Sprintf(fileScript, file, b.o.Inline)
	said, err := b.framed(ctx, user, text, b.o.Inline+8)
	if err != nil {
		return nil, err
	}
	if out, inline := bytes.CutPrefix(said, []byte("in ")); inline {
		return out, nil
	}
	switch string(said) {
	case "out":
		defer b.discardAs(ctx, user, file)
	case "none":
		return nil, providers.NoSpace.Errorf("the sandbox has no room in /tmp for the output of a script")
	default:
		return nil, b.o.Foreign
	}
	f, err := b.open(ctx, file, 0, -1)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	out, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err == nil && int64(len(out)) > limit {
		err = tooMuch(limit)
	}
	return out, err
}

// discardAs removes a file of a user in /tmp, as far as that can be done now.
func (b *Box) discardAs(ctx context.Context, user, file string) {
	ctx, stop := remote.Background(ctx)
	defer stop()
	if _, err := b.framed(ctx, user, "rm -f "+spool.Quote(file), 0); err != nil {
		b.o.Log.DebugContext(ctx, "output of a script not removed", "sandbox_id", b.o.ID, "error", err)
	}
}

func tooMuch(limit int64) error {
	return providers.TooLarge.Errorf("the sandbox's shell printed more than %d bytes", limit)
}

// framed runs a script whose output fits into an answer.
func (b *Box) framed(ctx context.Context, user, text string, limit int64) ([]byte, error) {
	code := base64.StdEncoding.EncodeToString([]byte(text))
	if len(code) > maxCommand {
		file := remote.Moment("/tmp")
		if err := b.Put(ctx, file, []byte("rm -f "+spool.Quote(file)+" 2>/dev/null\n"+text)); err != nil {
			return nil, err
		}
		code = base64.StdEncoding.EncodeToString([]byte(". " + spool.Quote(file)))
	}
	result, err := b.backend.Execute(ctx, command(user, code, limit), 2*limit+maxFrame)
	if err != nil {
		return nil, err
	}
	if strings.Contains(result, frameUser) {
		return nil, providers.NoUser.Errorf("user '%s' is not available in the sandbox", user)
	}
	_, rest, begun := strings.Cut(result, frameBegin)
	body, _, ended := strings.Cut(rest, frameEnd)
	if !begun || !ended { // it was killed, or there is no such shell
		return nil, b.backend.Broken(ctx, io.ErrUnexpectedEOF)
	}
	out, err := base64.StdEncoding.DecodeString(strings.NewReplacer("\r", "", "\n", "").Replace(body))
	if err != nil {
		return nil, b.o.Foreign
	}
	if int64(len(out)) > limit {
		return nil, tooMuch(limit)
	}
	return out, nil
}

// command is a line for the backend, which may read it by a shell or take it apart at blanks and quotes by itself: so
// all of it is one word in quotes that holds no such quote. It prints three lines at most, for a backend may keep only
// the last ones. Its variables begin with sy_, as the spool's do: one that the sandbox's environment has, too, would
// reach the command with another value.
func command(user, code string, limit int64) string {
	run := `exec sh -c "$sy_text"`
	who := ""
	if user != "" {
		who = fmt.Sprintf(`sy_user=%s;if [ "$(id -un)" = $sy_user ];then sy_as=;`+
			`elif ! id -u $sy_user >/dev/null 2>&1;then sy_as=no;elif [ "$(id -u)" = 0 ];then sy_as=su;`+
			`elif sudo -n -E -u $sy_user true >/dev/null 2>&1;then sy_as=sudo;else sy_as=no;fi;`+
			`[ "$sy_as" != no ]||{ echo %s;exit 0;};`, user, frameUser)
		run = `case $sy_as in su)exec su -s /bin/sh $sy_user -c "$sy_text";;` +
			`sudo)exec sudo -n -E -H -u $sy_user sh -c "$sy_text";;*)exec sh -c "$sy_text";;esac`
	}
	const line = `sh -c 'cd /;sy_text=$(printf %%s %s|base64 -d);%s` +
		`echo %s;{ %s;} </dev/null 2>/dev/null|head -c %d|base64|tr -d "[:space:]";echo;echo %s'`
	return fmt.Sprintf(line, code, who, frameBegin, run, limit+1, frameEnd)
}

// Put implements spool.Shell.
func (b *Box) Put(ctx context.Context, path string, data []byte) error {
	return b.Upload(ctx, path, bytes.NewReader(data), int64(len(data)))
}

// mark is text that no file of the sandbox has in its name.
func mark() string { return "sandyard" + strings.ToLower(rand.Text()) }

// Body is the content of a file that a vendor sends.
type Body struct {
	io.ReadCloser

	Broken func(error) error // explains an error of the connection
	End    func()            // of the call
}

// Read implements io.Reader.
func (b Body) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil && err != io.EOF { //nolint:errorlint // a reader's own end
		err = b.Broken(err)
	}
	return n, err
}

// Close implements io.Closer.
func (b Body) Close() error {
	b.End()
	_ = b.ReadCloser.Close() // what is left of it is not wanted
	return nil
}
