package daytona

import (
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/gofiber/fiber/v2"

	"sandyard/jobs/kind"
	"sandyard/web/problem"
)

func (s *Server) addGit(r routes) {
	const git = toolbox + "/:id/git"
	r.post(git+"/clone", s.clone)
	r.get(git+"/status", s.status)
	r.post(git+"/add", s.gitAdd)
	r.post(git+"/commit", s.commit)
	r.get(git+"/branches", s.branches)
	r.post(git+"/branches", s.onBranch(http.StatusCreated, "branch"))
	r.remove(git+"/branches", s.onBranch(http.StatusNoContent, "branch", "-D"))
	r.post(git+"/checkout", s.checkout)
	r.post(git+"/push", s.transfer("push"))
	r.post(git+"/pull", s.transfer("pull"))
}

// login is what a repository asks for. It goes to git by the environment, so that it is written into no repository.
type login struct {
	Username string `json:"username"`
	Password string `json:"password"`

	server string // scheme and host that may have it; empty = whichever the remote's URL names
}

// helper makes git take the login from its environment.
const helper = `!f() { echo "username=$SANDYARD_GIT_USER"; echo "password=$SANDYARD_GIT_PASSWORD"; }; f`

// at keeps the login from other servers to which that of a URL may send git.
func (l login) at(text string) login {
	if u, err := url.Parse(text); err == nil && u.Host != "" {
		l.server = u.Scheme + "://" + u.Host
	}
	return l
}

// option is how git is told of the login.
func (l login) option() string {
	if l.server == "" {
		return "credential.helper=" + helper
	}
	return "credential." + l.server + ".helper=" + helper
}

func (l login) env() map[string]string {
	env := map[string]string{"GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C"}
	if l.Username+l.Password != "" {
		env["SANDYARD_GIT_USER"], env["SANDYARD_GIT_PASSWORD"] = l.Username, l.Password
	}
	return env
}

// git runs git in a sandbox and returns what it has printed.
func (s *Server) git(c *fiber.Ctx, l login, args ...string) (string, error) {
	box, err := s.inside(c)
	if err != nil {
		return "", err
	}
	argv := []string{"git"}
	if l.Username+l.Password != "" {
		argv = append(argv, "-c", l.option())
	}
	e := &kind.Exec{Argv: append(argv, args...), Env: l.env(), TimeoutSeconds: maxCommand.Seconds()}
	out, err := s.run(c.UserContext(), box.ID, e)
	if err == nil && out.code != 0 {
		err = gitProblem(out)
	}
	return out.stdout, err
}

func gitProblem(out output) error {
	text := strings.TrimSpace(out.stderr + out.stdout)
	status := http.StatusBadRequest
	switch {
	case out.code == 127:
		text = "the sandbox's image has no git; use a template that has it"
	case strings.Contains(text, "not a git repository"),
		strings.Contains(text, "does not exist"),
		strings.Contains(text, "not found"):
		status = http.StatusNotFound
	case strings.Contains(text, "already exists"),
		strings.Contains(text, "[rejected]"),
		strings.Contains(text, "CONFLICT"):
		status = http.StatusConflict
	case strings.Contains(text, "Authentication failed"), strings.Contains(text, "could not read Username"):
		status = http.StatusUnauthorized
	}
	return problem.New(status, "git_failed", text)
}

// option checks what must not be read as an option by git.
func option(field, text string) error {
	if strings.HasPrefix(text, "-") {
		return problem.Invalid("body."+field, "must not begin with a hyphen")
	}
	return nil
}

func (s *Server) clone(c *fiber.Ctx) error {
	in, err := read[struct {
		Path string `json:"path" required:"true"`
		login
		URL     string `json:"url" required:"true"`
		Branch  string `json:"branch"`
		Commit  string `json:"commit_id"`
		Depth   int    `json:"depth"`
		SkipTLS bool   `json:"insecure_skip_tls"`
	}](c)
	if err != nil {
		return err
	}
	if in.SkipTLS {
		return unsupported("insecure_skip_tls")
	}
	args := []string{"clone"}
	if in.Branch != "" {
		args = append(args, "--branch="+in.Branch)
	}
	if in.Depth > 0 {
		args = append(args, "--depth="+strconv.Itoa(in.Depth))
	}
	if _, err := s.git(c, in.at(in.URL), append(args, "--", in.URL, in.Path)...); err != nil {
		return err
	}
	if in.Commit != "" {
		if err := option("commit_id", in.Commit); err != nil {
			return err
		}
		if _, err := s.git(c, login{}, "-C", in.Path, "checkout", in.Commit); err != nil {
			return err
		}
	}
	return c.SendStatus(http.StatusOK)
}

func (s *Server) status(c *fiber.Ctx) error {
	path, err := query(c, "path")
	if err != nil {
		return err
	}
	text, err := s.git(c, login{}, "-C", path, "status", "--porcelain=v2", "--branch", "--untracked-files=all", "-z")
	if err != nil {
		return err
	}
	return c.JSON(statusOf(text))
}

// gitStatus is Daytona's document of a work tree.
type gitStatus struct {
	CurrentBranch   string       `json:"currentBranch"`
	Upstream        string       `json:"upstream,omitempty"`
	Ahead           int          `json:"ahead"`
	Behind          int          `json:"behind"`
	BranchPublished bool         `json:"branchPublished"`
	Detached        bool         `json:"detached"`
	FileStatus      []fileStatus `json:"fileStatus"`
}

type fileStatus struct {
	Name     string `json:"name"`
	Extra    string `json:"extra"` // the earlier name of a file that was renamed
	Staging  string `json:"staging"`
	Worktree string `json:"worktree"`
}

// statusOf reads git status --porcelain=v2 --branch -z.
func statusOf(text string) gitStatus {
	st := gitStatus{FileStatus: []fileStatus{}}
	lines := strings.Split(text, "\x00")
	for i := 0; i < len(lines); i++ {
		kind, rest, _ := strings.Cut(lines[i], " ")
		switch kind {
		case "#":
			st.header(rest)
		case "?":
			st.FileStatus = append(st.FileStatus, fileStatus{Name: rest, Staging: "Untracked", Worktree: "Untracked"})
		case "1", "2", "u":
			before := map[string]int{"1": 8, "2": 9, "u": 10}[kind] // fields, of which the name is the last
			fields := strings.SplitN(rest, " ", before)
			if len(fields) < before || len(fields[0]) != 2 {
				continue
			}
			f := fileStatus{Name: fields[before-1], Staging: letter(fields[0][0]), Worktree: letter(fields[0][1])}
			if kind == "2" && i+1 < len(lines) {
				i++
				f.Extra = lines[i]
			}
			st.FileStatus = append(st.FileStatus, f)
		}
	}
	return st
}

func (st *gitStatus) header(line string) {
	name, value, _ := strings.Cut(line, " ")
	switch name {
	case "branch.head":
		st.CurrentBranch, st.Detached = value, value == "(detached)"
	case "branch.upstream":
		st.Upstream, st.BranchPublished = value, true
	case "branch.ab":
		ahead, behind, _ := strings.Cut(value, " ")
		st.Ahead, _ = strconv.Atoi(strings.TrimPrefix(ahead, "+"))
		st.Behind, _ = strconv.Atoi(strings.TrimPrefix(behind, "-"))
	}
}

func letter(b byte) string {
	switch b {
	case 'M', 'T':
		return "Modified"
	case 'A':
		return "Added"
	case 'D':
		return "Deleted"
	case 'R':
		return "Renamed"
	case 'C':
		return "Copied"
	case 'U':
		return "Updated but unmerged"
	}
	return "Unmodified"
}

func (s *Server) gitAdd(c *fiber.Ctx) error {
	in, err := read[struct {
		Path  string   `json:"path" required:"true"`
		Files []string `json:"files" required:"true"`
	}](c)
	if err != nil {
		return err
	}
	if _, err := s.git(c, login{}, append([]string{"-C", in.Path, "add", "--"}, in.Files...)...); err != nil {
		return err
	}
	return c.SendStatus(http.StatusOK)
}

func (s *Server) commit(c *fiber.Ctx) error {
	in, err := read[struct {
		Path       string `json:"path" required:"true"`
		Message    string `json:"message" required:"true"`
		Author     string `json:"author" required:"true"`
		Email      string `json:"email" required:"true"`
		AllowEmpty bool   `json:"allow_empty"`
	}](c)
	if err != nil {
		return err
	}
	args := []string{
		"-C",
		in.Path,
		"-c",
		"user.name=" + in.Author,
		"-c",
		"user.email=" + in.Email,
		"commit",
		"--message=" + in.Message,
	}
	if in.AllowEmpty {
		args = append(args, "--allow-empty")
	}
	if _, err := s.git(c, login{}, args...); err != nil {
		return err
	}
	hash, err := s.git(c, login{}, "-C", in.Path, "rev-parse", "HEAD")
	if err != nil {
		return err
	}
	return c.JSON(map[string]string{"hash": strings.TrimSpace(hash)})
}

func (s *Server) branches(c *fiber.Ctx) error {
	path, err := query(c, "path")
	if err != nil {
		return err
	}
	text, err := s.git(c, login{}, "-C", path, "branch", "--format=%(HEAD)%(refname:short)")
	if err != nil {
		return err
	}
	names, current := []string{}, ""
	for line := range strings.SplitSeq(strings.TrimSuffix(text, "\n"), "\n") {
		if len(line) < 2 {
			continue
		}
		names = append(names, line[1:])
		if line[0] == '*' {
			current = line[1:]
		}
	}
	return c.JSON(map[string]any{"branches": names, "current": current})
}

// onBranch does to the branch that a body names what git's arguments say.
func (s *Server) onBranch(status int, args ...string) fiber.Handler {
	return func(c *fiber.Ctx) error {
		in, err := read[struct {
			Path string `json:"path" required:"true"`
			Name string `json:"name" required:"true"`
		}](c)
		if err != nil {
			return err
		}
		if _, err := s.git(c, login{}, append(append([]string{"-C", in.Path}, args...), "--", in.Name)...); err != nil {
			return err
		}
		return c.SendStatus(status)
	}
}

func (s *Server) checkout(c *fiber.Ctx) error {
	in, err := read[struct {
		Path   string `json:"path" required:"true"`
		Branch string `json:"branch" required:"true"`
	}](c)
	if err != nil {
		return err
	}
	if err := option("branch", in.Branch); err != nil {
		return err
	}
	if _, err := s.git(c, login{}, "-C", in.Path, "checkout", in.Branch); err != nil {
		return err
	}
	return c.SendStatus(http.StatusOK)
}

// transfer exchanges commits with a remote.
func (s *Server) transfer(verb string) fiber.Handler {
	return func(c *fiber.Ctx) error {
		in, err := read[struct {
			Path string `json:"path" required:"true"`
			login
			Branch      string `json:"branch"`
			Remote      string `json:"remote"`
			SetUpstream bool   `json:"set_upstream"`
		}](c)
		if err != nil {
			return err
		}
		args := []string{"-C", in.Path, verb}
		if in.SetUpstream && verb == "push" {
			args = append(args, "--set-upstream")
		}
		switch {
		case in.Remote != "":
			args = append(args, "--", in.Remote)
		case in.Branch != "":
			args = append(args, "--", "origin")
		}
		if in.Branch != "" {
			args = append(args, in.Branch)
		}
		if _, err := s.git(c, in.login, args...); err != nil {
			return err
		}
		return c.SendStatus(http.StatusOK)
	}
}
