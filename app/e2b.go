package app

import (
	"log/slog"
	"time"

	"sandyard/providers/e2b"
)

// E2B configures the provider e2b.
type E2B struct {
	E2BKey      string        `env:"E2B_API_KEY" doc:"key of the E2B account, or of the other Sandyard, in which the provider e2b makes sandboxes"`
	E2BURL      string        `env:"E2B_API_URL" envDefault:"https://api.e2b.app" doc:"the API of the provider e2b"`
	E2BSandbox  string        `env:"E2B_SANDBOX_URL" doc:"URL at which the provider e2b reaches all its sandboxes, such as the edge of another Sandyard; default each sandbox's own host below E2B_DOMAIN"`
	E2BDomain   string        `env:"E2B_DOMAIN" envDefault:"e2b.app" doc:"domain of the sandboxes of the provider e2b: a port is at {port}-{sandbox}.{domain}"`
	E2BTemplate string        `env:"E2B_TEMPLATE_ID" envDefault:"base" doc:"template at the provider e2b of sandboxes whose template has no name there"`
	E2BTimeout  time.Duration `env:"E2B_TIMEOUT" envDefault:"1h" doc:"the longest timeout that the account at E2B permits; sandboxes that live longer are given it again and again"`
}

// e2b is what the provider e2b is opened with.
func (c Worker) e2b(log *slog.Logger) e2b.Config {
	return e2b.Config{
		APIKey:   c.E2BKey,
		URL:      c.E2BURL,
		DataURL:  c.E2BSandbox,
		Domain:   c.E2BDomain,
		Template: c.E2BTemplate,
		Timeout:  c.E2BTimeout,
		Fleet:    c.Fleet,
		Logger:   log,
	}
}
