package mcp

import (
	"context"
	"strings"

	"sandyard/jobs"
)

type gitStatus struct {
	Path string `json:"path,omitempty" jsonschema:"The repository; default the work directory"`
	in
}

func (s *Server) gitStatus(ctx context.Context, c *call, a *gitStatus) (*answer, error) {
	box, err := s.sandbox(ctx, c, a.Sandbox)
	if err != nil {
		return nil, err
	}
	r, err := s.command(ctx, c, box.ID, &jobs.Exec{Argv: []string{"git", "status", "--short", "--branch"}, Cwd: a.Path, Env: quietGit(), Merge: true}, patience)
	if err != nil {
		return nil, err
	}
	return r.answer(), nil
}

type gitCommit struct {
	Message string   `json:"message" jsonschema:"Message of the commit"`
	Path    string   `json:"path,omitempty" jsonschema:"The repository; default the work directory"`
	Files   []string `json:"files,omitempty" jsonschema:"What to commit; default all changes, also new files"`
	Author  string   `json:"author,omitempty" jsonschema:"NAME <ADDRESS>; default the repository's user, else agent"`
	in
}

// commitProgram commits the files that are its arguments, by somebody where the repository has no user.
const commitProgram = `message=$1 author=$2; shift 2
git config user.email >/dev/null || set_user='-c user.name=agent -c user.email=agent@localhost'
git add --all -- "$@" && git $set_user commit --message="$message" ${author:+"--author=$author"}`

func (s *Server) gitCommit(ctx context.Context, c *call, a *gitCommit) (*answer, error) {
	if strings.TrimSpace(a.Message) == "" {
		return nil, invalid("message", "is empty")
	}
	files := a.Files
	if len(files) == 0 {
		files = []string{"."}
	}
	box, err := s.sandbox(ctx, c, a.Sandbox)
	if err != nil {
		return nil, err
	}
	argv := append([]string{"sh", "-c", commitProgram, "sh", a.Message, a.Author}, files...)
	r, err := s.command(ctx, c, box.ID, &jobs.Exec{Argv: argv, Cwd: a.Path, Env: quietGit(), Merge: true}, patience)
	if err != nil {
		return nil, err
	}
	return r.answer(), nil
}

type gitPush struct {
	Path   string `json:"path,omitempty" jsonschema:"The repository; default the work directory"`
	Remote string `json:"remote,omitempty" jsonschema:"Default origin"`
	Branch string `json:"branch,omitempty" jsonschema:"Default the current branch"`
	in
}

func (s *Server) gitPush(ctx context.Context, c *call, a *gitPush) (*answer, error) {
	if a.Remote == "" {
		a.Remote = "origin"
	}
	if a.Branch == "" {
		a.Branch = "HEAD"
	}
	argv := []string{"git", "push", "--no-progress", "--", a.Remote, a.Branch}
	return s.outward(ctx, c, a.Sandbox, &jobs.Exec{Argv: argv, Cwd: a.Path, Env: quietGit(), Merge: true})
}

// quietGit keeps git from asking questions that nobody answers.
func quietGit() map[string]string { return map[string]string{"GIT_TERMINAL_PROMPT": "0"} }
