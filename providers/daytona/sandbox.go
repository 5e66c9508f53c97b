package daytona

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"mime/multipart"
	"net/http"
	"net/url"
	"path"

	"sandyard/providers"
	"sandyard/providers/remote"
	"sandyard/providers/remote/scripted"
)

// maxInline is how much a script may print into an answer.
const maxInline = 4 << 20

// sandbox is the inside of one that runs.
type sandbox struct {
	*scripted.Box

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
	s.Box = scripted.New(s, scripted.Options{
		ID: id, WorkDir: workDir, Home: home, Inline: maxInline, Patience: scriptPatience, Foreign: errNotDaytona, Log: p.log,
	})
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

// Broken implements scripted.Backend.
func (s *sandbox) Broken(ctx context.Context, err error) error {
	return s.p.life.Broken(ctx, s.backend, err, refused, func() { s.p.refs.Forget(s.id, s.backend) })
}

// Execute implements scripted.Backend.
func (s *sandbox) Execute(ctx context.Context, line string, most int64) (string, error) {
	ctx, end := s.p.calls.Begin(ctx, s.backend)
	defer end()
	ctx, stop := context.WithTimeout(ctx, scriptAnswer)
	defer stop()
	text, err := s.execute(ctx, line, most)
	if err != nil {
		return "", s.Broken(ctx, err)
	}
	return text, nil
}

func (s *sandbox) execute(ctx context.Context, line string, most int64) (string, error) {
	body, err := json.Marshal(map[string]any{"command": line, "timeout": scriptSeconds})
	if err != nil {
		return "", err
	}
	res, err := s.post(ctx, "process/execute", "application/json", body)
	if err != nil {
		return "", err
	}
	defer res.Body.Close()
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

// Download implements scripted.Backend.
func (s *sandbox) Download(ctx context.Context, file string) (io.ReadCloser, int64, error) {
	ctx, end := s.p.calls.Begin(ctx, s.backend)
	at := s.toolbox.JoinPath("files/download")
	at.RawQuery = url.Values{"path": {file}}.Encode()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, at.String(), nil)
	if err != nil {
		end()
		return nil, 0, err
	}
	res, err := s.call(req)
	if err == nil && res.ContentLength < 0 {
		err = res.Body.Close() // whether all of it came could not be told
		end()
		return nil, 0, err
	}
	if err == nil {
		broken := func(err error) error { return s.Broken(ctx, err) }
		return scripted.Body{ReadCloser: res.Body, Broken: broken, End: end}, res.ContentLength, nil
	}
	defer end()
	var r *remote.Refusal
	if errors.As(err, &r) && r.Status != http.StatusUnauthorized && r.Status != http.StatusTooManyRequests {
		return nil, 0, nil
	}
	return nil, 0, s.Broken(ctx, err)
}

// Send implements scripted.Backend.
func (s *sandbox) Send(ctx context.Context, file string, data []byte) error {
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
		return s.Broken(ctx, err)
	}
	_, err = io.Copy(io.Discard, io.LimitReader(res.Body, maxAnswer))
	_ = res.Body.Close()
	if err != nil {
		return s.Broken(ctx, err)
	}
	return nil
}
