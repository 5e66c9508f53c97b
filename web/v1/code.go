package v1

import (
	"context"
	"encoding/json"
	"net/http"
	"reflect"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"sandyard/jobs"
	"sandyard/jobs/kind"
	"sandyard/models"
	"sandyard/providers/codecontext"
	"sandyard/web/middleware"
	"sandyard/web/rest"
	"sandyard/web/workerclient"
)

// CodeBody is the body of a cell.
type CodeBody struct {
	kind.Code
	Submit
}

// ContextList is the code contexts of a sandbox.
type ContextList struct {
	Contexts []codecontext.Context `json:"contexts" doc:"Running contexts, oldest first"`
}

// contextWait is how long the making of a context is waited for where the request does not say.
const contextWait = 30 * time.Second

// ContextBody is the body of a wish for a context.
type ContextBody struct {
	kind.CreateContext
	Submit
}

// AcceptedContext is the answer to one.
type AcceptedContext struct {
	Accepted

	Context string `json:"context" doc:"The context's id, known before the context runs: use it in a cell"`
}

type contextOutput struct {
	Status   int
	Location string `header:"Location" doc:"The job"`
	Replayed string `header:"Idempotent-Replayed" doc:"true if an earlier request with this Idempotency-Key submitted the job"`
	Body     AcceptedContext
}

type deleteContextInput struct {
	WaitParam
	ID      string `path:"id"`
	Context string `path:"context" maxLength:"32" pattern:"^[a-z0-9][a-z0-9_-]*$" patternDescription:"a context's name"`
}

const contextsPath = "/v1/sandboxes/{id}/code/contexts"

func (s *execs) addCode() {
	op := rest.Operation("code", "POST /v1/sandboxes/{id}/code", tagWork,
		"Run a piece of code in an interpreter that keeps its state")
	op.Description = "Variables, imports, functions and the working directory persist for the next cell of the same " +
		"context. The results include the value " +
		"of the last expression in all its formats: text, HTML, image. If the code raises an exception, the job succeeds with an `error`."
	work(s.core, op, func(b *CodeBody) (kind.Args, Submit) { return &b.Code, b.Submit })
	rest.Route(s.api, "list-contexts", "GET "+contextsPath, tagWork,
		"List the code contexts that run in a sandbox", s.listContexts)
	s.addCreateContext()
	write(s.core, rest.Operation("delete-context", "DELETE "+contextsPath+"/{context}", tagWork,
		"End a code context with all its processes; the next cell that names it starts a new one"), s.deleteContext)
}

func (s *execs) addCreateContext() {
	op := rest.Operation("create-context", "POST "+contextsPath, tagWork, "Start a code context")
	op.Description = "Starts a separate interpreter with its own environment and start directory; cells name it by its " +
		"id. The request waits 30 s for the " +
		"end of the start job unless `wait` is set. A cell that names an unknown context starts it."
	op.DefaultStatus = http.StatusCreated
	body := reflect.TypeFor[AcceptedContext]()
	op.Responses = map[string]*huma.Response{
		"201": s.api.Response("The context is ready for cells", "application/json", body),
		"202": s.api.Response("Accepted: the context will be started", "application/json", body),
		"200": s.api.Response(
			"A context of that id and language was already running, an earlier request with this Idempotency-Key started it, "+
				"or the job failed and says why",
			"application/json",
			body,
		),
	}
	rest.Register(s.api, op, s.createContext)
}

func (s *execs) createContext(ctx context.Context, in *workInput[ContextBody]) (*contextOutput, error) {
	wait, err := in.duration(contextWait)
	if err != nil {
		return nil, err
	}
	name := ""
	out, err := s.submitAndWait(
		ctx,
		in.SubmitParams,
		in.Body.Submit,
		wait,
		func(o jobs.Options) (models.Submitted, error) {
			done, err := s.Jobs.Submit(ctx, in.ID, &in.Body.CreateContext, o)
			if err == nil {
				name = in.Body.ContextOf(middleware.Answer(done))
			}
			return done, err
		},
	)
	if err != nil {
		return nil, err
	}
	if out.Status == http.StatusOK && out.Replayed == "" && started(out.Body.Job) {
		out.Status = http.StatusCreated
	}
	return &contextOutput{out.Status, out.Location, out.Replayed, AcceptedContext{out.Body, name}}, nil
}

// started says whether a job has started the context that it was to start.
func started(j Job) bool {
	var made kind.ContextResult
	return j.State == string(models.Succeeded) && json.Unmarshal(j.Result, &made) == nil && !made.Existing
}

func (s *execs) listContexts(ctx context.Context, in *sandboxInput) (*rest.Output[ContextList], error) {
	list, err := workerclient.JSON[[]codecontext.Context](ctx, s.Workers, in.ID, "/contexts", 0)
	if err != nil {
		return nil, err
	}
	return rest.OK(ContextList{append([]codecontext.Context{}, list...)}), nil
}

func (s *execs) deleteContext(ctx context.Context, in *deleteContextInput) (*acceptedOutput, error) {
	return s.submit(ctx, SubmitParams{WaitParam: in.WaitParam}, Submit{}, func(o jobs.Options) (models.Submitted, error) {
		return s.Jobs.Submit(ctx, in.ID, &kind.DeleteContext{Context: in.Context}, o)
	})
}
