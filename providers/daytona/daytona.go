// Package daytona runs sandboxes at Daytona, or at anything that speaks its API, such as another Sandyard: REST for
// their lives, the toolbox's execute and upload for what is inside, and package spool for commands, whose two outputs
// Daytona gives as one and whose ends it does not keep.
//
// Whatever comes from there is bounded and checked, and no text of it reaches a user.
package daytona

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

// DefaultURL is where Daytona's own API is.
const DefaultURL = "https://app.daytona.io/api"

// ImagePrefix begins a template's name that is the name of a container image, and not of a snapshot.
const ImagePrefix = "image:"

const (
	// defaultLife is how long a sandbox lives whose timeout nobody has told yet.
	defaultLife = 25 * time.Hour
	// scriptSeconds is when the backend ends one of our scripts; none waits nearly as long.
	scriptSeconds = 300
	scriptAnswer  = (scriptSeconds + 10) * time.Second
	// scriptPatience is how long a script waits for a command.
	scriptPatience = 45 * time.Second
)

// Config says where and for whom sandboxes run.
type Config struct {
	APIKey   string
	Secret   string // the tenant's whose value the key is; empty = it is the operator's
	URL      string // of the API; empty = Daytona's own
	Target   string // the region of new sandboxes; empty = the account's default
	Snapshot string // of sandboxes that name none, or ImagePrefix and an image; empty = the account's default
	Fleet    string // the installation, in the labels of all its sandboxes
	Logger   *slog.Logger
}

// Provider implements providers.Provider, Pauser, Timer, Referrer and Pinger.
type Provider struct {
	cfg      Config
	url      *url.URL // of the API
	vendor   *remote.API
	outside  *outside
	refs     *remote.Refs
	creating keymutex.Mutex // of sandboxes that are made
	calls    *remote.Calls
	life     *remote.Life[described]
	log      *slog.Logger
}

// New returns a provider. It does not touch the network. Error: Invalid for a configuration that cannot work.
func New(cfg Config) (*Provider, error) {
	switch {
	case cfg.APIKey == "" || !remote.Printable(cfg.APIKey):
		return nil, providers.Invalid.Errorf(
			"DAYTONA_API_KEY is missing or holds characters that no key has: set it to a key of your Daytona account",
		)
	case cfg.Fleet == "":
		return nil, providers.Invalid.Errorf("the provider daytona needs the name of the installation")
	case !remote.Printable(cfg.Target):
		return nil, providers.Invalid.Errorf("DAYTONA_TARGET must be the name of a region, such as us")
	}
	base, err := remote.BaseURL("DAYTONA_API_URL", cmp.Or(cfg.URL, DefaultURL), DefaultURL)
	if err != nil {
		return nil, err
	}
	p := &Provider{
		cfg:     cfg,
		url:     base,
		outside: newOutside(base, cfg.Secret != ""),
		refs:    remote.NewRefs(),
		calls:   remote.NewCalls(),
		log:     cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler)),
	}
	p.life = &remote.Life[described]{
		Vendor: vendorName, Get: p.apiGet, Failed: func(d described) error { return failed(d, "") }, Calls: p.calls,
	}
	p.vendor = &remote.API{
		Transport: p.outside.transport, Base: base, Foreign: errNotDaytona, Secret: cfg.Secret,
		Authorize: p.authorize,
	}
	return p, nil
}

func (p *Provider) authorize(h http.Header) { h.Set("Authorization", "Bearer "+p.cfg.APIKey) }

// Capabilities implements providers.Provider.
func (p *Provider) Capabilities() providers.Capabilities {
	return providers.Capabilities{
		Provider:    "daytona",
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
const Warning = "Checked against Daytona's specification and client and against another Sandyard, " +
	"never against Daytona's live service. A pause ends all processes. " +
	"Snapshots decide CPUs, memory and disk. File operations follow the links that programs make."

// Close implements providers.Provider.
func (p *Provider) Close() error {
	p.calls.CutAll(providers.Unavailable.Errorf("the worker is stopping; try again"))
	p.outside.transport.CloseIdleConnections()
	return nil
}

// complete fills what a spec leaves open, and refuses what no sandbox can be. Its resources stay as they were wished
// for.
func (p *Provider) complete(spec providers.Spec) (providers.Spec, error) {
	if spec.Timeout < 0 {
		return spec, providers.Invalid.Errorf("the sandbox's timeout is negative")
	}
	wished := spec.Resources
	if wished.CPUs < 0 || wished.MemoryMB < 0 || wished.DiskMB < 0 || wished.Pids < 0 {
		return spec, providers.Invalid.Errorf("resources must not be negative")
	}
	spec.Resources = providers.Resources{} // how they go together is for the backend to say
	spec.Image = cmp.Or(spec.Image, p.cfg.Snapshot)
	unnamed := spec.Image == ""
	if unnamed {
		spec.Image = "default" // for the check alone
	}
	spec, err := confine.Complete(spec, providers.StandardResources())
	if unnamed {
		spec.Image = ""
	}
	spec.Resources, spec.Timeout = wished, cmp.Or(spec.Timeout, defaultLife)
	return spec, err
}

// resources are what the API takes of a wish: whole cores and GiB. Only an image's are the sandbox's own to say.
func (w *wish) resources(r providers.Resources) {
	const gib = 1 << 10 // MB
	if !strings.HasPrefix(w.image, ImagePrefix) {
		return
	}
	whole := int64(r.CPUs)
	if float64(whole) < r.CPUs {
		whole++
	}
	w.CPU, w.Memory, w.Disk = whole, (r.MemoryMB+gib-1)/gib, (r.DiskMB+gib-1)/gib
}
