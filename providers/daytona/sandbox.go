package daytona

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"strings"

	"sandyard/providers"
	"sandyard/providers/remote"
	"sandyard/providers/spool"
)

const (
	// maxInline is how much a script may print into an answer; more goes through a file.
	maxInline = 4 << 20
	// maxCommand is how long the command of a script may be: Linux takes no argument of 128 KiB.
	maxCommand = 96 << 10
	// maxFrame is what an answer holds beside what a script has printed.
	maxFrame = 64 << 10
)

// sandbox is the inside of one that runs.
type sandbox struct {
	*spool.Spool
	*remote.Files

	p       *Provider
	id      string // ours
	backend string
	toolbox *url.URL
}

var _ providers.Sandbox = (*sandbox)(nil)

// inside returns the inside of a sandbox that runs.
func (p *Provider) inside(id string, d described) (*sandbox, error) {
	base, err := p.outside.named(d.Toolbox)
	if err != nil {
		return nil, err
	}
	workDir, home := d.Labels.Dirs()
	s := &sandbox{p: p, id: id, backend: d.ID, toolbox: base.JoinPath(d.ID)}
	s.Spool = spool.New(s, spool.Options{WorkDir: workDir, Home: home, Patience: scriptPatience, Lasting: true})
	s.Files = remote.NewFiles(s, id, workDir, home, p.log)
	return s, nil
}

// post sends the toolbox a body of a kind. The caller closes the answer's body, whose status is one of success.
func (s *sandbox) post(ctx context.Context, to, kind string, body []byte) (*http.Response, error) {
	at := s.toolbox.JoinPath(to).String()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, at, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", kind)
	return s.call(req)
}

// call makes a call of the toolbox. The caller closes the answer's body, whose status is one of success.
func (s *sandbox) call(req *http.Request) (*http.Response, error) {
	s.p.authorize(req.Header)
	req.GetBody = nil // a script must not run twice because the transport lost its connection
	res, err := s.p.outside.transport.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	if res.StatusCode >= 200 && res.StatusCode <= 299 {
		return res, nil
	}
	defer res.Body.Close()
	if res.StatusCode < http.StatusBadRequest {
		return nil, errNotDaytona
	}
	r := remote.ReadRefusal(res)
	r.Secret = s.p.cfg.Secret
	return nil, r
}

// broken explains why a call did not reach its end. What cut it knows more than the transport, and of a sandbox that
// does not answer the API says how it stands.
func (s *sandbox) broken(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return remote.GivenUp(ctx)
	}
	if own, ok := errors.AsType[*providers.Error](err); ok {
		return own
	}
	var r *remote.Refusal
	if errors.As(err, &r) {
		if e := refused(r); e != nil {
			return e
		}
	}
	d, getErr := s.p.apiGet(ctx, s.backend)
	switch {
	case ctx.Err() != nil:
		return remote.GivenUp(ctx)
	case errors.Is(getErr, providers.ErrNotFound):
		s.p.refs.Forget(s.id, s.backend)
		return &providers.Error{Class: providers.Lost, Message: providers.ErrLost.Message, Err: remote.Quiet(err)}
	case getErr != nil:
		return remote.Unavailable("the sandbox does not answer, nor does Daytona say how it stands", remote.Quiet(err))
	}
	if why := standing(d); why != nil {
		return why
	}
	if r != nil && r.Status == http.StatusConflict {
		return providers.Busy.Errorf("the sandbox's state is changing at Daytona")
	}
	if r != nil && r.Status == http.StatusBadRequest {
		return &providers.Error{Class: providers.Invalid, Message: "the sandbox does not accept the call", Err: r}
	}
	e := remote.Unavailable("the connection to the sandbox broke, or its toolbox failed", remote.Quiet(err))
	if r != nil {
		e.RetryAfter = r.RetryAfter
	}
	return e
}

// What stands around the output of a script: the toolbox gives both outputs as one text, and says no more of a script
// that was killed.
const (
	frameBegin = "sandyard-begin"
	frameEnd   = "sandyard-end"
	frameUser  = "sandyard-nobody"
)

var userNames = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_.-]{0,31}$`)

// Script implements spool.Shell.
func (s *sandbox) Script(ctx context.Context, user, text string, limit int64) ([]byte, error) {
	if user != "" && !userNames.MatchString(user) {
		return nil, providers.NoUser.Errorf("user %.80q is not available", user)
	}
	if limit <= maxInline {
		return s.framed(ctx, user, text, limit)
	}
	// The output is on its way in pieces, from a file that its user has written.
	file := remote.Moment("/tmp")
	defer s.discardAs(ctx, user, file)
	said, err := s.framed(ctx, user, "{\n"+text+"\n} >"+spool.Quote(file)+"\n", 0)
	if err == nil && len(said) > 0 {
		err = errNotDaytona
	}
	if err != nil {
		return nil, err
	}
	f, err := s.open(ctx, file, 0, -1)
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
func (s *sandbox) discardAs(ctx context.Context, user, file string) {
	ctx, stop := remote.Background(ctx)
	defer stop()
	if _, err := s.framed(ctx, user, "rm -f "+spool.Quote(file), 0); err != nil {
		s.p.log.DebugContext(ctx, "output of a script not removed", "sandbox_id", s.id, "error", err)
	}
}

func tooMuch(limit int64) error {
	return providers.TooLarge.Errorf("the sandbox's shell printed more than %d bytes", limit)
}

// framed runs a script whose output fits into an answer.
func (s *sandbox) framed(ctx context.Context, user, text string, limit int64) ([]byte, error) {
	ctx, end := s.p.calls.Begin(ctx, s.backend)
	defer end()
	code := base64.StdEncoding.EncodeToString([]byte(text))
	if len(code) > maxCommand {
		file := remote.Moment("/tmp")
		if err := s.Put(ctx, file, []byte("rm -f "+spool.Quote(file)+" 2>/dev/null\n"+text)); err != nil {
			return nil, err
		}
		code = base64.StdEncoding.EncodeToString([]byte(". " + spool.Quote(file)))
	}
	ctx, stop := context.WithTimeout(ctx, scriptAnswer)
	defer stop()
	result, err := s.execute(ctx, command(user, code, limit), limit)
	if err != nil {
		return nil, s.broken(ctx, err)
	}
	if strings.Contains(result, frameUser) {
		return nil, providers.NoUser.Errorf("user '%s' is not available in the sandbox", user)
	}
	_, rest, begun := strings.Cut(result, frameBegin)
	body, _, ended := strings.Cut(rest, frameEnd)
	if !begun || !ended { // it was killed, or there is no such shell
		return nil, s.broken(ctx, io.ErrUnexpectedEOF)
	}
	out, err := base64.StdEncoding.DecodeString(strings.NewReplacer("\r", "", "\n", "").Replace(body))
	if err != nil {
		return nil, errNotDaytona
	}
	if int64(len(out)) > limit {
		return nil, tooMuch(limit)
	}
	return out, nil
}

// command is a line for the toolbox, which may read it by a shell or take it apart at blanks and quotes by itself: so
// all of it is one word in quotes that holds no such quote. Its variables begin with sy_, as the spool's do: one that
// the sandbox's environment has, too, would reach the command with another value.
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
		`echo %s;{ %s;} </dev/null 2>/dev/null|head -c %d|base64;echo %s'`
	return fmt.Sprintf(line, code, who, frameBegin, run, limit+1, frameEnd)
}

// execute runs a command line and returns what it has printed.
func (s *sandbox) execute(ctx context.Context, line string, limit int64) (string, error) {
	body, err := json.Marshal(map[string]any{"command": line, "timeout": scriptSeconds})
	if err != nil {
		return "", err
	}
	res, err := s.post(ctx, "process/execute", "application/json", body)
	if err != nil {
		return "", err
	}
	defer res.Body.Close()
	most := 2*limit + maxFrame
	text, err := io.ReadAll(io.LimitReader(res.Body, most+1))
	if err != nil {
		return "", err
	}
	var answer struct {
		Result *string `json:"result"`
	}
	if int64(len(text)) > most || json.Unmarshal(text, &answer) != nil || answer.Result == nil {
		return "", errNotDaytona
	}
	return *answer.Result, nil
}

// Put implements spool.Shell.
func (s *sandbox) Put(ctx context.Context, path string, data []byte) error {
	return s.Upload(ctx, path, bytes.NewReader(data), int64(len(data)))
}

// mark is text that no file of the sandbox has in its name.
func mark() string { return "sandyard" + strings.ToLower(rand.Text()) }
