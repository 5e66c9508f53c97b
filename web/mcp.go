package web

import (
	"cmp"

	"sandyard/web/calls"
	"sandyard/web/mcp"
)

// addMCP adds the server of agents' tools.
func (s *Server) addMCP(c Config, serve *calls.Calls) {
	tools := mcp.New(mcp.Config{
		Stack: s.mw, Jobs: c.Jobs, Store: c.Store, Calls: serve, Cross: s.bridge.Cross, Output: s.v1.Output, Port: s.v1.Port,
		Limits: s.v1.LimitsInUse, OnQuit: s.onQuit,
		Lifetime: cmp.Or(c.Calls.MaxTimeout, calls.MaxTimeout), Network: !c.NoInternet,
		Version: s.version,
	})
	tools.AddRoutes(s.app)
	s.contracts["mcp"] = tools.Document(s.version)
}
