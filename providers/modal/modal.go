// Package modal runs sandboxes at Modal, by Modal's own client: creates, lists and ends of sandboxes, programs in them,
// and package scripted for commands and files, which are made of programs.
//
// Whatever comes from there is bounded and checked, and no text of it reaches a user.
package modal

import (
	"cmp"
	"log/slog"
	"net/http"
	"sync"
	"time"

	vendor "github.com/modal-labs/modal-client/go"

	"sandyard/keymutex"
	"sandyard/providers"
	"sandyard/providers/confine"
	"sandyard/providers/remote"
)

const (
	// DefaultApp is the app at Modal that sandboxes belong to.
	DefaultApp = "sandyard"
	// DefaultImage is what sandboxes are made from that name no image.
	DefaultImage = "python:3.12-slim"
	// MaxLife is the longest life that Modal gives a sandbox.
	MaxLife = 24 * time.Hour
	// ImageIDPrefix begins a template's name that is the id of an image at Modal, and not that of a registry's.
	ImageIDPrefix = "im-"
)

const (
	// scriptLimit is when Modal ends one of our scripts; none waits nearly as long.
	scriptLimit = 5 * time.Minute
	// scriptPatience is how long a script waits for a command.
	scriptPatience = 45 * time.Second
	// maxInline is how much a script may print into an answer.
	maxInline = 4 << 20
	maxOpen   = 1000 // sandboxes whose connections are kept
	maxListed = 100_000
	maxSecret = 8 << 10 // bytes of a token
)

// Config says where and for whom sandboxes run.
type Config struct {
	TokenID     string
	TokenSecret string
	Environment string        // at Modal; empty = the account's default
	App         string        // empty = DefaultApp
	Image       string        // of sandboxes that name none; empty = DefaultImage
	Life        time.Duration // after which Modal ends a sandbox, whatever becomes of us; 0 = MaxLife
	Fleet       string        // the installation, in the tags of all its sandboxes
	Logger      *slog.Logger
	Server      string // URL of another server than Modal's, with its port; empty = Modal's
}

// Provider implements providers.Provider, Referrer and Pinger.
type Provider struct {
	cfg       Config
	client    *vendor.Client
	transport *http.Transport // to ports
	refs      *remote.Refs
	creating  keymutex.Mutex // of sandboxes that are made
	calls     *remote.Calls
	log       *slog.Logger

	mu    sync.Mutex
	app   *vendor.App // nil = it was not asked for yet
	boxes map[string]*vendor.Sandbox
}

// New returns a provider. It does not touch the network. Error: Invalid for a configuration that cannot work.
func New(cfg Config) (*Provider, error) {
	for name, value := range map[string]string{"MODAL_TOKEN_ID": cfg.TokenID, "MODAL_TOKEN_SECRET": cfg.TokenSecret} {
		if value == "" || !remote.Printable(value) {
			return nil, providers.Invalid.Errorf(
				"%s is missing or holds characters that no token has: set it to that of your Modal account", name,
			)
		}
	}
	switch {
	case cfg.Fleet == "":
		return nil, providers.Invalid.Errorf("the provider modal needs the name of the installation")
	case cfg.Life != 0 && (cfg.Life < time.Minute || cfg.Life > MaxLife || cfg.Life%time.Second != 0):
		return nil, providers.Invalid.Errorf("MODAL_LIFE must be whole seconds between 1m and 24h")
	}
	cfg.App, cfg.Image = cmp.Or(cfg.App, DefaultApp), cmp.Or(cfg.Image, DefaultImage)
	cfg.Life = cmp.Or(cfg.Life, MaxLife)
	p := &Provider{
		cfg: cfg, refs: remote.NewRefs(), calls: remote.NewCalls(), boxes: map[string]*vendor.Sandbox{},
		log: cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler)),
	}
	p.transport = newTransport(cfg.Server)
	var err error
	if p.client, err = newClient(cfg); err != nil {
		return nil, providers.Invalid.Errorf(
			"Modal's client does not start: check MODAL_SERVER_URL and the other variables MODAL_*")
	}
	return p, nil
}

// Capabilities implements providers.Provider.
func (p *Provider) Capabilities() providers.Capabilities {
	return providers.Capabilities{
		Provider:    "modal",
		Exec:        providers.Emulated,
		Files:       providers.Emulated,
		Code:        providers.Unsupported,
		FileTools:   providers.Emulated,
		Pause:       providers.Unsupported,
		PauseMemory: providers.Unsupported,
		SplitOutput: providers.Emulated,
		Stdin:       providers.Emulated,
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
const Warning = "Checked with Modal's client against a stand-in, never against Modal's live service. " +
	"Sandboxes cannot be paused. Modal ends every sandbox 24 hours after its start, whatever its timeout. " +
	"File operations follow the links that programs make."

// Close implements providers.Provider.
func (p *Provider) Close() error {
	p.calls.CutAll(providers.Unavailable.Errorf("the worker is stopping; try again"))
	p.transport.CloseIdleConnections()
	p.mu.Lock()
	defer p.mu.Unlock()
	for backend := range p.boxes {
		p.letGo(backend)
	}
	p.client.Close()
	return nil
}

// complete fills what a spec leaves open, and refuses what no sandbox can be. Its resources stay as they were wished
// for.
func (p *Provider) complete(spec providers.Spec) (providers.Spec, error) {
	wished := spec.Resources
	if spec.Timeout < 0 || wished.CPUs < 0 || wished.MemoryMB < 0 || wished.DiskMB < 0 || wished.Pids < 0 {
		return spec, providers.Invalid.Errorf("the sandbox's timeout and resources must not be negative")
	}
	spec.Resources, spec.Image = providers.Resources{}, cmp.Or(spec.Image, p.cfg.Image)
	spec, err := confine.Complete(spec, providers.StandardResources())
	spec.Resources = wished
	return spec, err
}
