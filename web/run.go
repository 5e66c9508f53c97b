package web

import (
	"context"
	"net/http"
	"time"

	"sandyard/egress"
	"sandyard/jobs"
	"sandyard/models"
)

// How long a run waits for its command where the request does not say.
const runWait = 60 * time.Second

// RunBody is the body of a run: what the sandbox is made from, the files to put into it, and the command.
type RunBody struct {
	Template string            `json:"template,omitempty" doc:"A named environment; default python. Or give image"`
	Image    string            `json:"image,omitempty" doc:"A container image that the provider holds already"`
	Provider string            `json:"provider,omitempty" doc:"Default is the server's"`
	Labels   map[string]string `json:"labels,omitempty" doc:"Of the sandbox"`
	CPUs     float64           `json:"cpus,omitempty" doc:"Cores; default 1"`
	MemoryMB int64             `json:"memory_mb,omitempty" doc:"Memory and swap; default 512"`
	DiskMB   int64             `json:"disk_mb,omitempty" doc:"Size of the work directory; default 256"`
	Pids     int64             `json:"pids,omitempty" doc:"Processes and threads; default 256"`
	Network  bool              `json:"network,omitempty" doc:"Every public address may be reached. Default false: no network at all"`
	Egress   *egress.Policy    `json:"egress,omitempty" doc:"What may be reached of the outside"`
	Files    []jobs.Write      `json:"files,omitempty" maxItems:"100" doc:"Written before the command starts"`
	jobs.Exec
	Submit
}

type runInput struct {
	SubmitParams
	Body RunBody
}

func (s *Server) addRun() {
	op := operation("run", http.MethodPost, "/v1/run", tagWork, "Run one command in a sandbox of its own")
	op.Description = "Creates a sandbox, writes the files, runs the command and deletes the sandbox. The answer's job is " +
		"the command's; the request waits 60 s for it unless `wait` says otherwise."
	write(s, op, s.run)
}

func (s *Server) run(ctx context.Context, in *runInput) (*acceptedOutput, error) {
	wait, err := in.duration(runWait)
	if err != nil {
		return nil, err
	}
	return s.submitAndWait(ctx, in.SubmitParams, in.Body.Submit, wait, func(o jobs.Options) (models.Submitted, error) {
		o.Parallel = false // the parts of a run stand in their order
		return s.jobs.Run(ctx, jobs.RunOnce{Sandbox: in.Body.sandbox(), Files: in.Body.Files, Exec: in.Body.Exec}, o)
	})
}

// sandbox must outlive its command.
func (b RunBody) sandbox() jobs.CreateSandbox {
	command := max(b.TimeoutSeconds, jobs.DefaultExecTimeout.Seconds())
	return jobs.CreateSandbox{
		Template: b.Template, Image: b.Image, Provider: b.Provider, Labels: b.Labels, CPUs: b.CPUs, MemoryMB: b.MemoryMB,
		DiskMB: b.DiskMB, Pids: b.Pids, Network: b.Network, Egress: b.Egress,
		TimeoutSeconds: min(max(command+600, jobs.DefaultTimeout.Seconds()), jobs.MaxTimeout.Seconds()),
	}
}
