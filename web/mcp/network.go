package mcp

import (
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"net/url"
	"strings"

	"sandyard/egress"
	"sandyard/jobs"
	"sandyard/models"
	"sandyard/web/problem"
)

func invalid(field, message string) error { return problem.Invalid(field, message) }

// outward runs a program that needs the network, under the policy of its sandbox. Where it fails, the answer says what the
// policy is.
func (s *Server) outward(ctx context.Context, c *call, sandbox string, exec *jobs.Exec) (*answer, error) {
	r, box, err := s.outwardRan(ctx, c, sandbox, exec)
	if err != nil {
		return nil, err
	}
	out := r.answer()
	out.text += policyHint(r, box)
	return out, nil
}

func (s *Server) outwardRan(ctx context.Context, c *call, sandbox string, exec *jobs.Exec) (*ran, models.Sandbox, error) {
	box, err := s.sandbox(ctx, c, sandbox)
	if err != nil {
		return nil, box, err
	}
	if exec.TimeoutSeconds == 0 {
		exec.TimeoutSeconds = commandTimeout.Seconds()
	}
	exec.MaxOutputBytes = keptOutput
	r, err := s.command(ctx, c, box.ID, exec, patience)
	return r, box, err
}

// policyHint says what the sandbox may connect to, where a program has failed that needs the network.
func policyHint(r *ran, box models.Sandbox) string {
	if r.Running || r.ExitCode != nil && *r.ExitCode == 0 {
		return ""
	}
	policy, err := policyOf(box)
	const change = "; change it with PUT /v1/sandboxes/%s/egress"
	switch {
	case err != nil:
		return ""
	case policy.Off():
		return fmt.Sprintf("\n[sandbox %s has no network: its egress policy allows nothing"+change+"]\n", box.ID, box.ID)
	default:
		return fmt.Sprintf("\n[egress policy of sandbox %s: allow %v, deny %v"+change+"]\n", box.ID, policy.Allow, policy.Deny, box.ID)
	}
}

func policyOf(box models.Sandbox) (egress.Policy, error) {
	var p egress.Policy
	if len(box.Egress) == 0 {
		return p, nil
	}
	err := json.Unmarshal([]byte(box.Egress), &p)
	return p, err
}

type gitClone struct {
	URL    string `json:"url" jsonschema:"https:// or http:// URL of the repository"`
	Path   string `json:"path,omitempty" jsonschema:"Directory to clone into; default the repository's name"`
	Branch string `json:"branch,omitempty" jsonschema:"Branch or tag; default the repository's default branch"`
	Depth  int    `json:"depth,omitempty" jsonschema:"Only so many commits of the history; default all"`
	in
}

func (s *Server) gitClone(ctx context.Context, c *call, a *gitClone) (*answer, error) {
	if _, err := webURL("url", a.URL); err != nil {
		return nil, err
	}
	argv := []string{"git", "clone", "--no-progress"}
	if a.Branch != "" {
		argv = append(argv, "--branch="+a.Branch)
	}
	if a.Depth < 0 {
		return nil, invalid("depth", "must be at least 1, or be left out")
	}
	if a.Depth > 0 {
		argv = append(argv, fmt.Sprintf("--depth=%d", a.Depth))
	}
	argv = append(argv, "--", a.URL)
	if a.Path != "" {
		argv = append(argv, a.Path)
	}
	return s.outward(ctx, c, a.Sandbox, &jobs.Exec{Argv: argv, Env: quietGit(), Merge: true})
}

func webURL(field, text string) (*url.URL, error) {
	u, err := url.Parse(text)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil, invalid(field, "must be an http:// or https:// URL")
	}
	return u, nil
}

//go:embed request.py
var requestProgram string

type httpRequest struct {
	URL     string            `json:"url" jsonschema:"http:// or https:// URL"`
	Method  string            `json:"method,omitempty" jsonschema:"Default GET"`
	Headers map[string]string `json:"headers,omitempty" jsonschema:"Headers of the request"`
	Body    string            `json:"body,omitempty" jsonschema:"Body of the request, as text"`
	Timeout float64           `json:"timeout,omitempty" jsonschema:"Seconds to wait for the server; default 20"`
	in
}

// answered is what a server has answered.
type answered struct {
	Status   int               `json:"status"`
	Reason   string            `json:"reason,omitempty"`
	URL      string            `json:"url"` // after redirects
	Headers  map[string]string `json:"headers"`
	Body     string            `json:"body"`
	Encoding string            `json:"encoding"` // of body: utf-8 or base64
	Bytes    int64             `json:"bytes"`    // of the whole body
	Cut      bool              `json:"truncated,omitempty"`
}

// httpRequest asks from inside the sandbox, so that its policy holds and its own servers are reached.
func (s *Server) httpRequest(ctx context.Context, c *call, a *httpRequest) (*answer, error) {
	if _, err := webURL("url", a.URL); err != nil {
		return nil, err
	}
	if a.Timeout < 0 || a.Timeout > commandTimeout.Seconds() {
		return nil, invalid("timeout", "must be between 1 and 3600")
	}
	if a.Timeout == 0 {
		a.Timeout = patience.Seconds()
	}
	asked, err := json.Marshal(map[string]any{
		"url": a.URL, "method": strings.ToUpper(a.Method), "headers": a.Headers, "body": a.Body, "timeout": a.Timeout, "most": maxHead,
	})
	if err != nil {
		return nil, err
	}
	r, box, err := s.outwardRan(ctx, c, a.Sandbox, &jobs.Exec{
		Argv: []string{"python3", "-I", "-c", requestProgram}, Stdin: string(asked), TimeoutSeconds: a.Timeout + 10,
	})
	if err != nil {
		return nil, err
	}
	var got answered
	if r.ExitCode == nil || *r.ExitCode != 0 || json.Unmarshal([]byte(r.Stdout), &got) != nil {
		out := r.answer()
		out.text += policyHint(r, box)
		return out, nil
	}
	text := got.Body
	if got.Encoding != "utf-8" {
		text = fmt.Sprintf("[%d bytes that are no text]", got.Bytes)
	}
	if got.Cut {
		text += fmt.Sprintf("\n[the body has %d bytes; download it with shell_exec to see all]", got.Bytes)
	}
	return &answer{text: fmt.Sprintf("%d %s\n%s", got.Status, got.Reason, text), fields: got}, nil
}
