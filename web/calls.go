package web

import (
	"github.com/danielgtaylor/huma/v2"

	"sandyard/web/calls"
	"sandyard/web/sandboxserver"
)

// addCalls adds the routes of the contracts that know no jobs. They come before those of E2B, which begin alike.
func (s *Server) addCalls(c Config) {
	all := calls.Config{
		Stack: s.mw, Jobs: c.Jobs, Store: c.Store, Signer: c.Signer,
		Timeout: c.Calls.Timeout, MaxTimeout: c.Calls.MaxTimeout, Patience: c.Calls.Patience,
	}
	if c.E2B != nil {
		all.Address, all.NoInternet = c.E2B.address(), c.E2B.NoInternet
	}
	servers := sandboxserver.New(s.mw, calls.New(all))
	servers.AddRoutes(s.app)
	s.contracts = map[string]*huma.OpenAPI{"sandbox-server": servers.Document(s.version)}
	s.keyless = s.newApp()
	s.keyless.Use(s.mw.Serve)
	if c.Calls.OpenTenant != "" {
		servers.AddOpenRoutes(s.keyless, c.Calls.OpenTenant)
	}
}
