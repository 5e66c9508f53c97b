// Package middleware is what every route of the API stands on, whichever contract it belongs to: the request and its
// log line, problem documents, API keys, bounds of bodies and of their memory, and waiting for jobs.
package middleware

import (
	"cmp"
	"log/slog"

	"sandyard/jobs/queue"
	"sandyard/jobs/security"
	"sandyard/models"
)

// DefaultMaxBody is how many bytes a request's body may hold where Config does not say.
const DefaultMaxBody = 16 << 20

// Config is what a Stack is made of. All of it stays the caller's.
type Config struct {
	Store    *models.Store
	Waiters  *queue.Waiters
	Security *security.Counter // nil = nobody counts
	MaxBody  int               // bytes; 0 = DefaultMaxBody
	// BodyMemory is how many bytes bodies and large answers may take; 0 = DefaultBodyMemory, or more for a large MaxBody.
	BodyMemory  int
	TenantWaits int // requests of one tenant that wait at once; 0 = DefaultTenantWaits
	// OnQuit has a function called when the server begins to shut down, until stop is called.
	OnQuit func(func()) (stop func() bool)
	Log    *slog.Logger
}

// Stack holds what requests share.
type Stack struct {
	MaxBody int    // bytes of a body
	Waits   *Crowd // requests that wait for a job

	store    *models.Store
	waiters  *queue.Waiters
	keys     *keyCache
	logins   *logins
	budget   *budget
	trail    *trail
	security *security.Counter
	onQuit   func(func()) (stop func() bool)
	log      *slog.Logger
}

// New returns a Stack.
func New(c Config) *Stack {
	most := cmp.Or(max(c.MaxBody, 0), DefaultMaxBody)
	lost := func(err error) { c.Log.Warn("audit log not written, trying again", "error", err) }
	return &Stack{
		MaxBody: most, Waits: NewCrowd("tenant_waits", cmp.Or(c.TenantWaits, DefaultTenantWaits)),
		store: c.Store, waiters: c.Waiters, keys: newKeyCache(c.Store), logins: newLogins(c.Store),
		budget: newBudget(c.BodyMemory, most), onQuit: c.OnQuit, log: c.Log, security: c.Security,
		trail: newTrail(c.Store, lost),
	}
}
