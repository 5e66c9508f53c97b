// Package runloop runs sandboxes at Runloop: REST for the lives of devboxes, their execute, upload and download for
// what is inside, and package scripted for commands and files.
//
// Whatever comes from there is bounded and checked, and no text of it reaches a user.
package runloop

import (
	"cmp"
	"context"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"sandyard/keymutex"
	"sandyard/providers"
	"sandyard/providers/confine"
	"sandyard/providers/remote"
)

// Runloop's own.
const (
	DefaultURL    = "https://api.runloop.ai"
	DefaultTunnel = "https://tunnel.runloop.ai"
)

// MaxLife is the longest life that Runloop gives a devbox.
const MaxLife = 48 * time.Hour

// Prefixes of a template's name at Runloop that is the id of a blueprint or of a disk snapshot.
const (
	BlueprintPrefix = "bpt_"
	SnapshotPrefix  = "snp_"
)

const (
	// scriptAnswer is how long a script may take.
	scriptAnswer = 5 * time.Minute
	// heldSeconds is how long Runloop holds the answer to a call that waits for a command, at most.
	heldSeconds = 25
	// scriptPatience is how long a script waits for a command: one call sees its end.
	scriptPatience = 20 * time.Second
	// maxInline is how much a script may print into an answer: 64 KiB with what surrounds it. Runloop cuts longer ones
	// and does not say where.
	maxInline = 40 << 10
)

// Config says where and for whom sandboxes run.
type Config struct {
	APIKey    string
	Secret    string        // the tenant's whose value the key is; empty = it is the operator's
	URL       string        // of the API; empty = Runloop's own
	Tunnel    string        // URL before whose host a port's name stands; empty = Runloop's own
	Blueprint string        // of sandboxes that name none, or an id; empty = Runloop's own image
	Life      time.Duration // after which Runloop ends a sandbox, whatever becomes of us; 0 = MaxLife
	Fleet     string        // the installation, in the metadata of all its sandboxes
	Logger    *slog.Logger
}

// Provider implements providers.Provider, Pauser, Referrer and Pinger.
type Provider struct {
	cfg       Config
	vendor    *remote.API
	transport *http.Transport
	tunnels   *url.URL
	refs      *remote.Refs
	creating  keymutex.Mutex // of sandboxes that are made
	calls     *remote.Calls
	life      *remote.Life[described]
	log       *slog.Logger

	policies sync.Mutex // held while the policy is looked for
	policy   string     // id of that which permits no traffic; empty = not known
}

// New returns a provider. It does not touch the network. Error: Invalid for a configuration that cannot work.
func New(cfg Config) (*Provider, error) {
	switch {
	case cfg.APIKey == "" || !remote.Printable(cfg.APIKey):
		return nil, providers.Invalid.Errorf(
			"RUNLOOP_API_KEY is missing or holds characters that no key has: set it to a key of your Runloop account",
		)
	case cfg.Fleet == "":
		return nil, providers.Invalid.Errorf("the provider runloop needs the name of the installation")
	case cfg.Life != 0 && (cfg.Life < time.Minute || cfg.Life > MaxLife):
		return nil, providers.Invalid.Errorf("RUNLOOP_LIFE must be between 1m and 48h")
	}
	base, err := remote.BaseURL("RUNLOOP_BASE_URL", cmp.Or(cfg.URL, DefaultURL), DefaultURL)
	if err != nil {
		return nil, err
	}
	tunnels, err := remote.BaseURL("RUNLOOP_TUNNEL_URL", cmp.Or(cfg.Tunnel, DefaultTunnel), DefaultTunnel)
	if err != nil {
		return nil, err
	}
	cfg.Life = cmp.Or(cfg.Life, MaxLife)
	p := &Provider{
		cfg:       cfg,
		tunnels:   tunnels,
		transport: remote.Transport(scriptAnswer),
		refs:      remote.NewRefs(),
		calls:     remote.NewCalls(),
		log:       cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler)),
	}
	p.transport.DialContext = near(p.transport.DialContext)
	p.life = &remote.Life[described]{Vendor: vendorName, Get: p.apiGet, Failed: failed, Calls: p.calls}
	p.vendor = &remote.API{
		Transport: p.transport, Base: base, Foreign: errNotRunloop, Secret: cfg.Secret, Authorize: p.authorize,
	}
	return p, nil
}

type dialer func(ctx context.Context, network, address string) (net.Conn, error)

// near dials names below localhost on this machine, which not every resolver knows.
func near(dial dialer) dialer {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		if host, port, err := net.SplitHostPort(address); err == nil && strings.HasSuffix(host, ".localhost") {
			address = net.JoinHostPort("127.0.0.1", port)
		}
		return dial(ctx, network, address)
	}
}

func (p *Provider) authorize(h http.Header) { h.Set("Authorization", "Bearer "+p.cfg.APIKey) }

// Capabilities implements providers.Provider.
func (p *Provider) Capabilities() providers.Capabilities {
	return providers.Capabilities{
		Provider:    "runloop",
		Exec:        providers.Emulated,
		Files:       providers.Emulated,
		Code:        providers.Unsupported,
		FileTools:   providers.Emulated,
		Pause:       providers.Native,
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
const Warning = "Checked against Runloop's official client and a stand-in, never against Runloop's live service. " +
	"A pause ends all processes. Runloop ends every sandbox 48 hours after its start, whatever its timeout. " +
	"File operations follow the links that programs make."

// Close implements providers.Provider.
func (p *Provider) Close() error {
	p.calls.CutAll(providers.Unavailable.Errorf("the worker is stopping; try again"))
	p.transport.CloseIdleConnections()
	return nil
}

// complete fills what a spec leaves open, and refuses what no sandbox can be. Its resources stay as they were wished
// for.
func (p *Provider) complete(spec providers.Spec) (providers.Spec, error) {
	wished := spec.Resources
	if spec.Timeout < 0 || wished.CPUs < 0 || wished.MemoryMB < 0 || wished.DiskMB < 0 || wished.Pids < 0 {
		return spec, providers.Invalid.Errorf("the sandbox's timeout and resources must not be negative")
	}
	spec.Resources = providers.Resources{} // how they go together is for size to say
	spec.Image = cmp.Or(spec.Image, p.cfg.Blueprint)
	unnamed := spec.Image == ""
	if unnamed {
		spec.Image = "default" // for the check alone
	}
	spec, err := confine.Complete(spec, providers.StandardResources())
	if unnamed {
		spec.Image = ""
	}
	spec.Resources = wished
	return spec, err
}
