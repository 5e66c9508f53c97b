// Package e2b runs sandboxes at E2B, or at anything that speaks its API, such as another Sandyard: REST for their
// lives, envd's protocol for what is inside, and package spool for commands, which E2B forgets with the connection that
// waits for them.
//
// Whatever comes from there is bounded and checked, and no text of it reaches a user.
package e2b

import (
	"cmp"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"time"

	"sandyard/keymutex"
	"sandyard/providers"
	"sandyard/providers/confine"
	"sandyard/providers/remote"
)

// Where E2B itself is.
const (
	DefaultURL    = "https://api.e2b.app"
	DefaultDomain = "e2b.app"
)

// DefaultTimeout is the longest life that every account may give a sandbox.
const DefaultTimeout = time.Hour

// DefaultTemplate is one that every account has.
const DefaultTemplate = "base"

const (
	answerPatience = 2 * time.Minute // from the end of a request to the first bytes of its answer
)

// Config says where and for whom sandboxes run.
type Config struct {
	APIKey   string
	Secret   string        // the tenant's whose value the key is; empty = it is the operator's
	URL      string        // of the API; empty = E2B's own
	DataURL  string        // where all sandboxes are reached; empty = each at its own host below Domain
	Domain   string        // that hosts of sandboxes end with; empty = E2B's own
	Template string        // of sandboxes that name none; empty = DefaultTemplate
	Timeout  time.Duration // the longest that the backend is asked to keep a sandbox at once; 0 = DefaultTimeout
	Fleet    string        // the installation, in the metadata of all its sandboxes
	Logger   *slog.Logger
}

// Provider implements providers.Provider, Pauser, Timer, Referrer and Pinger.
type Provider struct {
	cfg       Config
	api       *url.URL
	data      *url.URL // nil = hosts below the domain
	transport *http.Transport
	vendor    *remote.API
	refs      *remote.Refs
	creating  keymutex.Mutex // of sandboxes that are made
	calls     *remote.Calls
	log       *slog.Logger
}

// New returns a provider. It does not touch the network. Error: Invalid for a configuration that cannot work.
func New(cfg Config) (*Provider, error) {
	if cfg.APIKey == "" || !remote.Printable(cfg.APIKey) {
		return nil, providers.Invalid.Errorf(
			"E2B_API_KEY is missing or holds characters that no key has: set it to a key of your E2B account",
		)
	}
	if cfg.Fleet == "" {
		return nil, providers.Invalid.Errorf("the provider e2b needs a fleet name; set SANDYARD_FLEET")
	}
	cfg.URL, cfg.Domain = cmp.Or(cfg.URL, DefaultURL), cmp.Or(cfg.Domain, DefaultDomain)
	cfg.Timeout, cfg.Template = cmp.Or(cfg.Timeout, DefaultTimeout), cmp.Or(cfg.Template, DefaultTemplate)
	if cfg.Timeout < time.Second {
		return nil, providers.Invalid.Errorf("E2B_TIMEOUT is %v, it must be at least 1s", cfg.Timeout)
	}
	if cfg.Secret != "" { // E2B_TIMEOUT is of the operator's account
		cfg.Timeout = min(cfg.Timeout, DefaultTimeout)
	}
	if !validHost(cfg.Domain) {
		return nil, providers.Invalid.Errorf(
			"E2B_DOMAIN is %.100q, it must be a domain such as %s",
			cfg.Domain,
			DefaultDomain,
		)
	}
	p := &Provider{
		cfg:   cfg,
		refs:  remote.NewRefs(),
		calls: remote.NewCalls(),
		log:   cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler)),
	}
	var err error
	if p.api, err = remote.BaseURL("E2B_API_URL", cfg.URL, DefaultURL); err != nil {
		return nil, err
	}
	if cfg.DataURL != "" {
		if p.data, err = remote.BaseURL("E2B_SANDBOX_URL", cfg.DataURL, DefaultURL); err != nil {
			return nil, err
		}
	}
	p.transport = remote.Transport(answerPatience)
	p.vendor = &remote.API{
		Transport: p.transport, Base: p.api, Foreign: errNotE2B, Secret: cfg.Secret,
		Authorize: func(h http.Header) { h.Set("X-Api-Key", cfg.APIKey) },
	}
	return p, nil
}

// validHost says whether text is a domain, with or without a port.
func validHost(text string) bool {
	const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-:"
	return text != "" && len(text) <= 253 && strings.Trim(text, letters) == ""
}

// Capabilities implements providers.Provider.
func (p *Provider) Capabilities() providers.Capabilities {
	return providers.Capabilities{
		Provider:    "e2b",
		Exec:        providers.Emulated,
		Files:       providers.Native,
		Code:        providers.Unsupported,
		FileTools:   providers.Emulated,
		Pause:       providers.Native,
		PauseMemory: providers.Native,
		SplitOutput: providers.Native,
		Stdin:       providers.Native,
		Network:     providers.Native,
		Background:  providers.Unsupported,
		Processes:   providers.Unsupported,
		Terminals:   providers.Unsupported,
		Watch:       providers.Unsupported,
		Ports:       providers.Native,
		Images:      providers.Unsupported,
		Builds:      providers.Unsupported,
		Confined:    providers.Unsupported,
		Warning:     Warning,
	}
}

// Warning is what whoever uses the provider should know.
const Warning = "Checked against E2B's specification and clients and against another Sandyard, " +
	"never against E2B's live service. " +
	"Templates decide CPUs, memory and disk. File operations follow the links that programs make."

// Close implements providers.Provider.
func (p *Provider) Close() error {
	p.calls.CutAll(providers.Unavailable.Errorf("the worker is stopping; try again"))
	p.transport.CloseIdleConnections()
	return nil
}

// complete fills what a spec leaves open, and refuses what no sandbox can be.
func (p *Provider) complete(spec providers.Spec) (providers.Spec, error) {
	spec.Image = cmp.Or(spec.Image, p.cfg.Template)
	if spec.Timeout < 0 {
		return spec, providers.Invalid.Errorf("the sandbox's timeout is negative")
	}
	spec.Timeout = p.atMost(cmp.Or(spec.Timeout, p.cfg.Timeout))
	return confine.Complete(spec, providers.StandardResources())
}

// atMost is as much of a timeout as the backend may be asked for at once. The rest is asked for later, by SetTimeout.
func (p *Provider) atMost(timeout time.Duration) time.Duration { return min(timeout, p.cfg.Timeout) }
