package toolset

import (
	"cmp"
	"context"
	"fmt"
	"strings"
)

func shellTools() []Tool {
	return []Tool{
		define(
			"shell_exec",
			"Run a shell command and return its output. After 20 seconds it answers running=true and the command goes on: "+
				"follow it with shell_wait",
			Changes,
			shellExec,
		),
		define(
			"shell_wait",
			"Wait for the end of a command, and return its output after the cursor",
			Reads,
			shellWait,
		),
		define(
			"shell_interactive",
			"Start a program whose input stays open, by default a shell. shell_write feeds it, shell_view shows its output, "+
				"shell_kill ends it",
			Changes,
			shellInteractive,
		),
		define("shell_view", "Show the output of a command after the cursor, or its last part", Reads, shellView),
		define(
			"shell_write",
			"Write to the input of an interactive program, and return what it answers",
			Changes,
			shellWrite,
		),
		define("shell_kill", "Kill a command with all its processes", Changes, shellKill),
		define("process_list", "List the processes in the sandbox", Reads, processList),
		define("process_signal", "Send a signal to one process, such as SIGTERM", Changes, processSignal),
		define("env_get", "Show environment variables as later commands see them", Reads, envGet),
		define(
			"env_set",
			"Set an environment variable for later commands and new interpreters, or remove it",
			Adds,
			envSet,
		),
	}
}

type shellExecArgs struct {
	Command    string            `json:"command" jsonschema:"A command line for bash"`
	Cwd        string            `json:"cwd,omitempty" jsonschema:"Working directory; default the sandbox's"`
	Env        map[string]string `json:"env,omitempty" jsonschema:"Environment variables for this command"`
	Timeout    float64           `json:"timeout,omitempty" jsonschema:"Seconds until the command is killed; default 3600"`
	Wait       float64           `json:"wait,omitempty" jsonschema:"Seconds to wait for its end before the answer is running=true; default and most 20"`
	Background bool              `json:"background,omitempty" jsonschema:"Start the command and do not wait for it, as for a server"`
}

func shellExec(ctx context.Context, b Box, a *shellExecArgs) (*Answer, error) {
	c := Command{Shell: a.Command, Cwd: a.Cwd, Env: a.Env, Timeout: a.Timeout}
	if a.Background {
		return Started(b.Launch(ctx, c))
	}
	return Told(b.Run(ctx, c, Wait(a.Wait)))
}

// Told is the answer about a command that has run, or runs on.
func Told(r *Ran, err error) (*Answer, error) {
	if err != nil {
		return nil, err
	}
	return r.Answer(), nil
}

// Started is the answer about a command that was started in the background.
func Started(r *Ran, err error) (*Answer, error) {
	if err != nil {
		return nil, err
	}
	text := fmt.Sprintf(
		"The command runs in the background as %s. shell_wait with this exec_id shows its output.",
		r.ExecID,
	)
	return &Answer{Text: text, Fields: r}, nil
}

// ShellWaitArgs are also those of exec_output.
type ShellWaitArgs struct {
	ExecID  string  `json:"exec_id,omitempty" jsonschema:"The exec_id of an earlier answer; default: the sandbox's newest command"`
	Cursor  string  `json:"cursor,omitempty" jsonschema:"The cursor of the last answer: output after it is returned; default all"`
	Seconds float64 `json:"seconds,omitempty" jsonschema:"How long to wait for the command's end; default and most 20"`
}

func shellWait(ctx context.Context, b Box, a *ShellWaitArgs) (*Answer, error) {
	from, err := ReadCursor(a.Cursor)
	if err != nil {
		return nil, err
	}
	return b.Follow(ctx, a.ExecID, from, Wait(a.Seconds))
}

type shellInteractiveArgs struct {
	Command string            `json:"command,omitempty" jsonschema:"The program to start; default a shell"`
	Cwd     string            `json:"cwd,omitempty" jsonschema:"Working directory; default the sandbox's"`
	Env     map[string]string `json:"env,omitempty" jsonschema:"Environment variables for it"`
}

// shell starts the best shell that there is.
const shell = "command -v bash >/dev/null && exec bash; exec sh"

func shellInteractive(ctx context.Context, b Box, a *shellInteractiveArgs) (*Answer, error) {
	a.Command = cmp.Or(a.Command, shell)
	return Started(b.Launch(ctx, Command{Shell: a.Command, Cwd: a.Cwd, Env: a.Env, StdinOpen: true}))
}

type execRef struct {
	ExecID string `json:"exec_id,omitempty" jsonschema:"The exec_id of an earlier answer; default: the sandbox's newest one in the background"`
}

type shellViewArgs struct {
	execRef
	Cursor string `json:"cursor,omitempty" jsonschema:"The cursor of the last answer; default: the end of the output"`
}

func shellView(ctx context.Context, b Box, a *shellViewArgs) (*Answer, error) {
	from, err := ReadCursor(a.Cursor)
	if err != nil {
		return nil, err
	}
	if a.Cursor == "" {
		return b.View(ctx, a.ExecID, nil)
	}
	return b.View(ctx, a.ExecID, &from)
}

type shellWriteArgs struct {
	execRef
	Input      string  `json:"input" jsonschema:"What to write"`
	PressEnter *bool   `json:"press_enter,omitempty" jsonschema:"Add a line feed; default true"`
	Wait       float64 `json:"wait,omitempty" jsonschema:"Seconds to wait for output that answers it; default 2, at most 20"`
}

// answerWait is how many seconds an interactive program has to answer, where the call does not say.
const answerWait = 2

func shellWrite(ctx context.Context, b Box, a *shellWriteArgs) (*Answer, error) {
	if a.PressEnter == nil || *a.PressEnter {
		a.Input += "\n"
	}
	return b.Write(ctx, a.ExecID, a.Input, Wait(cmp.Or(a.Wait, answerWait)))
}

func shellKill(ctx context.Context, b Box, a *execRef) (*Answer, error) {
	exec, err := b.Kill(ctx, a.ExecID)
	if err != nil {
		return nil, err
	}
	text := fmt.Sprintf("Killed command %s with all its processes.", exec)
	return &Answer{Text: text, Fields: in(b, map[string]any{"exec_id": exec})}, nil
}

// maxShown is how many processes an answer has.
const maxShown = 200

type nothing struct{}

func processList(ctx context.Context, b Box, _ *nothing) (*Answer, error) {
	list, err := b.Processes(ctx)
	if err != nil {
		return nil, err
	}
	shown := list.Processes[:min(len(list.Processes), maxShown)]
	var text strings.Builder
	text.WriteString("PID\tPARENT\tSTATE\tTHREADS\tRSS_KB\tCPU_MS\tCOMMAND\n")
	for _, p := range shown {
		fmt.Fprintf(
			&text,
			"%d\t%d\t%s\t%d\t%d\t%d\t%s\n",
			p.Pid,
			p.Parent,
			p.State,
			p.Threads,
			p.RSSKB,
			p.CPUMS,
			p.Command,
		)
	}
	cut := len(shown) < list.Total
	if cut {
		fmt.Fprintf(&text, "[%d of %d processes are shown]\n", len(shown), list.Total)
	}
	return &Answer{
		Text:   text.String(),
		Fields: in(b, map[string]any{"processes": shown, "total": list.Total, "truncated": cut}),
	}, nil
}

type processSignalArgs struct {
	Pid    int    `json:"pid" jsonschema:"The pid that process_list shows"`
	Signal string `json:"signal,omitempty" jsonschema:"Such as SIGINT or SIGKILL; default SIGTERM"`
	Start  int64  `json:"start,omitempty" jsonschema:"The start that process_list shows: a later process with this pid is then left alone"`
}

func processSignal(ctx context.Context, b Box, a *processSignalArgs) (*Answer, error) {
	a.Signal = cmp.Or(a.Signal, "SIGTERM")
	if err := b.SignalProcess(ctx, a.Pid, a.Start, a.Signal); err != nil {
		return nil, err
	}
	text := fmt.Sprintf("Sent %s to process %d.", a.Signal, a.Pid)
	return &Answer{Text: text, Fields: in(b, map[string]any{"pid": a.Pid, "signal": a.Signal})}, nil
}

type envSetArgs struct {
	Name  string  `json:"name" jsonschema:"Name of the variable"`
	Value *string `json:"value,omitempty" jsonschema:"Its value; absent = remove the variable"`
}

func envSet(ctx context.Context, b Box, a *envSetArgs) (*Answer, error) {
	if err := b.SetEnv(ctx, a.Name, a.Value); err != nil {
		return nil, err
	}
	text := "Removed " + a.Name + "."
	if a.Value != nil {
		text = "Set " + a.Name + " for later commands."
	}
	return &Answer{Text: text, Fields: in(b, map[string]any{"name": a.Name})}, nil
}

type envGetArgs struct {
	Name string `json:"name,omitempty" jsonschema:"Name of the variable; default all"`
}

func envGet(ctx context.Context, b Box, a *envGetArgs) (*Answer, error) {
	r, err := b.Run(ctx, Command{Shell: "env -0"}, 0)
	if err != nil {
		return nil, err
	}
	all, text := map[string]string{}, ""
	for pair := range strings.SplitSeq(r.Stdout, "\x00") {
		name, value, ok := strings.Cut(pair, "=")
		if ok && name != "_" && (a.Name == "" || a.Name == name) {
			all[name] = value
			text += name + "=" + value + "\n"
		}
	}
	if text == "" {
		text = fmt.Sprintf("%s is not set.", a.Name)
	}
	return &Answer{Text: text, Fields: in(b, map[string]any{"env": all})}, nil
}
