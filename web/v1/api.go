package v1

import (
	"context"
	"net/http"
	"reflect"

	"github.com/danielgtaylor/huma/v2"
	"github.com/gofiber/fiber/v2"

	"sandyard/jobs"
	"sandyard/jobs/kind"
	"sandyard/web/account"
	"sandyard/web/rest"
)

// Tags group the operations of the reference page.
const (
	tagSandboxes = "sandboxes"
	tagWork      = "work"
	tagJobs      = "jobs"
	tagTemplates = "templates"
	tagSchedules = "schedules"
	tagServer    = account.Tag
)

const introduction = "Runs untrusted code in sandboxes. Every change is a durable job: the answer 202 means that it " +
	"is " +
	"stored and will run; jobs of one sandbox run in the order of submission. Poll the job, wait for it " +
	"with `wait=30s`, or set a `callback_url`. If a program exits 1, its job still succeeds: check " +
	"`result.exit_code`. Errors are problem documents (RFC 9457) with a stable `code`."

func (s *Server) newAPI(app *fiber.App) *rest.API {
	return rest.New(app, rest.Config{
		Stack: s.Stack, Log: s.Log, Title: "Sandyard", Version: s.Version, Description: introduction,
		Tags: []*huma.Tag{
			{Name: tagSandboxes, Description: "Isolated environments that run code"},
			{Name: tagWork, Description: "Commands and files inside a sandbox"},
			{Name: tagJobs, Description: "Durable requests and their outcomes"},
			{Name: tagTemplates, Description: "Named images and settings that sandboxes are created from"},
			{Name: tagSchedules, Description: "Jobs that are submitted at recurring times"},
			{Name: tagServer, Description: "The server's features and health"},
		},
	})
}

// write adds an operation that submits a job, and its entry of the audit log with it: 202 when it is accepted, 200 when
// it has ended already.
func write[I any](s *core, op huma.Operation, handle func(context.Context, *I) (*acceptedOutput, error)) {
	op.DefaultStatus = http.StatusAccepted
	op.Responses = map[string]*huma.Response{
		"202": s.api.Response("Accepted: the job will run", "application/json", reflect.TypeFor[Accepted]()),
		"200": s.api.Response(
			"The job ended within the wait, or an earlier request with this Idempotency-Key submitted it",
			"application/json",
			reflect.TypeFor[Accepted](),
		),
	}
	rest.Answer(s.api, op, handle)
}

// boundArgs makes the check of what POST /v1/jobs takes as args.
func (s *Server) boundArgs() {
	kinds := map[string]reflect.Type{}
	for _, name := range kind.Submittable() {
		if args, err := kind.Decode(name, nil); err == nil { // of one that is not submitted so, DecodeArgs says so
			kinds[name] = reflect.TypeOf(args).Elem()
		}
	}
	s.args = s.api.Args(kinds)
}

// checkAction checks the args of what a schedule is to submit.
func (s *core) checkAction(a jobs.Action) error {
	if a.Job == nil {
		return nil
	}
	return s.args.Check("body.job.args", a.Job.Kind, a.Job.Args)
}
