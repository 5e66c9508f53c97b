package jobs

import (
	"sandyard/egress"
	"sandyard/jobs/kind"
)

// OneShot is a wish for one command, or one piece of code, in a sandbox of its own, as requests and schedules write it.
type OneShot struct {
	Template string            `json:"template,omitempty" doc:"The template's name; default python. Or use image"`
	Image    string            `json:"image,omitempty" maxLength:"512" doc:"As in a new sandbox"`
	Provider string            `json:"provider,omitempty" doc:"Default: the server's provider"`
	Labels   map[string]string `json:"labels,omitempty" doc:"Labels of the sandbox"`
	CPUs     float64           `json:"cpus,omitempty" doc:"Cores; default 1 (SANDBOX_CPUS)"`
	MemoryMB int64             `json:"memory_mb,omitempty" doc:"Memory and swap; default 512 (SANDBOX_MEMORY_MB)"`
	DiskMB   int64             `json:"disk_mb,omitempty" doc:"Size of the work directory; default 256"`
	Pids     int64             `json:"pids,omitempty" doc:"Processes and threads; default 256"`
	Network  bool              `json:"network,omitempty" doc:"Allow connections to every public address. Default false: no network, unless the operator sets SANDBOX_NETWORK"`
	Egress   *egress.Policy    `json:"egress,omitempty" doc:"The egress policy of the sandbox"`
	Runtime  string            `json:"runtime,omitempty" maxLength:"64" doc:"OCI runtime, such as runsc"`
	Files    []kind.Write      `json:"files,omitempty" maxItems:"100" doc:"Written before the command starts"`
	Language string            `json:"language,omitempty" enum:"python,javascript,bash" doc:"Run code instead of a command; the result is that of a code cell"`
	Code     string            `json:"code,omitempty" doc:"Code in that language; may be combined with env, cwd, timeout_seconds, max_output_bytes and merge"`
	kind.Exec
}

// RunOnce is the wish with a sandbox that outlives its command.
func (o OneShot) RunOnce() RunOnce {
	command := max(o.TimeoutSeconds, kind.DefaultExecTimeout.Seconds())
	return RunOnce{Files: o.Files, Exec: o.Exec, Code: o.cell(), Sandbox: CreateSandbox{
		Template: o.Template, Image: o.Image, Provider: o.Provider, Labels: o.Labels, CPUs: o.CPUs, MemoryMB: o.MemoryMB,
		DiskMB: o.DiskMB, Pids: o.Pids, Network: o.Network, Egress: o.Egress, Runtime: o.Runtime,
		TimeoutSeconds: min(max(command+600, DefaultTimeout.Seconds()), kind.MaxTimeout.Seconds()),
	}}
}

// cell is the code to run in place of a command; nil = none.
func (o OneShot) cell() *kind.Code {
	if o.Language == "" && o.Code == "" {
		return nil
	}
	return &kind.Code{
		Language:       o.Language,
		Code:           o.Code,
		Env:            o.Env,
		Cwd:            o.Cwd,
		TimeoutSeconds: o.TimeoutSeconds,
		MaxOutputBytes: o.MaxOutputBytes,
		Merge:          o.Merge,
		SecretEnv:      o.SecretEnv,
	}
}

// work is what the sandbox is made for.
func (r *RunOnce) work() (kind.Args, error) {
	e := &r.Exec
	switch {
	case e.Background:
		return nil, kind.Invalid(
			"background",
			"is not supported here, because the sandbox ends with the command; create a sandbox and run it there",
		)
	case r.Code == nil:
		return e, nil
	case e.Command != "" || len(e.Argv) > 0 || e.User != "" || e.HasInput() || e.StdinOpen:
		return nil, kind.Invalid(
			"code",
			"can be combined only with language, env, cwd, timeout_seconds, max_output_bytes and merge; leave out the other "+
				"fields, or send a command",
		)
	}
	return r.Code, nil
}
