package kind

import (
	"cmp"
	"encoding/hex"
	"net/url"
	"path"
	"strconv"
	"strings"
	"time"
)

const (
	// setupTimeout is how long a clone, or a setup script, may take that does not say, and longestSetup how long at most.
	setupTimeout = 5 * time.Minute
	longestSetup = 30 * time.Minute
)

// Git is a repository that a new sandbox has from the start.
type Git struct {
	URL            string  `json:"url" maxLength:"2048" doc:"https:// or http:// URL without a user and password; the sandbox's egress must allow its host"`
	Ref            string  `json:"ref,omitempty" maxLength:"256" doc:"Branch, tag or full commit id; default: the repository's default branch"`
	Path           string  `json:"path,omitempty" maxLength:"1024" doc:"Directory that it is cloned into, below the work directory; default: the repository's name"`
	Depth          int     `json:"depth,omitempty" minimum:"0" maximum:"1000000" doc:"Only so many of the latest commits; default 0: all"`
	Secret         string  `json:"secret,omitempty" doc:"Name of a secret with a token, or USER:PASSWORD, that git sends to the server. It is not kept in the sandbox"`
	TimeoutSeconds float64 `json:"timeout_seconds,omitempty" doc:"Default 300, at most 1800"`
}

// Setup is a script that prepares a new sandbox.
type Setup struct {
	Script         string            `json:"script" maxLength:"1048576" doc:"A script for bash (sh without bash), run in the work directory before anybody uses the sandbox, after git and before the template's start command. The create fails unless it exits 0"`
	Env            map[string]string `json:"env,omitempty" doc:"Environment variables for the script alone"`
	TimeoutSeconds float64           `json:"timeout_seconds,omitempty" doc:"Default 300, at most 1800"`
	SecretEnv
}

// Check says what is wrong with a repository; nil = there is none.
func (g *Git) Check() error {
	if g == nil {
		return nil
	}
	u, err := url.Parse(g.URL)
	switch {
	case err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Host == "":
		return Invalid("git.url", "must be an https:// or http:// URL of a repository")
	case u.User != nil:
		return Invalid("git.url", "holds a user or password; write them as a secret and name it in git.secret")
	case strings.HasPrefix(g.Ref, "-") || strings.ContainsAny(g.Ref, " \x00\n~^:?*[\\"):
		return Invalid("git.ref", "%.100q is not a valid name of a branch, tag or commit", g.Ref)
	case path.IsAbs(g.Path) || strings.HasPrefix(path.Clean(g.Path), "..") || strings.ContainsAny(g.Path, "\x00\n"):
		return Invalid("git.path", "must be a path below the work directory, such as src")
	case g.Path == "" && g.directory() == "":
		return Invalid("git.path", "is missing, and git.url does not end with a name for the directory")
	case g.Depth < 0:
		return Invalid("git.depth", "must be at least 0")
	case g.Secret != "" && !SecretName.MatchString(g.Secret):
		return Invalid(
			"git.secret",
			"%.80q is not a valid name of a secret; use up to 63 letters, digits, _, . and -",
			g.Secret,
		)
	}
	_, err = setupLimit("git.timeout_seconds", g.TimeoutSeconds)
	return err
}

// Check says what is wrong with a setup script; nil = there is none.
func (s *Setup) Check() error {
	if s == nil {
		return nil
	}
	if strings.TrimSpace(s.Script) == "" {
		return Invalid("setup.script", "is empty")
	}
	_, limit := setupLimit("setup.timeout_seconds", s.TimeoutSeconds)
	return cmp.Or(NoNUL("setup.script", s.Script), CheckEnv("setup.env", s.Env), s.SecretEnv.Check(s.Env), limit)
}

func setupLimit(field string, v float64) (time.Duration, error) {
	d, err := Seconds(field, v, setupTimeout, time.Second)
	if err == nil && d > longestSetup {
		err = Invalid(field, "must be at most %.0f", longestSetup.Seconds())
	}
	return d, err
}

// directory is where the repository is cloned into.
func (g *Git) directory() string {
	if g.Path != "" {
		return path.Clean(g.Path)
	}
	u, err := url.Parse(g.URL)
	if err != nil {
		return ""
	}
	name := strings.TrimSuffix(path.Base(u.Path), ".git")
	if name == "." || name == "/" || name == ".." || strings.HasPrefix(name, "-") {
		return ""
	}
	return name
}

// gitSecret is the variable in which the clone finds its secret.
const gitSecret = "SANDYARD_GIT_SECRET"

// askSecret is a credential helper that tells git the secret: USER:PASSWORD, or a token.
const askSecret = `!f() { test "$1" = get || exit 0; case $` + gitSecret + ` in *:*) echo "username=${` + gitSecret + `%%:*}";; *) echo username=x-access-token;; esac; ` +
	`echo "password=${` + gitSecret + `#*:}"; }; f`

// script clones the repository. Its arguments are in variables, so that nothing of them is a part of the script.
func (g *Git) script() (text string, env map[string]string) {
	env = map[string]string{
		"GIT_TERMINAL_PROMPT": "0", "REPOSITORY": g.URL, "DIRECTORY": g.directory(), "REF": g.Ref,
		"DEPTH": "",
	}
	if g.Depth > 0 {
		env["DEPTH"] = "--depth=" + strconv.Itoa(g.Depth)
	}
	git := "git"
	if g.Secret != "" {
		env["HELPER"], env["ORIGIN"] = askSecret, g.origin() // a server that sends git elsewhere does not get it sent there
		git = `git -c credential.helper= -c "credential.$ORIGIN.helper=$HELPER"`
	}
	if _, err := hex.DecodeString(g.Ref); err == nil && (len(g.Ref) == 40 || len(g.Ref) == 64) {
		return `set -e; git init --quiet -- "$DIRECTORY"; cd -- "$DIRECTORY"; git remote add origin "$REPOSITORY"; ` +
			git + ` fetch --no-progress $DEPTH origin "$REF"; git -c advice.detachedHead=false checkout --quiet FETCH_HEAD`, env
	}
	branch := ""
	if g.Ref != "" {
		branch = ` --branch "$REF"`
	}
	return git + ` -c advice.detachedHead=false clone --no-progress $DEPTH` + branch + ` -- "$REPOSITORY" "$DIRECTORY"`,
		env
}

// Step is one command that prepares a sandbox.
type Step struct {
	Name    string // in the sandbox, and in the log
	What    string // for people
	Script  string
	Env     map[string]string
	Secrets SecretEnv
	Limit   time.Duration
}

// Steps are what a sandbox is to be prepared by, in their order.
func (s Spec) Steps() []Step {
	var all []Step
	if g := s.Git; g != nil {
		text, env := g.script()
		limit, _ := setupLimit("", g.TimeoutSeconds) // was checked
		one := Step{Name: "setup-git", What: "git clone", Script: text, Env: env, Limit: limit}
		if g.Secret != "" {
			one.Secrets.Secrets = map[string]string{gitSecret: g.Secret}
		}
		all = append(all, one)
	}
	if p := s.Setup; p != nil {
		limit, _ := setupLimit("", p.TimeoutSeconds)
		all = append(
			all,
			Step{Name: "setup", What: "the setup script", Script: p.Script, Env: p.Env, Secrets: p.SecretEnv, Limit: limit},
		)
	}
	return all
}

// SetupTime is how long the steps may take together.
func (s Spec) SetupTime() time.Duration {
	var sum time.Duration
	for _, one := range s.Steps() {
		sum += one.Limit
	}
	return sum
}

// Host is where the repository is.
func (g *Git) Host() string {
	_, host, _ := strings.Cut(g.origin(), "://")
	return host
}

// origin is the scheme and the host of a URL that was checked.
func (g *Git) origin() string {
	u, err := url.Parse(g.URL)
	if err != nil {
		return ""
	}
	return u.Scheme + "://" + u.Host
}
