package web

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"sandyard/jobs"
	"sandyard/models"
)

// ExecBody is the body of an exec.
type ExecBody struct {
	jobs.Exec
	Submit
}

// workInput is a write on one sandbox whose body is a B.
type workInput[B any] struct {
	SubmitParams
	ID   string `path:"id"`
	Body B
}

// work adds an operation that submits the job whose arguments stand in its body.
func work[B any](s *Server, op huma.Operation, parts func(*B) (jobs.Args, Submit)) {
	write(s, op, func(ctx context.Context, in *workInput[B]) (*acceptedOutput, error) {
		args, fields := parts(&in.Body)
		return s.submit(ctx, in.SubmitParams, fields, func(o jobs.Options) (models.Submitted, error) {
			return s.jobs.Submit(ctx, in.ID, args, o)
		})
	})
}

func (s *Server) addExec() {
	work(s, operation("exec", http.MethodPost, "/v1/sandboxes/{id}/exec", tagWork, "Run a command"),
		func(b *ExecBody) (jobs.Args, Submit) { return &b.Exec, b.Submit })
}
