package daytona

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/gofiber/fiber/v2"

	"sandyard/jobs/kind"
	"sandyard/models"
	"sandyard/web/calls"
	"sandyard/web/problem"
)

const (
	// defaultCommand is how long a command may run that does not say, in seconds.
	defaultCommand = 360
	// mostOutput is how much of each stream a command's answer holds.
	mostOutput = 8 << 20
	// mostCode is the most code that one argument of a program holds.
	mostCode = 120 << 10
)

// processes has the routes of commands, code and ports.
type processes struct{ *core }

func (s *processes) addProcess(r routes) {
	const one = toolbox + "/:id"
	r.get(one+"/work-dir", s.directory(`pwd`))
	r.get(one+"/user-home-dir", s.directory(`printf '%s\n' "$HOME"`))
	r.get(one+"/version", s.version)
	r.post(one+"/process/execute", body(s.execute))
	r.post(one+"/process/code-run", body(s.runCode))
	r.get(one+"/port", s.ports)
	r.get(one+"/port/:port/in-use", s.portInUse)
}

// output is what a program has written, and its exit code.
type output struct {
	stdout, stderr string
	code           int
}

// run carries out a command to its end.
func (s *core) run(ctx context.Context, sandboxID string, e *kind.Exec) (output, error) {
	e.MaxOutputBytes = mostOutput
	job, err := s.calls.Do(ctx, sandboxID, e, models.OutputStdout, models.OutputStderr, models.OutputResult)
	if err != nil {
		return output{}, err
	}
	res, err := execResult(job)
	if err != nil {
		return output{}, err
	}
	return output{plain(job.Stdout), plain(job.Stderr), res.ExitCode}, nil
}

func execResult(job models.Job) (res kind.ExecResult, err error) {
	if err = json.Unmarshal(job.Result, &res); err != nil {
		err = fmt.Errorf("read the result of job %s: %w", job.ID, err)
	}
	return res, err
}

// script carries out one of our own shell scripts with arguments, and with what it reads.
func (s *core) script(ctx context.Context, sandboxID, text, stdin string, args ...string) (output, error) {
	e := &kind.Exec{Argv: append([]string{"sh", "-c", text, "sh"}, args...), TimeoutSeconds: maxCommand.Seconds()}
	if stdin != "" {
		e.Stdin, e.StdinEncoding = base64.StdEncoding.EncodeToString([]byte(stdin)), "base64"
	}
	return s.run(ctx, sandboxID, e)
}

func plain(b []byte) string { return string(bytes.ToValidUTF8(b, []byte("\uFFFD"))) }

func (s *processes) directory(script string) fiber.Handler {
	return func(c *fiber.Ctx) error {
		box, err := s.inside(c)
		if err != nil {
			return err
		}
		out, err := s.script(c.UserContext(), box.ID, script, "")
		if err != nil {
			return err
		}
		return c.JSON(map[string]string{"dir": strings.TrimSuffix(out.stdout, "\n")})
	}
}

// version is that of the daemon whose operations these are.
func (s *processes) version(c *fiber.Ctx) error {
	if _, err := s.inside(c); err != nil {
		return err
	}
	return c.JSON(map[string]string{"version": "0.205.1"})
}

// seconds checks the time that a command may take.
func seconds(given *int) (float64, error) {
	switch most := int(maxCommand.Seconds()); {
	case given == nil || *given == 0:
		return defaultCommand, nil
	case *given < 0 || *given > most:
		return 0, problem.Invalid(
			"body.timeout",
			fmt.Sprintf("must be between 1 and %d seconds; run what takes longer in a session, with runAsync", most),
		)
	}
	return float64(*given), nil
}

// execute runs a shell command, both of whose streams are one text.
func (s *processes) execute(c *fiber.Ctx, in *struct {
	Command string            `json:"command" required:"true"`
	Cwd     string            `json:"cwd"`
	Envs    map[string]string `json:"envs"`
	Timeout *int              `json:"timeout"`
},
) error {
	if strings.TrimSpace(in.Command) == "" {
		return problem.Invalid("body.command", "is empty")
	}
	limit, err := seconds(in.Timeout)
	if err != nil {
		return err
	}
	box, err := s.inside(c)
	if err != nil {
		return err
	}
	out, err := s.run(c.UserContext(), box.ID, &kind.Exec{
		Command: in.Command, Cwd: in.Cwd, Env: in.Envs, TimeoutSeconds: limit, Merge: true,
	})
	if err != nil {
		return calls.Rename(err, "env", "envs")
	}
	return c.JSON(map[string]any{"exitCode": out.code, "result": out.stdout})
}

// runCode runs a program's text by the language's own interpreter.
func (s *processes) runCode(c *fiber.Ctx, in *struct {
	Code     string            `json:"code" required:"true"`
	Language string            `json:"language" required:"true"`
	Argv     []string          `json:"argv"`
	Envs     map[string]string `json:"envs"`
	Timeout  *int              `json:"timeout"`
},
) error {
	limit, err := seconds(in.Timeout)
	if err != nil {
		return err
	}
	run, known := map[string][]string{"python": {"python3", "-u", "-c"}, "javascript": {"node", "-e"}}[in.Language]
	switch {
	case !known:
		return unsupported("code in " + in.Language + " (python and javascript run)")
	case len(in.Code) > mostCode:
		return problem.New(http.StatusRequestEntityTooLarge, "body_too_large",
			fmt.Sprintf("the code is larger than %d bytes; upload it as a file and execute that", mostCode))
	}
	box, err := s.inside(c)
	if err != nil {
		return err
	}
	argv := append(append([]string{"sh", "-c", `exec 2>&1; exec "$@"`, "sh"}, run...), in.Code)
	if in.Language == "javascript" && len(in.Argv) > 0 {
		argv = append(argv, "--")
	}
	out, err := s.run(
		c.UserContext(),
		box.ID,
		&kind.Exec{Argv: append(argv, in.Argv...), Env: in.Envs, TimeoutSeconds: limit},
	)
	if err != nil {
		return calls.Rename(err, "env", "envs")
	}
	return c.JSON(
		map[string]any{"exitCode": out.code, "result": out.stdout, "artifacts": map[string]any{"charts": []any{}}},
	)
}

// listening prints the ports on which a program listens, from the kernel's tables.
const listening = `cat /proc/net/tcp /proc/net/tcp6 2>/dev/null | while read -r n local rest state more; do
	case "$state" in 0A) printf '%d\n' "0x${local##*:}" ;; esac
done | sort -nu`

func (s *processes) listening(c *fiber.Ctx) ([]int, error) {
	box, err := s.inside(c)
	if err != nil {
		return nil, err
	}
	out, err := s.script(c.UserContext(), box.ID, listening, "")
	if err != nil {
		return nil, err
	}
	ports := []int{}
	for _, field := range strings.Fields(out.stdout) {
		if port, err := strconv.Atoi(field); err == nil {
			ports = append(ports, port)
		}
	}
	return ports, nil
}

func (s *processes) ports(c *fiber.Ctx) error {
	ports, err := s.listening(c)
	if err != nil {
		return err
	}
	return c.JSON(map[string]any{"ports": ports})
}

func (s *processes) portInUse(c *fiber.Ctx) error {
	port, err := number(c, "port")
	if err != nil {
		return err
	}
	ports, err := s.listening(c)
	if err != nil {
		return err
	}
	return c.JSON(map[string]any{"isInUse": slices.Contains(ports, int(port))})
}
