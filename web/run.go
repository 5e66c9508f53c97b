package web

import (
	"context"
	"net/http"
	"time"

	"sandyard/jobs"
	"sandyard/models"
)

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

func (s *Server) addRun() {
	op := operation("run", http.MethodPost, "/v1/run", tagWork, "Run one command or one piece of code in a new sandbox")
	op.Description = "Creates a sandbox, writes the files, runs the command or code and deletes the sandbox. The response holds the job " +
		"of the command or code; the request waits 60 s for it unless `wait` is set. If a file cannot be written, " +
		"nothing runs, and the job fails with the error `file_not_written`, which names the file."
	write(s, op, s.run)
}

func (s *Server) run(ctx context.Context, in *runInput) (*acceptedOutput, error) {
	wait, err := in.duration(runWait)
	if err != nil {
		return nil, err
	}
	return s.submitAndWait(ctx, in.SubmitParams, in.Body.Submit, wait, func(o jobs.Options) (models.Submitted, error) {
		o.Parallel = false // the parts of a run stand in their order
		return s.jobs.Run(ctx, in.Body.RunOnce(), o)
	})
}
