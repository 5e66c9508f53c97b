package v1

import (
	"context"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"sandyard/jobs"
	"sandyard/jobs/kind"
	"sandyard/models"
	"sandyard/web/middleware"
	"sandyard/web/rest"
)

// ExecBody is the body of an exec.
type ExecBody struct {
	kind.Exec
	Submit
}

// workInput is a write on one sandbox whose body is a B.
type workInput[B any] struct {
	SubmitParams
	ID   string `path:"id"`
	Body B
}

// work adds an operation that submits the job whose arguments stand in its body.
func work[B any](s *core, op huma.Operation, parts func(*B) (kind.Args, Submit)) {
	write(s, op, func(ctx context.Context, in *workInput[B]) (*acceptedOutput, error) {
		args, fields := parts(&in.Body)
		return s.submit(ctx, in.SubmitParams, fields, func(o jobs.Options) (models.Submitted, error) {
			return s.Jobs.Submit(ctx, in.ID, args, o)
		})
	})
}

// ProcessParam names a process of a sandbox.
type ProcessParam struct {
	ID  string `path:"id"`
	Pid int    `path:"pid" minimum:"2" maximum:"4194304" doc:"Inside the sandbox, as in the list of processes"`
}

type signalProcessInput struct {
	SubmitParams
	ProcessParam
	Body ProcessSignalBody
}

// ProcessSignalBody is the body of a signal to a process.
type ProcessSignalBody struct {
	Signal string `json:"signal" doc:"Such as SIGINT, SIGTERM or SIGKILL; the prefix SIG is optional"`
	Start  int64  `json:"start,omitempty" minimum:"0" doc:"The process's start in the list: another process with this pid is then left alone"`
	Submit
}

func (s *execs) addProcesses() {
	const path = "/v1/sandboxes/{id}/processes"
	write(s.core, rest.Operation("list-processes", "POST "+path, tagWork, "List the processes of a sandbox"),
		s.change(func() kind.Args { return &kind.ListProcesses{} }))
	write(s.core, rest.Operation("signal-process", "POST "+path+"/{pid}/signal", tagWork, "Send a signal to one process"),
		func(ctx context.Context, in *signalProcessInput) (*acceptedOutput, error) {
			args := &kind.SignalProcess{Pid: in.Pid, Start: in.Body.Start, Signal: in.Body.Signal}
			return s.submit(ctx, in.SubmitParams, in.Body.Submit, func(o jobs.Options) (models.Submitted, error) {
				return s.Jobs.Submit(ctx, in.ID, args, o)
			})
		})
}

func (s *execs) addExec() {
	work(s.core, rest.Operation("exec", "POST /v1/sandboxes/{id}/exec", tagWork, "Run a command"),
		func(b *ExecBody) (kind.Args, Submit) { return &b.Exec, b.Submit })
}

// How long a run waits for its command where the request does not say.
const runWait = 60 * time.Second

// RunBody is the body of a run: what the sandbox is made from, the files to put into it, and the command or code.
type RunBody struct {
	jobs.OneShot
	Submit
}

type runInput struct {
	SubmitParams
	Body RunBody
}

func (s *execs) addRun() {
	op := rest.Operation("run", "POST /v1/run", tagWork, "Run one command or one piece of code in a new sandbox")
	op.Description = "Creates a sandbox, writes the files, runs the command or code and deletes the sandbox. The " +
		"response holds the job " +
		"of the command or code; the request waits 60 s for it unless `wait` is set. If a file cannot be written, " +
		"nothing runs, and the job fails with the error `file_not_written`, which names the file."
	write(s.core, op, s.run)
}

func (s *execs) run(ctx context.Context, in *runInput) (*acceptedOutput, error) {
	wait, err := in.duration(runWait)
	if err != nil {
		return nil, err
	}
	return s.submitAndWait(ctx, in.SubmitParams, in.Body.Submit, wait, func(o jobs.Options) (models.Submitted, error) {
		o.Parallel = false // the parts of a run stand in their order
		return s.Jobs.Run(ctx, in.Body.RunOnce(), o)
	})
}

// EnvBody is the body of a change of the variables for later commands.
type EnvBody struct {
	Env map[string]*string `json:"env" doc:"Variables for later commands; null removes one"`
	Submit
}

// KeptEnv is the document of the variables for later commands.
type KeptEnv struct {
	Env map[string]string `json:"env" doc:"Variables for later commands, without those that the sandbox was created with"`
}

func (s *execs) addEnv() {
	const path = "/v1/sandboxes/{id}/env"
	const holds = " They hold for commands and code contexts that are submitted after it, in any shell, until the " +
		"sandbox ends. The env of a command comes first."
	patch := rest.Operation("change-env", "PATCH "+path, tagWork,
		"Set or remove environment variables for later commands")
	patch.Description = "Changes the named variables; the others stay." + holds
	work(s.core, patch, func(b *EnvBody) (kind.Args, Submit) { return &kind.SetEnv{Env: b.Env}, b.Submit })
	put := rest.Operation("set-env", "PUT "+path, tagWork, "Replace the environment variables for later commands")
	put.Description = "Sets these variables and removes all others that were set so." + holds
	work(s.core, put, func(b *EnvBody) (kind.Args, Submit) { return &kind.SetEnv{Env: b.Env, Replace: true}, b.Submit })
	rest.Route(s.api, "get-env", "GET "+path, tagWork, "Get the environment variables for later commands", s.getEnv)
}

func (s *execs) getEnv(ctx context.Context, in *sandboxInput) (*rest.Output[KeptEnv], error) {
	box, err := s.Store.Sandbox(ctx, middleware.RequestOf(ctx).Tenant, in.ID)
	if err != nil {
		return nil, err
	}
	env, err := s.Store.Env(ctx, box.ID)
	return rest.OK(KeptEnv{env}), err
}
