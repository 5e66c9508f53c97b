package jobs

import (
	"context"
	"encoding/hex"
	"errors"
	"net/url"
	"path"
	"strconv"
	"strings"
	"time"

	"sandyard/models"
	"sandyard/providers"
)

const (
	// setupTimeout is how long a clone, or a setup script, may take that does not say, and longestSetup how long at most.
	setupTimeout = 5 * time.Minute
	longestSetup = 30 * time.Minute
	// setupOutput is kept of what one of them writes.
	setupOutput = 1 << 20
	// setupWait is how long one look at the output waits for more.
	setupWait = 5 * time.Second
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

func (g *Git) check() error {
	if g == nil {
		return nil
	}
	u, err := url.Parse(g.URL)
	switch {
	case err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Host == "":
		return invalid("git.url", "must be an https:// or http:// URL of a repository")
	case u.User != nil:
		return invalid("git.url", "holds a user or password; write them as a secret and name it in git.secret")
	case strings.HasPrefix(g.Ref, "-") || strings.ContainsAny(g.Ref, " \x00\n~^:?*[\\"):
		return invalid("git.ref", "%.100q is not a valid name of a branch, tag or commit", g.Ref)
	case path.IsAbs(g.Path) || strings.HasPrefix(path.Clean(g.Path), "..") || strings.ContainsAny(g.Path, "\x00\n"):
		return invalid("git.path", "must be a path below the work directory, such as src")
	case g.Path == "" && g.directory() == "":
		return invalid("git.path", "is missing, and git.url does not end with a name for the directory")
	case g.Depth < 0:
		return invalid("git.depth", "must be at least 0")
	case g.Secret != "" && !secretName.MatchString(g.Secret):
		return invalid("git.secret", "%.80q is not a valid name of a secret; use up to 63 letters, digits, _, . and -", g.Secret)
	}
	_, err = setupLimit("git.timeout_seconds", g.TimeoutSeconds)
	return err
}

func (s *Setup) check() error {
	if s == nil {
		return nil
	}
	if strings.TrimSpace(s.Script) == "" {
		return invalid("setup.script", "is empty")
	}
	_, limit := setupLimit("setup.timeout_seconds", s.TimeoutSeconds)
	return firstError(noNUL("setup.script", s.Script), checkEnv("setup.env", s.Env), s.SecretEnv.check(s.Env), limit)
}

func setupLimit(field string, v float64) (time.Duration, error) {
	d, err := seconds(field, v, setupTimeout, time.Second)
	if err == nil && d > longestSetup {
		err = invalid(field, "must be at most %.0f", longestSetup.Seconds())
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
	return git + ` -c advice.detachedHead=false clone --no-progress $DEPTH` + branch + ` -- "$REPOSITORY" "$DIRECTORY"`, env
}

// step is one command that prepares a sandbox.
type step struct {
	name    string // in the sandbox, and in the log
	what    string // for people
	script  string
	env     map[string]string
	secrets SecretEnv
	limit   time.Duration
}

// steps are what a sandbox is to be prepared by, in their order.
func (s sandboxSpec) steps() []step {
	var all []step
	if g := s.Git; g != nil {
		text, env := g.script()
		limit, _ := setupLimit("", g.TimeoutSeconds) // was checked
		one := step{name: "setup-git", what: "git clone", script: text, env: env, limit: limit}
		if g.Secret != "" {
			one.secrets.Secrets = map[string]string{gitSecret: g.Secret}
		}
		all = append(all, one)
	}
	if p := s.Setup; p != nil {
		limit, _ := setupLimit("", p.TimeoutSeconds)
		all = append(all, step{name: "setup", what: "the setup script", script: p.Script, env: p.Env, secrets: p.SecretEnv, limit: limit})
	}
	return all
}

// setupTime is how long the steps may take together.
func (s sandboxSpec) setupTime() time.Duration {
	var sum time.Duration
	for _, one := range s.steps() {
		sum += one.limit
	}
	return sum
}

// setUp prepares a new sandbox by its steps. A step that an earlier attempt has begun is gone on with.
func (a *attempt) setUp(ctx context.Context, box models.Sandbox) error {
	s, err := specOf(box)
	if err != nil || len(s.steps()) == 0 {
		return err
	}
	a.slot.rest()
	inside, err := a.open(ctx)
	if err != nil {
		return err
	}
	for _, one := range s.steps() {
		if err := a.step(ctx, inside, box, one); err != nil {
			return err
		}
	}
	return nil
}

func (a *attempt) step(ctx context.Context, inside providers.Sandbox, box models.Sandbox, one step) error {
	env, err := a.environment(ctx, one.env, one.secrets)
	if missing := (*secretError)(nil); errors.As(err, &missing) {
		return providers.Errorf(providers.SetupFailed, "%s was not started: %s", one.what, missing.why.Message)
	}
	if err != nil {
		return err
	}
	cmd := providers.Command{Name: one.name, Shell: "exec 2>&1\n" + one.script, Env: env, Timeout: one.limit, MaxOutput: setupOutput}
	logged, err := a.w.store.SetupLogged(ctx, box.ID, one.name)
	if err != nil {
		return err
	}
	log := a.openSetupLog(ctx, box.ID, one.name, logged)
	res, err := follow(ctx, inside, cmd, logged, log)
	log.close()
	if err != nil {
		return err
	}
	switch {
	case res.TimedOut:
		return providers.Errorf(providers.SetupFailed, "%s did not end within %v; raise its timeout_seconds. Its last output: %s", one.what, one.limit, lastWords(res))
	case res.ExitCode != 0:
		return providers.Errorf(providers.SetupFailed, "%s ended with exit code %d: %s", one.what, res.ExitCode, lastWords(res))
	}
	return nil
}

// follow runs a command, or goes on with it, and writes what it says beyond the first skip bytes to log as it says it, where the
// provider can tell; else at its end.
func follow(ctx context.Context, inside providers.Sandbox, cmd providers.Command, skip int64, log *buildLog) (providers.Result, error) {
	b, ok := inside.(providers.Background)
	if !ok {
		res, err := inside.Run(ctx, cmd)
		if err == nil {
			_, _ = log.Write(res.Stdout[min(skip, int64(len(res.Stdout))):]) // it never fails
		}
		return res, err
	}
	e, err := b.Launch(ctx, cmd)
	var tail []byte
	for at := skip; err == nil && (e.Running || at < e.StdoutBytes); {
		var out providers.Output
		out, err = b.Output(ctx, cmd.Name, providers.OutputQuery{Offset: at, Wait: setupWait})
		if err != nil {
			break
		}
		_, _ = log.Write(out.Data)
		if tail = append(tail, out.Data...); len(tail) > 8<<10 {
			tail = tail[len(tail)-4<<10:]
		}
		e, at = out.Exec, max(at, out.Begin)+int64(len(out.Data))
	}
	if err != nil {
		return providers.Result{}, err
	}
	res := providers.Result{TimedOut: e.TimedOut, Signal: e.Signal, OOMKilled: e.OOMKilled, Stdout: tail, StdoutBytes: e.StdoutBytes}
	if e.ExitCode != nil {
		res.ExitCode = *e.ExitCode
	}
	return res, nil
}

// forgetSteps drops the output of the steps, when the create has been written down: until then another attempt may need it.
func (a *attempt) forgetSteps(ctx context.Context, box models.Sandbox) error {
	s, err := specOf(box)
	if err != nil || len(s.steps()) == 0 {
		return err
	}
	inside, err := a.open(ctx)
	for _, one := range s.steps() {
		if err == nil {
			err = inside.Forget(ctx, one.name)
		}
	}
	return err
}

// openSetupLog opens the log of a step, of which logged bytes are there already.
func (a *attempt) openSetupLog(ctx context.Context, sandbox, step string, logged int64) *buildLog {
	l := a.openLog(ctx, func(ctx context.Context, h models.Held, data []byte) error {
		return a.w.store.AppendSetupLog(ctx, h, sandbox, step, data)
	})
	l.kept = int(min(logged, maxBuildLog))
	return l
}

// checkSetup refuses what can be seen to fail: a clone without a way out, or a secret that the tenant has not.
func (c *Client) checkSetup(ctx context.Context, wish CreateSandbox, box *models.Sandbox) error {
	policy, err := PolicyOf(box.Egress)
	if err != nil {
		return err
	}
	if wish.Git != nil && policy.Off() {
		return invalid("git", "cannot reach %s, because the sandbox has no network; set egress, such as {\"allow\": [%q]}, or network",
			wish.Git.host(), wish.Git.host())
	}
	for _, one := range (sandboxSpec{Git: wish.Git, Setup: wish.Setup}).steps() {
		if err := c.knowsSecrets(ctx, box.TenantID, one.secrets.Secrets); err != nil {
			return err
		}
	}
	return nil
}

// host is where the repository is.
func (g *Git) host() string {
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
