package daytona

import (
	"context"
	"encoding/base64"
	"net/http"
	"regexp"
	"strconv"
	"strings"

	"github.com/gofiber/fiber/v2"

	"sandyard/jobs/kind"
	"sandyard/models"
	"sandyard/providers"
	"sandyard/web/middleware"
	"sandyard/web/problem"
)

// A session is a shell that runs as a background exec and reads the names of its commands from a queue. All of its
// state is in the sandbox, in a directory of its own: the id of its exec, and of each command a directory with its
// text, its output and at its end its exit code. So every API process knows every session, and it ends with its
// sandbox.

// Codes of errors that the toolbox has names of its own for.
const (
	sessionEnded = "session_ended"
	commandEnded = "command_ended"
	gitFailed    = "git_failed"
)

// nameForm is what sessions and commands may be called, as they are names of directories.
var nameForm = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9._-]{0,127}$`)

// sessions has the routes of sessions.
type sessions struct{ *core }

func (s *sessions) addSessions(r routes) {
	const all = toolbox + "/:id/process/session"
	r.get(all, s.listSessions)
	r.post(all, middleware.Then(http.StatusCreated, body(s.createSession)))
	r.get(all+"/:session", s.getSession)
	r.remove(all+"/:session", middleware.Then(http.StatusNoContent, s.deleteSession))
	r.post(all+"/:session/exec", body(s.sessionExec))
	r.get(all+"/:session/command/:command", s.getCommand)
	r.post(all+"/:session/command/:command/input", middleware.Then(http.StatusNoContent, body(s.input)))
}

// How our scripts end that find something wrong.
const (
	noSession   = 44
	endedBefore = 45
	noCommand   = 46
	isThere     = 47
)

// prelude finds the session that is the first argument, and its command that is the second.
const prelude = `d="$HOME/.daytona/sessions/$1"; c="$d/$2"
alive() { kill -0 "$(cat "$d/pid" 2>/dev/null)" 2>/dev/null; }
`

// runner is the shell of a session. Commands are read into it, so what they set stays; one that exits ends it.
const runner = `
exec 9<>"$sandyard_d/queue"
trap 'sandyard_e=$?; [ -z "$sandyard_c" ] || echo "$sandyard_e" >"$sandyard_c/exit"' EXIT
echo $$ >"$sandyard_d/pid.new"; mv "$sandyard_d/pid.new" "$sandyard_d/pid"
while read -r sandyard_n <&9; do
	sandyard_c="$sandyard_d/$sandyard_n"
	. "$sandyard_c/command" >"$sandyard_c/stdout" 2>"$sandyard_c/stderr" <>"$sandyard_c/input" 9<&-
	echo $? >"$sandyard_c/exit.new"; mv "$sandyard_c/exit.new" "$sandyard_c/exit"; sandyard_c=
done
`

const (
	makeSession = prelude + `mkdir -p "${d%/*}"; mkdir "$d" 2>/dev/null || exit 47; mkfifo "$d/queue"`
	// joinSession notes the exec of a session and waits for its shell.
	joinSession = prelude + `[ -d "$d" ] || exit 44; echo "$2" >"$d/exec"
i=0; until [ -s "$d/pid" ]; do i=$((i+1)); [ $i -lt 1500 ] || exit 45; sleep 0.02; done`
	// execSession gives a command to the shell: $3 is async or sync, and the text comes in by the standard input.
	execSession = prelude + `[ -d "$d" ] || exit 44; alive || exit 45
mkdir "$c" || exit 1; cat >"$c/command"; : >"$c/stdout"; : >"$c/stderr"
if [ "$3" = async ]; then mkfifo "$c/input"; else ln -s /dev/null "$c/input"; fi
echo "$2" 1<>"$d/queue"
`
	showSession = prelude + `[ -d "$d" ] || exit 44
for c in "$d"/*/; do [ -f "$c/command" ] || continue
	n="${c%/}"; printf '%s %s %s\n' "${n##*/}" "$(cat "$c/exit" 2>/dev/null || echo -)" "$(base64 <"$c/command" | tr -d " +
		"'\n')"
done`
	allSessions = `for d in "$HOME"/.daytona/sessions/*/; do [ -d "$d" ] || continue; d="${d%/}"; echo "${d##*/}"; done`
	endSession  = prelude + `[ -d "$d" ] || exit 44; cat "$d/exec" 2>/dev/null`
	dropSession = prelude + `rm -rf "$d"`
	sendInput   = prelude + `[ -d "$d" ] || exit 44; [ -d "$c" ] || exit 46; [ -e "$c/exit" ] && exit 45; [ -p "$c/input" ] || exit 45
cat 1<>"$c/input"`
	checkCommand = prelude + `[ -d "$d" ] || exit 44; [ -d "$c" ] || exit 46`
	readLogs     = prelude + `[ -d "$d" ] || exit 44; [ -d "$c" ] || exit 46; cat "$c/stdout"; cat "$c/stderr" >&2`
)

// named checks the names of the path.
func named(c *fiber.Ctx) (session, command string, err error) {
	session, command = c.Params("session"), c.Params("command", "none")
	for _, name := range []string{session, command} {
		if !nameForm.MatchString(name) {
			return "", "", problem.New(http.StatusNotFound, "not_found", "there is no such session or command")
		}
	}
	return session, command, nil
}

// inSession carries out a script on a session's directory, and says what is wrong where it does.
func (s *sessions) inSession(
	c *fiber.Ctx,
	script, stdin string,
	more ...string,
) (out output, box models.Sandbox, err error) {
	session, command, err := named(c)
	if err != nil {
		return out, box, err
	}
	if box, err = s.inside(c); err != nil {
		return out, box, err
	}
	if len(more) == 0 {
		more = []string{command}
	}
	out, err = s.script(c.UserContext(), box.ID, script, stdin, append([]string{session}, more...)...)
	if err == nil {
		err = wrongIn(out)
	}
	return out, box, err
}

func wrongIn(out output) error {
	switch out.code {
	case 0:
		return nil
	case noSession:
		return problem.New(http.StatusNotFound, "not_found", "there is no such session; create it first")
	case noCommand:
		return problem.New(http.StatusNotFound, "not_found", "the session has no such command")
	case endedBefore:
		return problem.New(
			http.StatusGone,
			"session_ended",
			"the session has ended, as one of its commands exited its shell; delete it and create another",
		)
	case isThere:
		return problem.New(
			http.StatusConflict,
			"name_taken",
			"there is a session with this id already; use it, or delete it first",
		)
	}
	return problem.New(
		http.StatusInternalServerError,
		"provider_error",
		"the sandbox could not do this: "+strings.TrimSpace(out.stderr),
	)
}

func (s *sessions) createSession(c *fiber.Ctx, in *struct {
	ID string `json:"sessionId" required:"true"`
},
) error {
	if !nameForm.MatchString(in.ID) {
		return problem.Invalid(
			"body.sessionId",
			"must be up to 128 letters, digits, dots, underscores and hyphens, and begin with a letter, a digit or an "+
				"underscore",
		)
	}
	box, err := s.inside(c)
	if err != nil {
		return err
	}
	ctx := c.UserContext()
	out, err := s.script(ctx, box.ID, makeSession, "", in.ID)
	if err == nil {
		err = wrongIn(out)
	}
	if err != nil {
		return err
	}
	shell := &kind.Exec{Command: `sandyard_d="$HOME/.daytona/sessions/` + in.ID + `"` + runner, Background: true}
	job, err := s.calls.Do(ctx, box.ID, shell)
	if err == nil {
		out, err = s.script(ctx, box.ID, joinSession, "", in.ID, job.ID)
	}
	if err == nil {
		err = wrongIn(out)
	}
	if err != nil {
		_, _ = s.script(ctx, box.ID, dropSession, "", in.ID) // the first error says more
	}
	return err
}

// deleteSession kills the shell with all that it has started.
func (s *sessions) deleteSession(c *fiber.Ctx) error {
	out, box, err := s.inSession(c, endSession, "")
	if err != nil {
		return err
	}
	ctx := c.UserContext()
	if exec := strings.TrimSpace(out.stdout); strings.HasPrefix(exec, "job_") {
		_, err := s.calls.Do(ctx, box.ID, &kind.ExecDelete{ExecRef: kind.ExecRef{ExecID: exec}})
		if err != nil && s.fault(err).Code != string(providers.NoExec) {
			return err
		}
	}
	_, err = s.script(ctx, box.ID, dropSession, "", c.Params("session"))
	return err
}

// command is Daytona's document of a session's command.
type command struct {
	ID       string `json:"id"`
	Command  string `json:"command"`
	ExitCode *int   `json:"exitCode,omitempty"`
}

func commandsOf(text string) []command {
	list := []command{}
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		if len(fields) != 3 {
			continue
		}
		body, _ := base64.StdEncoding.DecodeString(fields[2]) // the sandbox's own text
		one := command{ID: fields[0], Command: plain(body)}
		if code, err := strconv.Atoi(fields[1]); err == nil {
			one.ExitCode = &code
		}
		list = append(list, one)
	}
	return list
}

func (s *sessions) getSession(c *fiber.Ctx) error {
	out, _, err := s.inSession(c, showSession, "")
	if err != nil {
		return err
	}
	return c.JSON(map[string]any{"sessionId": c.Params("session"), "commands": commandsOf(out.stdout)})
}

func (s *sessions) getCommand(c *fiber.Ctx) error {
	out, _, err := s.inSession(c, showSession, "")
	if err != nil {
		return err
	}
	for _, one := range commandsOf(out.stdout) {
		if one.ID == c.Params("command") {
			return c.JSON(one)
		}
	}
	return wrongIn(output{code: noCommand})
}

func (s *sessions) listSessions(c *fiber.Ctx) error {
	box, err := s.inside(c)
	if err != nil {
		return err
	}
	ctx := c.UserContext()
	all, err := s.script(ctx, box.ID, allSessions, "")
	if err != nil {
		return err
	}
	list := []map[string]any{}
	for _, id := range strings.Fields(all.stdout) {
		out, err := s.script(ctx, box.ID, showSession, "", id)
		if err != nil {
			return err
		}
		if out.code == 0 {
			list = append(list, map[string]any{"sessionId": id, "commands": commandsOf(out.stdout)})
		}
	}
	return c.JSON(list)
}

// sessionExec runs a command in the session's shell, and waits for its end unless it is asynchronous.
func (s *sessions) sessionExec(c *fiber.Ctx, in *struct {
	Command  string `json:"command" required:"true"`
	RunAsync bool   `json:"runAsync"`
	Async    bool   `json:"async"`
},
) error {
	id, mode := models.NewID("cmd_"), "sync"
	script := execSession + waitSession
	if in.RunAsync || in.Async {
		mode, script = "async", execSession
	}
	out, _, err := s.inSession(c, script, in.Command+"\n", id, mode)
	if err != nil {
		return err
	}
	if mode == "async" {
		return c.Status(http.StatusAccepted).JSON(map[string]any{"cmdId": id})
	}
	first, rest, _ := strings.Cut(out.stdout, "\n")
	code, err := strconv.Atoi(first)
	if err != nil {
		return wrongIn(output{code: 1, stderr: "no exit code"})
	}
	return c.JSON(
		map[string]any{"cmdId": id, "exitCode": code, "stdout": rest, "stderr": out.stderr, "output": rest + out.stderr},
	)
}

// waitSession waits for the end of a command and prints its exit code and its output.
const waitSession = `until [ -e "$c/exit" ]; do alive || { [ -e "$c/exit" ] || exit 45; }; sleep 0.02; done
cat "$c/exit" "$c/stdout"; cat "$c/stderr" >&2`

func (s *sessions) input(c *fiber.Ctx, in *struct {
	Data string `json:"data" required:"true"`
},
) error {
	_, _, err := s.inSession(c, sendInput, in.Data)
	if s.fault(err).Code == sessionEnded {
		return problem.New(
			http.StatusGone,
			"command_ended",
			"the command has ended, or it was not run with runAsync: it takes no input",
		)
	}
	return err
}

// logsOf reads what a command has written.
func (s *sessions) logsOf(c *fiber.Ctx) error {
	out, _, err := s.inSession(c, readLogs, "")
	if err != nil {
		return err
	}
	return c.JSON(map[string]string{"stdout": out.stdout, "stderr": out.stderr, "output": out.stdout + out.stderr})
}

// followed is a piece of a command's output.
type followed struct {
	stdout, stderr []byte
	ended          bool
}

// followLogs waits for output behind two offsets, for some seconds. It ends with 100 where no more can follow.
const followLogs = prelude + `[ -d "$d" ] || exit 44; [ -d "$c" ] || exit 46
i=0; while :; do
	e=0; if [ -e "$c/exit" ] || ! alive; then e=100; fi
	[ "$(wc -c <"$c/stdout")" -le "$3" ] && [ "$(wc -c <"$c/stderr")" -le "$4" ] && [ $e = 0 ] && [ $i -lt 300 ] || break
	i=$((i+1)); sleep 0.05
done
tail -c +$(($3+1)) "$c/stdout" | head -c 1000000; tail -c +$(($4+1)) "$c/stderr" | head -c 1000000 >&2
exit $e`

// follow reads the next piece of a command's output.
func (s *sessions) follow(
	ctx context.Context,
	sandboxID, session, command string,
	out, err int,
) (f followed, fault error) {
	argv := []string{"sh", "-c", followLogs, "sh", session, command, strconv.Itoa(out), strconv.Itoa(err)}
	job, fault := s.calls.Do(ctx, sandboxID, &kind.Exec{Argv: argv, TimeoutSeconds: 60, MaxOutputBytes: mostOutput},
		models.OutputStdout, models.OutputStderr, models.OutputResult)
	if fault != nil {
		return f, fault
	}
	res, fault := execResult(job)
	if fault != nil {
		return f, fault
	}
	f = followed{stdout: job.Stdout, stderr: job.Stderr, ended: res.ExitCode == 100}
	if res.ExitCode != 0 && !f.ended {
		fault = wrongIn(output{code: res.ExitCode, stderr: plain(job.Stderr)})
	}
	return f, fault
}
