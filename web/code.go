package web

import (
	"context"
	"net/http"

	"sandyard/jobs"
	"sandyard/models"
	"sandyard/providers/cells"
)

// CodeBody is the body of a cell.
type CodeBody struct {
	jobs.Code
	Submit
}

// ContextList is the code contexts of a sandbox.
type ContextList struct {
	Contexts []cells.Context `json:"contexts" doc:"Those that run, oldest first"`
}

type deleteContextInput struct {
	WaitParam
	ID      string `path:"id"`
	Context string `path:"context" maxLength:"32" pattern:"^[a-z0-9][a-z0-9_-]*$" patternDescription:"a context's name"`
}

const contextsPath = "/v1/sandboxes/{id}/code/contexts"

func (s *Server) addCode() {
	op := operation("code", http.MethodPost, "/v1/sandboxes/{id}/code", tagWork, "Run a piece of code in an interpreter that keeps its state")
	op.Description = "Variables, imports, functions and the working directory stay for the next cell of the same context. The value of the last " +
		"expression is among the results, in every form it has: text, HTML, a picture. Code that raises is a job that succeeds, with an `error`."
	work(s, op, func(b *CodeBody) (jobs.Args, Submit) { return &b.Code, b.Submit })
	register(s, operation("list-contexts", http.MethodGet, contextsPath, tagWork, "List the code contexts that run in a sandbox"), s.listContexts)
	write(s, operation("delete-context", http.MethodDelete, contextsPath+"/{context}", tagWork,
		"End a code context with all its processes; the next cell that names it starts it anew"), s.deleteContext)
}

func (s *Server) listContexts(ctx context.Context, in *sandboxInput) (*output[ContextList], error) {
	list, err := insideJSON[[]cells.Context](ctx, s, in.ID, "/contexts", 0)
	if err != nil {
		return nil, err
	}
	return &output[ContextList]{ContextList{append([]cells.Context{}, list...)}}, nil
}

func (s *Server) deleteContext(ctx context.Context, in *deleteContextInput) (*acceptedOutput, error) {
	return s.submit(ctx, SubmitParams{WaitParam: in.WaitParam}, Submit{}, func(o jobs.Options) (models.Submitted, error) {
		return s.jobs.Submit(ctx, in.ID, &jobs.DeleteContext{Context: in.Context}, o)
	})
}
