package daytona

import (
	"context"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/gofiber/fiber/v2"

	"sandyard/jobs/kind"
	"sandyard/models"
	"sandyard/web/middleware"
	"sandyard/web/problem"
)

// gitRoutes has the routes of git.
type gitRoutes struct{ *core }

func (s *gitRoutes) addGit(r routes) {
	const git = toolbox + "/:id/git"
	r.post(git+"/clone", middleware.Then(http.StatusOK, body(s.clone)))
	r.get(git+"/status", s.status)
	r.post(git+"/add", middleware.Then(http.StatusOK, body(s.gitAdd)))
	r.post(git+"/commit", body(s.commit))
	r.get(git+"/branches", s.branches)
	r.post(git+"/branches", middleware.Then(http.StatusCreated, s.onBranch("branch")))
	r.remove(git+"/branches", middleware.Then(http.StatusNoContent, s.onBranch("branch", "-D")))
	r.post(git+"/checkout", middleware.Then(http.StatusOK, body(s.checkout)))
	r.post(git+"/push", middleware.Then(http.StatusOK, s.transfer("push")))
	r.post(git+"/pull", middleware.Then(http.StatusOK, s.transfer("pull")))
}

// login is what a repository asks for. It must stand in no row, so it is in no job: it goes into the sandbox as a file,
// which the job's script takes into its environment and removes before git begins.
type login struct {
	Username string `json:"username"`
	Password string `json:"password"`

	server string // scheme and host that may have it; empty = whichever the remote's URL names
}

// helper makes git take the login from its environment.
const helper = `!f() { echo "username=$SANDYARD_GIT_USER"; echo "password=$SANDYARD_GIT_PASSWORD"; }; f`

// logins is the directory of such files. It is not in the home directory: that of a command is what the sandbox's
// variables say.
const logins = "/tmp/.daytona-logins/"

// withLogin is the script that runs git. What an API process that ended too early has left goes, too: a request waits
// for an hour at most.
const withLogin = `f="` + logins + `$1"; shift
{ IFS= read -r SANDYARD_GIT_USER && IFS= read -r SANDYARD_GIT_PASSWORD; } <"$f" || { rm -f "$f"; exit 1; }
rm -f "$f"; find "` + logins + `" -type f -mmin +90 -delete 2>/dev/null
export SANDYARD_GIT_USER SANDYARD_GIT_PASSWORD
exec git "$@"`

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

func (l login) check() error {
	for field, text := range map[string]string{"username": l.Username, "password": l.Password} {
		if strings.ContainsAny(text, "\r\n\x00") {
			return problem.Invalid("body."+field, "must be one line; git takes no other login")
		}
	}
	return nil
}

// lend puts the login into the sandbox and returns the name of its file.
func (s *gitRoutes) lend(ctx context.Context, sandboxID string, l login) (string, error) {
	name := models.NewID("git_")
	text := l.Username + "\n" + l.Password + "\n"
	return name, s.save(ctx, sandboxID, logins+name, "0600", &counting{from: strings.NewReader(text)})
}

// git runs git in a sandbox and returns what it has printed.
func (s *gitRoutes) git(c *fiber.Ctx, l login, args ...string) (string, error) {
	box, err := s.inside(c)
	if err != nil {
		return "", err
	}
	ctx := c.UserContext()
	e := &kind.Exec{
		Argv:           append([]string{"git"}, args...),
		Env:            map[string]string{"GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C"},
		TimeoutSeconds: maxCommand.Seconds(),
	}
	file := ""
	if l.Username+l.Password != "" {
		if err := l.check(); err != nil {
			return "", err
		}
		if file, err = s.lend(ctx, box.ID, l); err != nil {
			return "", err
		}
		e.Argv = append([]string{"sh", "-c", withLogin, "sh", file, "-c", l.option()}, args...)
	}
	out, err := s.run(ctx, box.ID, e)
	if err != nil && file != "" { // perhaps git never began
		_, _ = s.calls.Do(ctx, box.ID, &kind.Remove{Path: logins + file}) // the first error says more
	}
	if err == nil && out.code != 0 {
		err = gitProblem(out)
	}
	return out.stdout, err
}

// gitFaults are what git says that it cannot do, with the status and the code of the toolbox. The first one counts.
func gitFaults() []struct {
	text   string
	status int
	code   string
} {
	return []struct {
		text   string
		status int
		code   string
	}{
		{"Authentication failed", http.StatusUnauthorized, "GIT_AUTH_FAILED"},
		{"could not read Username", http.StatusUnauthorized, "GIT_AUTH_FAILED"},
		{"could not read Password", http.StatusUnauthorized, "GIT_AUTH_FAILED"},
		{"would be overwritten", http.StatusConflict, "GIT_DIRTY_WORKTREE"},
		{"CONFLICT", http.StatusConflict, "GIT_MERGE_CONFLICT"},
		{"rejected]", http.StatusConflict, "GIT_PUSH_REJECTED"},
		{"a branch named", http.StatusConflict, "GIT_BRANCH_EXISTS"},
		{"already exists", http.StatusConflict, "CONFLICT"},
		{"did not match any file(s) known to git", http.StatusNotFound, "GIT_BRANCH_NOT_FOUND"},
		{"Remote branch", http.StatusNotFound, "GIT_BRANCH_NOT_FOUND"},
		{"error: branch", http.StatusNotFound, "GIT_BRANCH_NOT_FOUND"},
		{"not a git repository", http.StatusNotFound, "GIT_REPO_NOT_FOUND"},
		{"does not exist", http.StatusNotFound, "GIT_REPO_NOT_FOUND"},
		{"not found", http.StatusNotFound, "GIT_REPO_NOT_FOUND"},
		{"cannot change to", http.StatusNotFound, "GIT_REPO_NOT_FOUND"},
		{"unable to access", http.StatusBadGateway, "GIT_TRANSPORT_FAILED"},
	}
}

// gitFault is the status and the code of the toolbox for what git has said.
func gitFault(text string) (status int, code string) {
	for _, f := range gitFaults() {
		if strings.Contains(text, f.text) {
			return f.status, f.code
		}
	}
	return http.StatusBadRequest, "BAD_REQUEST"
}

func gitProblem(out output) error {
	if out.code == 127 {
		return problem.New(
			http.StatusBadRequest,
			"git_failed",
			"the sandbox's image has no git; use a template that has it",
		)
	}
	text := strings.TrimSpace(out.stderr + out.stdout)
	status, _ := gitFault(text)
	return problem.New(status, "git_failed", text)
}

// option checks what must not be read as an option by git.
func option(field, text string) error {
	if strings.HasPrefix(text, "-") {
		return problem.Invalid("body."+field, "must not begin with a hyphen")
	}
	return nil
}

func (s *gitRoutes) clone(c *fiber.Ctx, in *struct {
	Path string `json:"path" required:"true"`
	login
	URL     string `json:"url" required:"true"`
	Branch  string `json:"branch"`
	Commit  string `json:"commit_id"`
	Depth   int    `json:"depth"`
	SkipTLS bool   `json:"insecure_skip_tls"`
},
) error {
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
	if in.Commit == "" {
		return nil
	}
	if err := option("commit_id", in.Commit); err != nil {
		return err
	}
	_, err := s.git(c, login{}, "-C", in.Path, "checkout", in.Commit)
	return err
}

func (s *gitRoutes) status(c *fiber.Ctx) error {
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

func (s *gitRoutes) gitAdd(c *fiber.Ctx, in *struct {
	Path  string   `json:"path" required:"true"`
	Files []string `json:"files" required:"true"`
},
) error {
	_, err := s.git(c, login{}, append([]string{"-C", in.Path, "add", "--"}, in.Files...)...)
	return err
}

func (s *gitRoutes) commit(c *fiber.Ctx, in *struct {
	Path       string `json:"path" required:"true"`
	Message    string `json:"message" required:"true"`
	Author     string `json:"author" required:"true"`
	Email      string `json:"email" required:"true"`
	AllowEmpty bool   `json:"allow_empty"`
},
) error {
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

func (s *gitRoutes) branches(c *fiber.Ctx) error {
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
func (s *gitRoutes) onBranch(args ...string) fiber.Handler {
	return body(func(c *fiber.Ctx, in *struct {
		Path string `json:"path" required:"true"`
		Name string `json:"name" required:"true"`
	},
	) error {
		_, err := s.git(c, login{}, append(append([]string{"-C", in.Path}, args...), "--", in.Name)...)
		return err
	})
}

func (s *gitRoutes) checkout(c *fiber.Ctx, in *struct {
	Path   string `json:"path" required:"true"`
	Branch string `json:"branch" required:"true"`
},
) error {
	if err := option("branch", in.Branch); err != nil {
		return err
	}
	_, err := s.git(c, login{}, "-C", in.Path, "checkout", in.Branch)
	return err
}

// transfer exchanges commits with a remote.
func (s *gitRoutes) transfer(verb string) fiber.Handler {
	return body(func(c *fiber.Ctx, in *struct {
		Path string `json:"path" required:"true"`
		login
		Branch      string `json:"branch"`
		Remote      string `json:"remote"`
		SetUpstream bool   `json:"set_upstream"`
	},
	) error {
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
		_, err := s.git(c, in.login, args...)
		return err
	})
}
