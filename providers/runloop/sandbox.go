package runloop

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"path"

	"github.com/google/uuid"

	"sandyard/providers"
	"sandyard/providers/remote"
	"sandyard/providers/remote/scripted"
)

// sandbox is the inside of one that runs.
type sandbox struct {
	*scripted.Box

	p       *Provider
	id      string // ours
	backend string
}

var _ providers.Sandbox = (*sandbox)(nil)

// inside returns the inside of a sandbox that runs.
func (p *Provider) inside(id string, d described) *sandbox {
	workDir, home := d.Metadata.Dirs()
	s := &sandbox{p: p, id: id, backend: d.ID}
	s.Box = scripted.New(s, scripted.Options{
		ID: id, WorkDir: workDir, Home: home, Inline: maxInline, Patience: scriptPatience, Foreign: errNotRunloop, Log: p.log,
	})
	return s
}

// execution is one of a command.
type execution struct {
	ID        string  `json:"execution_id"`
	Status    string  `json:"status"`
	Stdout    *string `json:"stdout"`
	Truncated bool    `json:"stdout_truncated"`
}

// Execute implements scripted.Backend. Runloop begins a command of an id once, and holds the answer for some seconds.
func (s *sandbox) Execute(ctx context.Context, line string, most int64) (string, error) {
	ctx, end := s.p.calls.Begin(ctx, s.backend)
	defer end()
	ctx, stop := context.WithTimeout(ctx, scriptAnswer)
	defer stop()
	e, err := s.execute(ctx, line, most)
	switch {
	case err != nil:
		return "", s.Broken(ctx, err)
	case e.Stdout == nil || int64(len(*e.Stdout)) > most:
		return "", errNotRunloop
	case e.Truncated:
		return "", providers.Internal.Errorf("Runloop did not give all of a script's output")
	}
	return *e.Stdout, nil
}

func (s *sandbox) execute(ctx context.Context, line string, most int64) (e execution, err error) {
	id, err := uuid.NewV7()
	if err != nil {
		return e, err
	}
	ask := remote.Request{
		Method: http.MethodPost, Path: at(s.backend) + "/execute", Once: true,
		Body: map[string]any{"command": line, "command_id": id.String(), "optimistic_timeout": heldSeconds},
		Want: []int{http.StatusOK}, Limit: 2*most + maxAnswer, Into: &e,
	}
	for {
		_, err = s.p.vendor.Call(ctx, ask)
		if r, ok := errors.AsType[*remote.Refusal](err); ok && r.Status == http.StatusRequestTimeout && e.ID != "" {
			continue // it runs
		}
		if err != nil || e.Status == "completed" {
			return e, err
		}
		if !remote.ValidID(e.ID) || e.Status != "running" && e.Status != "queued" {
			return e, errNotRunloop
		}
		ask.Path = at(s.backend) + "/executions/" + e.ID + "/wait_for_status"
		ask.Body = map[string]any{"statuses": []string{"completed"}, "timeout_seconds": heldSeconds}
	}
}

// post sends a body of a kind. The caller closes the answer's body, whose status is one of success.
func (s *sandbox) post(ctx context.Context, action, kind string, body []byte) (*http.Response, error) {
	to := s.p.vendor.Base.JoinPath(at(s.backend), action).String()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, to, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", kind)
	s.p.authorize(req.Header)
	res, err := s.p.transport.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	if res.StatusCode >= 200 && res.StatusCode <= 299 {
		return res, nil
	}
	defer res.Body.Close()
	if res.StatusCode < http.StatusBadRequest {
		return nil, errNotRunloop
	}
	r := remote.ReadRefusal(res)
	r.Secret = s.p.cfg.Secret
	return nil, r
}

// Download implements scripted.Backend. An answer that breaks off shows as an error of the connection, also where it
// tells no size.
func (s *sandbox) Download(ctx context.Context, file string) (io.ReadCloser, int64, error) {
	ctx, end := s.p.calls.Begin(ctx, s.backend)
	ask, err := json.Marshal(map[string]string{"path": file})
	if err != nil {
		end()
		return nil, 0, err
	}
	res, err := s.post(ctx, "download_file", "application/json", ask) //nolint:bodyclose // the answer closes it
	if err == nil {
		broken := func(err error) error { return s.Broken(ctx, err) }
		return scripted.Body{ReadCloser: res.Body, Broken: broken, End: end}, res.ContentLength, nil
	}
	defer end()
	if r, ok := errors.AsType[*remote.Refusal](err); ok && r.Status != http.StatusUnauthorized &&
		r.Status != http.StatusTooManyRequests {
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
	err := form.WriteField("path", file)
	if err == nil {
		var part io.Writer
		if part, err = form.CreateFormFile("file", path.Base(file)); err == nil {
			_, err = part.Write(data)
		}
	}
	if err = errors.Join(err, form.Close()); err != nil {
		return err
	}
	res, err := s.post(ctx, "upload_file", form.FormDataContentType(), body.Bytes())
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

// Broken implements scripted.Backend.
func (s *sandbox) Broken(ctx context.Context, err error) error {
	return s.p.life.Broken(ctx, s.backend, err, refused, func() { s.p.refs.Forget(s.id, s.backend) })
}

// name is the devbox's, for people who look at Runloop's pages: it is no key there.
func (p *Provider) name(id string) string { return fmt.Sprintf("sandyard-%s", id) }
