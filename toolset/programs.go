package toolset

import (
	"cmp"
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
)

func networkTools() []Tool {
	return []Tool{
		define("git_clone", "Clone a git repository over HTTP, under the sandbox's egress policy", Adds, gitClone),
		define("git_status", "Show the branch and the changes of a git repository", Reads, gitStatus),
		define("git_commit", "Commit all changes, or some files, of a git repository", Adds, gitCommit),
		define("git_push", "Push a branch over HTTP, under the sandbox's egress policy", Changes, gitPush),
		define(
			"http_request",
			"Make an HTTP request from inside the sandbox, under its egress policy",
			Changes,
			httpRequest,
		),
	}
}

// outward runs a program that needs the network. Where it fails, the answer says what the sandbox's policy is.
func outward(ctx context.Context, b Box, c Command) (*Answer, error) {
	r, err := b.Run(ctx, c, 0)
	if err != nil {
		return nil, err
	}
	return hinted(ctx, b, r), nil
}

func hinted(ctx context.Context, b Box, r *Ran) *Answer {
	out := r.Answer()
	if !r.Running && (r.ExitCode == nil || *r.ExitCode != 0) {
		out.Text += b.Hint(ctx, r)
	}
	return out
}

type gitCloneArgs struct {
	URL    string `json:"url" jsonschema:"https:// or http:// URL of the repository"`
	Path   string `json:"path,omitempty" jsonschema:"Directory to clone into; default the repository's name"`
	Branch string `json:"branch,omitempty" jsonschema:"Branch or tag; default the repository's default branch"`
	Depth  int    `json:"depth,omitempty" jsonschema:"Only so many commits of the history; default all"`
}

func gitClone(ctx context.Context, b Box, a *gitCloneArgs) (*Answer, error) {
	if err := webURL("url", a.URL); err != nil {
		return nil, err
	}
	argv := []string{"git", "clone", "--no-progress"}
	if a.Branch != "" {
		argv = append(argv, "--branch="+a.Branch)
	}
	if a.Depth < 0 {
		return nil, Invalid("depth", "must be at least 1, or be left out")
	}
	if a.Depth > 0 {
		argv = append(argv, fmt.Sprintf("--depth=%d", a.Depth))
	}
	argv = append(argv, "--", a.URL)
	if a.Path != "" {
		argv = append(argv, a.Path)
	}
	return outward(ctx, b, git("", argv...))
}

// git is a command of git that asks no questions, which nobody would answer.
func git(cwd string, argv ...string) Command {
	return Command{Argv: argv, Cwd: cwd, Env: map[string]string{"GIT_TERMINAL_PROMPT": "0"}}
}

func webURL(field, text string) error {
	u, err := url.Parse(text)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return Invalid(field, "must be an http:// or https:// URL")
	}
	return nil
}

type gitStatusArgs struct {
	Path string `json:"path,omitempty" jsonschema:"The repository; default the work directory"`
}

func gitStatus(ctx context.Context, b Box, a *gitStatusArgs) (*Answer, error) {
	return Told(b.Run(ctx, git(a.Path, "git", "status", "--short", "--branch"), 0))
}

type gitCommitArgs struct {
	Message string   `json:"message" jsonschema:"Message of the commit"`
	Path    string   `json:"path,omitempty" jsonschema:"The repository; default the work directory"`
	Files   []string `json:"files,omitempty" jsonschema:"What to commit; default all changes, also new files"`
	Author  string   `json:"author,omitempty" jsonschema:"NAME <ADDRESS>; default the repository's user, else agent"`
}

// commitProgram commits the files that are its arguments, by somebody where the repository has no user.
const commitProgram = `message=$1 author=$2; shift 2
git config user.email >/dev/null || set_user='-c user.name=agent -c user.email=agent@localhost'
git add --all -- "$@" && git $set_user commit --message="$message" ${author:+"--author=$author"}`

func gitCommit(ctx context.Context, b Box, a *gitCommitArgs) (*Answer, error) {
	if strings.TrimSpace(a.Message) == "" {
		return nil, Invalid("message", "is empty")
	}
	files := a.Files
	if len(files) == 0 {
		files = []string{"."}
	}
	argv := append([]string{"sh", "-c", commitProgram, "sh", a.Message, a.Author}, files...)
	return Told(b.Run(ctx, git(a.Path, argv...), 0))
}

type gitPushArgs struct {
	Path   string `json:"path,omitempty" jsonschema:"The repository; default the work directory"`
	Remote string `json:"remote,omitempty" jsonschema:"Default origin"`
	Branch string `json:"branch,omitempty" jsonschema:"Default the current branch"`
}

func gitPush(ctx context.Context, b Box, a *gitPushArgs) (*Answer, error) {
	remote, branch := cmp.Or(a.Remote, "origin"), cmp.Or(a.Branch, "HEAD")
	return outward(ctx, b, git(a.Path, "git", "push", "--no-progress", "--", remote, branch))
}

//go:embed request.py
var requestProgram string

type httpRequestArgs struct {
	URL     string            `json:"url" jsonschema:"http:// or https:// URL"`
	Method  string            `json:"method,omitempty" jsonschema:"Default GET"`
	Headers map[string]string `json:"headers,omitempty" jsonschema:"Headers of the request"`
	Body    string            `json:"body,omitempty" jsonschema:"Body of the request, as text"`
	Timeout float64           `json:"timeout,omitempty" jsonschema:"Seconds to wait for the server; default 20"`
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
func httpRequest(ctx context.Context, b Box, a *httpRequestArgs) (*Answer, error) {
	if err := webURL("url", a.URL); err != nil {
		return nil, err
	}
	if a.Timeout < 0 || a.Timeout > CommandTimeout.Seconds() {
		return nil, Invalid("timeout", "must be between 1 and %g", CommandTimeout.Seconds())
	}
	a.Timeout = cmp.Or(a.Timeout, Patience.Seconds())
	asked, err := json.Marshal(map[string]any{
		"url": a.URL, "method": strings.ToUpper(a.Method), "headers": a.Headers, "body": a.Body, "timeout": a.Timeout,
		"most": MaxHead,
	})
	if err != nil {
		return nil, err
	}
	c := Command{
		Argv:    []string{"python3", "-I", "-c", requestProgram},
		Stdin:   asked,
		Timeout: a.Timeout + 10,
		Apart:   true,
	}
	r, err := b.Run(ctx, c, 0)
	if err != nil {
		return nil, err
	}
	var got answered
	if r.ExitCode == nil || *r.ExitCode != 0 || json.Unmarshal([]byte(r.Stdout), &got) != nil {
		return hinted(ctx, b, r), nil
	}
	text := got.Body
	if got.Encoding != "utf-8" {
		text = fmt.Sprintf("[%d bytes that are no text]", got.Bytes)
	}
	if got.Cut {
		text += fmt.Sprintf("\n[the body has %d bytes; download it with shell_exec to see all]", got.Bytes)
	}
	return &Answer{Text: fmt.Sprintf("%d %s\n%s", got.Status, got.Reason, text), Fields: got}, nil
}
