package app

import (
	"cmp"
	"log/slog"

	"sandyard/providers/daytona"
)

// Daytona configures the provider daytona.
type Daytona struct {
	DaytonaKey      string `env:"DAYTONA_API_KEY" doc:"key of the Daytona account, or of the other Sandyard, in which the provider daytona makes sandboxes"`
	DaytonaURL      string `env:"DAYTONA_API_URL" doc:"the API of the provider daytona, such as http://HOST/daytona/api of another Sandyard; default https://app.daytona.io/api"`
	DaytonaServer   string `env:"DAYTONA_SERVER_URL" doc:"older name of DAYTONA_API_URL, which counts where both are set"`
	DaytonaTarget   string `env:"DAYTONA_TARGET" doc:"region of the sandboxes of the provider daytona; default the account's"`
	DaytonaSnapshot string `env:"DAYTONA_SNAPSHOT" doc:"snapshot at the provider daytona, or image:NAME, of sandboxes whose template has no name there; default the account's"`
}

// daytona is what the provider daytona is opened with.
func (c Worker) daytona(log *slog.Logger) daytona.Config {
	return daytona.Config{
		APIKey: c.DaytonaKey, URL: cmp.Or(c.DaytonaURL, c.DaytonaServer), Target: c.DaytonaTarget,
		Snapshot: c.DaytonaSnapshot, Fleet: c.Fleet, Logger: log,
	}
}
