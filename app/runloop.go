package app

import (
	"log/slog"
	"time"

	"sandyard/providers/runloop"
)

// Runloop configures the provider runloop.
type Runloop struct {
	RunloopKey       string        `env:"RUNLOOP_API_KEY" doc:"key of the Runloop account in which the provider runloop makes sandboxes"`
	RunloopURL       string        `env:"RUNLOOP_BASE_URL" doc:"the API of the provider runloop; default https://api.runloop.ai"`
	RunloopTunnel    string        `env:"RUNLOOP_TUNNEL_URL" doc:"where ports of sandboxes of the provider runloop are reached, below names of their own; default https://tunnel.runloop.ai"`
	RunloopBlueprint string        `env:"RUNLOOP_BLUEPRINT" doc:"blueprint at the provider runloop (its name, bpt_ID or snp_ID) of sandboxes whose template has no name there; default Runloop's own image"`
	RunloopLife      time.Duration `env:"RUNLOOP_LIFE" envDefault:"48h" doc:"after which Runloop ends a sandbox, whatever becomes of this installation; 48h at most"`
}

// runloop is what the provider runloop is opened with.
func (c Worker) runloop(log *slog.Logger) runloop.Config {
	return runloop.Config{
		APIKey: c.RunloopKey, URL: c.RunloopURL, Tunnel: c.RunloopTunnel, Blueprint: c.RunloopBlueprint, Life: c.RunloopLife,
		Fleet: c.Fleet, Logger: log,
	}
}
