package web

import (
	"github.com/danielgtaylor/huma/v2"

	"sandyard/web/agentapi"
	"sandyard/web/calls"
	"sandyard/web/daytona"
	"sandyard/web/sandboxserver"
)

// addCalls adds the routes of the contracts that know no jobs. They come before those of E2B, which begin alike.
func (s *Server) addCalls(c Config) {
	serve := calls.New(calls.Config{
		Stack: s.mw, Jobs: c.Jobs, Store: c.Store, Signer: c.Signer, Address: c.Address, NoInternet: c.NoInternet,
		Timeout: c.Calls.Timeout, MaxTimeout: c.Calls.MaxTimeout, Patience: c.Calls.Patience,
	})
	servers := sandboxserver.New(s.mw, serve)
	servers.AddRoutes(s.app)
	agents := agentapi.New(
		agentapi.Config{Stack: s.mw, Calls: serve, MCPPort: c.Calls.MCPPort, VSCodePort: c.Calls.VSCodePort},
	)
	agents.AddRoutes(s.app)
	s.contracts = map[string]*huma.OpenAPI{
		"sandbox-server": servers.Document(s.version),
		"agent-api":      agents.Document(s.version),
	}
	theirs := daytona.New(daytona.Config{
		Stack: s.mw, Calls: serve, Store: c.Store, Cross: s.bridge.Cross, Inside: c.Inside.Inside,
	})
	theirs.AddRoutes(s.app)
	s.addMCP(c, serve)
	s.keyless = s.newApp()
	s.keyless.Use(s.mw.Serve)
	if c.Calls.OpenTenant != "" {
		servers.AddOpenRoutes(s.keyless, c.Calls.OpenTenant)
	}
}
