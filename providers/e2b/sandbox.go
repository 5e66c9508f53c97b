package e2b

import (
	"bytes"
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"time"

	"connectrpc.com/connect"

	"sandyard/guest/envdpb/filesystem/filesystemconnect"
	"sandyard/guest/envdpb/process"
	"sandyard/guest/envdpb/process/processconnect"
	"sandyard/providers"
	"sandyard/providers/remote"
	"sandyard/providers/spool"
)

const (
	envdPort   = 49983
	maxMessage = 16 << 20
	keepAlive  = 50 * time.Second // between signs of life of a quiet stream
	silence    = 3 * keepAlive    // after which it counts as cut
	oldUser    = "user"           // of templates from before they could say
	maxSecret  = 8 << 10          // bytes of an access token
)

// sandbox is the inside of one that runs.
type sandbox struct {
	*spool.Spool
	*remote.Files

	p       *Provider
	id      string // ours
	backend string
	token   string // envd's
	host    string // the domain of its hosts
	user    string // whom calls must name that mean the sandbox's own; empty = nobody
	form    bool   // uploads are forms
	http    *http.Client
	base    string // URL of envd
	process processconnect.ProcessClient
	system  filesystemconnect.FilesystemClient
}

var _ providers.Sandbox = (*sandbox)(nil)

// inside returns the inside of a sandbox that runs.
func (p *Provider) inside(id string, d described) (*sandbox, error) {
	s := &sandbox{p: p, id: id, backend: d.ID, token: d.Token, host: p.cfg.Domain}
	workDir, home := d.Metadata.Dirs()
	// A domain that is not below the operator's could be any machine's.
	if d.Domain != nil && validHost(*d.Domain) && strings.HasSuffix("."+*d.Domain, "."+p.cfg.Domain) {
		s.host = *d.Domain
	}
	if len(s.token) > maxSecret || !remote.Printable(s.token) {
		return nil, errNotE2B
	}
	s.form, s.user = before(d.Envd, 0, 5, 7), ""
	if before(d.Envd, 0, 4, 0) {
		s.user = oldUser
	}
	s.Spool = spool.New(s, spool.Options{WorkDir: workDir, Home: home})
	s.Files = remote.NewFiles(s, id, workDir, home, p.log)
	s.http = &http.Client{Transport: &door{s: s}}
	s.base = s.address(envdPort).String()
	options := []connect.ClientOption{
		connect.WithReadMaxBytes(maxMessage),
		connect.WithAcceptCompression("gzip", nil, nil),
	}
	s.process = processconnect.NewProcessClient(s.http, s.base, options...)
	s.system = filesystemconnect.NewFilesystemClient(s.http, s.base, options...)
	return s, nil
}

// address is where a port of the sandbox is reached.
func (s *sandbox) address(port uint16) *url.URL {
	if s.p.data != nil {
		return s.p.data
	}
	return &url.URL{Scheme: "https", Host: strconv.Itoa(int(port)) + "-" + s.backend + "." + s.host}
}

// door is the way to envd: it adds what lets a request in, and turns an answer that is not envd's into a
// *remote.Refusal.
type door struct{ s *sandbox }

func (d *door) RoundTrip(req *http.Request) (*http.Response, error) {
	req = req.Clone(req.Context())
	req.Header.Set("X-Access-Token", d.s.token)
	if d.s.p.data != nil {
		req.Header.Set("E2b-Sandbox-Id", d.s.backend)
		req.Header.Set("E2b-Sandbox-Port", strconv.Itoa(envdPort))
	}
	res, err := d.s.p.transport.RoundTrip(req)
	if err != nil || res.StatusCode < http.StatusMultipleChoices {
		return res, err
	}
	text, _ := io.ReadAll(io.LimitReader(res.Body, maxAnswer)) // what there is of it
	_ = res.Body.Close()
	var rpc struct {
		Code string `json:"code"` // where E2B has a number
	}
	if json.Unmarshal(text, &rpc) == nil && rpc.Code != "" {
		res.Body = io.NopCloser(bytes.NewReader(text))
		return res, nil
	}
	return nil, remote.RefusalOf(res, text)
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
	if r, ok := errors.AsType[*remote.Refusal](err); ok {
		if e := s.refused(r); e != nil {
			return e
		}
	}
	return s.probe(ctx, err)
}

// refused is what a refusal means by itself; nil = the sandbox is to be asked after.
func (s *sandbox) refused(r *remote.Refusal) error {
	e := &providers.Error{Err: r, RetryAfter: r.RetryAfter}
	switch r.Status {
	case http.StatusUnauthorized:
		if r.Says("user") {
			e.Class, e.Message = providers.NoUser, "the sandbox has no such user"
			return e
		}
		e.Class, e.Message = providers.Internal, "E2B does not take the sandbox's own token"
	case http.StatusForbidden:
		e.Class, e.Message = providers.FileDenied, "the sandbox does not permit that"
	case http.StatusConflict:
		e.Class, e.Message = providers.Busy, "the sandbox's state is changing at E2B"
	case http.StatusTooManyRequests:
		e.Class, e.Message = providers.RateLimited, "E2B wants fewer calls to the sandbox"
	case http.StatusInsufficientStorage:
		e.Class, e.Message = providers.NoSpace, "the sandbox's disk is full"
	case http.StatusNotFound:
		e.Class, e.Message = providers.FileNotFound, providers.ErrFileNotFound.Message
	case http.StatusRequestEntityTooLarge:
		e.Class, e.Message = providers.TooLarge, providers.ErrTooLarge.Message
	case http.StatusBadRequest, http.StatusNotAcceptable, http.StatusRequestedRangeNotSatisfiable:
		e.Class, e.Message = providers.Invalid, "the sandbox does not accept the call"
	default:
		return nil
	}
	return e
}

// probe asks the API after a sandbox that did not answer: it may be gone, or paused, or about to be.
func (s *sandbox) probe(ctx context.Context, err error) error {
	for range 10 {
		d, getErr := s.p.apiGet(ctx, s.backend)
		switch {
		case ctx.Err() != nil:
			return remote.GivenUp(ctx)
		case errors.Is(getErr, providers.ErrNotFound):
			s.p.refs.Forget(s.id, s.backend)
			return &providers.Error{Class: providers.Lost, Message: providers.ErrLost.Message, Err: remote.Quiet(err)}
		case getErr != nil:
			return remote.Unavailable("neither the sandbox nor the API of E2B answers", remote.Quiet(err))
		case d.state() == providers.StatePaused:
			return providers.ErrPaused
		case s.healthy(ctx):
			return remote.Unavailable("the connection to the sandbox broke", remote.Quiet(err))
		}
		select {
		case <-ctx.Done():
			return remote.GivenUp(ctx)
		case <-time.After(300 * time.Millisecond):
		}
	}
	return remote.Unavailable("the sandbox does not answer", remote.Quiet(err))
}

func (s *sandbox) healthy(ctx context.Context) bool {
	ctx, stop := context.WithTimeout(ctx, 5*time.Second)
	defer stop()
	res, err := s.plain(ctx, http.MethodGet, "/health", nil, nil)
	if err != nil {
		return false
	}
	_ = res.Body.Close()
	return res.StatusCode == http.StatusNoContent || res.StatusCode == http.StatusOK
}

// plain makes a call of envd that is not Connect's.
func (s *sandbox) plain(
	ctx context.Context,
	method, to string,
	body io.Reader,
	with func(*http.Request),
) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, s.base+to, body)
	if err != nil {
		return nil, err
	}
	if with != nil {
		with(req)
	}
	res, err := s.http.Do(req)
	if err == nil && (res.StatusCode < 200 || res.StatusCode > 299) {
		_ = res.Body.Close()
		err = errNotE2B
	}
	return res, err
}

// before says whether a version of envd is older than another; what is no version is not.
func before(version string, than ...int) bool {
	parts := strings.SplitN(version, ".", len(than))
	if len(parts) != len(than) {
		return false
	}
	for i, part := range parts {
		n, err := strconv.Atoi(part)
		if err != nil || n > than[i] {
			return false
		}
		if n < than[i] {
			return true
		}
	}
	return false
}

var userNames = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_.-]{0,31}$`)

// asUser makes a request one of a user.
func asUser(h http.Header, user string) error {
	if user == "" {
		return nil
	}
	if !userNames.MatchString(user) {
		return providers.NoUser.Errorf("user %.80q is not available", user)
	}
	h.Set("Authorization", "Basic "+base64.StdEncoding.EncodeToString([]byte(user+":")))
	return nil
}

// Script implements spool.Shell.
func (s *sandbox) Script(ctx context.Context, user, text string, limit int64) ([]byte, error) {
	var out bytes.Buffer
	_, err := s.shell(ctx, user, text, func(data []byte) error {
		if int64(out.Len()+len(data)) > limit {
			return providers.TooLarge.Errorf("the sandbox's shell printed more than %d bytes", limit)
		}
		out.Write(data)
		return nil
	})
	return out.Bytes(), err
}

// shell runs a script and gives what it prints to took, until that fails. A ctx that ends lets go of the script.
func (s *sandbox) shell(ctx context.Context, user, text string, took func([]byte) error) (code int32, err error) {
	ctx, end := s.p.calls.Begin(ctx, s.backend)
	defer end()
	ctx, cut := context.WithCancelCause(ctx)
	defer cut(nil)
	req := connect.NewRequest(&process.StartRequest{
		Process: &process.ProcessConfig{Cmd: "/bin/sh", Args: []string{"-c", text}, Cwd: new("/")}, Stdin: new(false),
	})
	req.Header().Set("Keepalive-Ping-Interval", strconv.Itoa(int(keepAlive.Seconds())))
	if err := asUser(req.Header(), cmp.Or(user, s.user)); err != nil {
		return 0, err
	}
	quietly := time.AfterFunc(silence, func() { cut(errSilent) })
	defer quietly.Stop()
	stream, err := s.process.Start(ctx, req)
	if err != nil {
		return 0, s.callError(ctx, err)
	}
	defer stream.Close()
	ended := false
	for stream.Receive() {
		quietly.Reset(silence)
		event := stream.Msg().GetEvent()
		if data := event.GetData().GetStdout(); len(data) > 0 {
			if err := took(data); err != nil {
				return 0, err
			}
		}
		if last := event.GetEnd(); last != nil {
			ended, code = true, last.GetExitCode()
		}
	}
	if err := stream.Err(); err != nil {
		return 0, s.callError(ctx, err)
	}
	if !ended {
		return 0, s.broken(ctx, io.ErrUnexpectedEOF)
	}
	return code, nil
}

var errSilent = errors.New("the sandbox gave no sign of life")

// callError translates the error of a Connect call.
func (s *sandbox) callError(ctx context.Context, err error) error {
	var r *remote.Refusal
	var refused *connect.Error
	if errors.As(err, &r) || ctx.Err() != nil || !errors.As(err, &refused) ||
		!connect.IsWireError(err) && ownFault(refused) {
		return s.broken(ctx, err)
	}
	e := &providers.Error{Err: errors.New(remote.Redact(refused.Message()))}
	switch refused.Code() {
	case connect.CodeNotFound:
		e.Class, e.Message = providers.FileNotFound, providers.ErrFileNotFound.Message
	case connect.CodeInvalidArgument, connect.CodeFailedPrecondition, connect.CodeOutOfRange:
		e.Class, e.Message = providers.Invalid, "the sandbox does not accept the call"
	case connect.CodeAlreadyExists:
		e.Class, e.Message = providers.FileExists, "the path exists already"
	case connect.CodePermissionDenied:
		e.Class, e.Message = providers.FileDenied, "the sandbox does not permit that"
	case connect.CodeUnauthenticated:
		e.Class, e.Message = providers.NoUser, "the sandbox has no such user"
	case connect.CodeUnimplemented:
		e.Class, e.Message = providers.NotSupported, "the sandbox's envd does not support that"
	case connect.CodeResourceExhausted:
		e.Class, e.Message = providers.TooLarge, "the sandbox has more of it than an answer can hold"
	case connect.CodeInternal:
		e.Class, e.Message = providers.Internal, "the sandbox's envd failed"
	default:
		return s.broken(ctx, err)
	}
	return e
}

// ownFault says whether an error that nobody sent is about the connection: an answer that was cut off looks like a
// fault of the protocol. That an answer is too large is no such error.
func ownFault(err *connect.Error) bool { return err.Code() != connect.CodeResourceExhausted }

// Put implements spool.Shell.
func (s *sandbox) Put(ctx context.Context, path string, data []byte) error {
	return s.Upload(ctx, path, bytes.NewReader(data), int64(len(data)))
}
