// Package account is the part of the API below /v1 that says who may do what, and who did it: logins, API keys, users,
// tenants, secrets, limits, the audit log and security events.
package account

import (
	"cmp"

	"sandyard/jobs"
	"sandyard/jobs/queue"
	"sandyard/jobs/secrets"
	"sandyard/models"
	"sandyard/web/middleware"
	"sandyard/web/rest"
)

// Tag groups the operations on the reference page.
const Tag = "server"

// Config is what a Server stands on. All of it stays the caller's.
type Config struct {
	Stack   *middleware.Stack
	Store   *models.Store
	Jobs    *jobs.Client
	Secrets *secrets.Keeper // nil = none can be written
	Queue   *queue.Queue
}

// Server holds the routes.
type Server struct {
	mw      *middleware.Stack
	store   *models.Store
	jobs    *jobs.Client
	secrets *secrets.Keeper
	queue   *queue.Queue
	api     *rest.API
}

// New returns a server.
func New(c Config) *Server {
	return &Server{
		mw: c.Stack, store: c.Store, jobs: c.Jobs, secrets: cmp.Or(c.Secrets, secrets.New(c.Store, nil)), queue: c.Queue,
	}
}

// AddRoutes adds the routes to an API.
func (s *Server) AddRoutes(api *rest.API) {
	s.api = api
	s.addLogin()
	s.addKeys()
	s.addUsers()
	s.addTenants()
	s.addSecrets(s.secrets)
	s.addLimits()
	s.addAudit()
	s.addSecurityEvents()
}
