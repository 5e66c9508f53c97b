// Package v1 is the API below /v1 with its OpenAPI document, and the health checks. A request is authenticated, checked
// and turned into a durable job by package jobs; the answer says how the job stands.
package v1

import (
	"context"
	"log/slog"

	"github.com/danielgtaylor/huma/v2"
	"github.com/gofiber/fiber/v2"

	"sandyard/jobs"
	"sandyard/jobs/queue"
	"sandyard/jobs/secrets"
	"sandyard/models"
	"sandyard/providers"
	"sandyard/tokens"
	"sandyard/web/account"
	"sandyard/web/bridge"
	"sandyard/web/middleware"
	"sandyard/web/rest"
	"sandyard/web/workerclient"
)

// Config is what a Server stands on. All of it stays the caller's.
type Config struct {
	Stack        *middleware.Stack
	Bridge       *bridge.Bridge
	Workers      *workerclient.Client
	Store        *models.Store
	Jobs         *jobs.Client
	Secrets      *secrets.Keeper // nil = none can be written
	Waiters      *queue.Waiters
	Queue        *queue.Queue
	Capabilities []providers.Capabilities
	Inside       Inside         // the way into sandboxes
	Signer       *tokens.Signer // makes the tokens of ports
	Address      tokens.Address // where ports of sandboxes are reached; empty = they have no URLs
	Version      string
	// OnQuit has a function called when the server begins to shut down, until stop is called.
	OnQuit func(func()) (stop func() bool)
	Log    *slog.Logger
}

// Server holds the routes.
type Server struct {
	*core
	account *account.Server
}

// core is what all routes stand on. A type for each subject embeds it.
type core struct {
	Config

	app  fiber.Router
	api  *rest.API
	args *rest.Args // of each kind of job
}

// New returns a server.
func New(c Config) *Server {
	return &Server{
		core: &core{Config: c},
		account: account.New(account.Config{
			Stack: c.Stack, Store: c.Store, Jobs: c.Jobs, Secrets: c.Secrets, Queue: c.Queue,
		}),
	}
}

// AddRoutes adds the routes.
func (s *Server) AddRoutes(app *fiber.App) {
	s.app = app
	inside, execs, templates := &inside{s.core}, &execs{s.core}, &templates{s.core}
	inside.addRawFiles()
	inside.addTerminal()
	app.Use("/v1", s.guard, s.Stack.TakeBody, s.Stack.CheckBody)
	s.api = s.newAPI(app)
	(&health{core: s.core}).addHealth()
	(&sandboxes{s.core}).addSandboxes()
	execs.addExec()
	execs.addBackground()
	execs.addProcesses()
	execs.addEnv()
	execs.addCode()
	s.addFiles()
	(&ports{s.core}).addPorts()
	inside.describeRawFiles()
	inside.addTickets()
	(&jobRoutes{s.core}).addJobs()
	(&events{s.core}).addEvents()
	execs.addRun()
	(&catalog{s.core}).addCatalog()
	s.account.AddRoutes(s.api)
	templates.addTemplates()
	(&nodes{s.core}).addNodes()
	(&schedules{s.core}).addSchedules()
	(&usages{s.core}).addUsage()
	templates.addBuilds()
	s.api.Bound()
	s.boundArgs()
}

// Document describes the API. AddRoutes comes before it.
func (s *Server) Document() *huma.OpenAPI {
	api := s.api.OpenAPI()
	for _, unused := range []string{"ErrorModel", "ErrorDetail"} { // huma's own, in whose place Problem stands
		delete(api.Components.Schemas.Map(), unused)
	}
	refineSchemas(api)
	return api
}

// LimitsInUse are the limits that hold for a request.
func (s *Server) LimitsInUse(ctx context.Context) ([]models.LimitUse, error) {
	return s.account.LimitsInUse(ctx)
}
