package web

import (
	"cmp"
	"time"

	"sandyard/tokens"
	"sandyard/web/e2b"
	"sandyard/web/workerclient"
)

// E2B lets E2B's clients work with Sandyard's sandboxes.
type E2B struct {
	Signer *tokens.Signer
	// Domain is where the edge is reached: a port of a sandbox is at {port}-{id}.{domain}.
	Domain string
	Scheme string // of the URLs of ports; empty = http
	// NoInternet keeps sandboxes from the internet that only ask for all of it, as these clients do unless told otherwise.
	NoInternet bool
	// Patience is how long a request waits for its job; 0 = a little less than the minute after which these clients give
	// up.
	Patience time.Duration
}

func (c *E2B) address() tokens.Address {
	return tokens.Address{Scheme: cmp.Or(c.Scheme, "http"), Domain: c.Domain}
}

// addE2B lets requests for E2B's paths pass that have a key. Where there are to be none it returns nil.
func (s *Server) addE2B(c Config) *e2b.Server {
	if c.E2B == nil {
		return nil
	}
	server := e2b.New(e2b.Config{
		Stack: s.mw, Jobs: c.Jobs, Store: c.Store, Workers: s.workers, Signer: c.E2B.Signer, Address: c.E2B.address(),
		NoInternet: c.E2B.NoInternet, Patience: c.E2B.Patience, Log: c.Log,
	})
	server.AddFilters(s.app)
	return server
}

func newWorkers(c Config, onQuit func(func()) func() bool) *workerclient.Client {
	workers := workerclient.Config{Store: c.Store, Signer: c.Signer, OnQuit: onQuit}
	if c.Inside != nil {
		workers.Wake = c.Inside.Wake
	}
	return workerclient.New(workers)
}
