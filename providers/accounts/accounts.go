// Package accounts makes one provider of several accounts at a vendor: the operator's and those of tenants that bring a
// key of their own. Each sandbox stays in the account that made it, and no account has a say in another's sandboxes.
package accounts

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"sandyard/cache"
	"sandyard/providers"
	"sandyard/providers/remote"
)

const (
	// maxOpen bounds the tenants' accounts that are open. One more lets go of that which was used longest ago; what is
	// under way in its sandboxes goes on, and its connections close when they are idle.
	maxOpen = 256
	// keyLife is how long a key is believed that was read; one that is refused is read again at once.
	keyLife = 30 * time.Second
	maxKeys = 1000
	// What is known of sandboxes: of others the tables are asked.
	maxKnown  = 10_000
	knownLife = 10 * time.Minute
	maxKey    = 4 << 10 // bytes of a key
)

// Account is a provider with one key. It may be a providers.Timer.
type Account interface {
	providers.Provider
	providers.Pauser
	providers.Referrer
	providers.Pinger
}

// Owner is whose key an account has. The zero value is the operator.
type Owner struct {
	Tenant string
	Secret string // the name of the tenant's secret that is the key
}

// Row is what the tables say of a sandbox.
type Row struct {
	Tenant  string
	Live    bool // and to be at this provider
	Decided bool // by Owner's account, here
	Owner   Owner
}

// Book knows whose sandboxes are whose. An error that is no *providers.Error says nothing about the provider.
type Book interface {
	// Decide returns whose account makes a sandbox, and has written that down: every later call answers the same.
	Decide(ctx context.Context, sandboxID string) (Owner, error)
	// Rows returns what is known of sandboxes, live or ended, by their ids.
	Rows(ctx context.Context, ids []string) (map[string]Row, error)
	// Live returns the ids of the live sandboxes of some owners.
	Live(ctx context.Context, of []Owner) ([]string, error)
	// Owners returns the tenants whose accounts may have sandboxes.
	Owners(ctx context.Context) ([]Owner, error)
	// Key returns the key that an owner's secret holds now. Error: KeyRefused for one that cannot be had.
	Key(ctx context.Context, o Owner) (string, error)
}

// Config says what a provider is made of.
type Config struct {
	Name string
	Key  string // the operator's; empty = only tenants with a key of their own have sandboxes made
	// Open returns the vendor's provider for a key, which is the value of a tenant's secret or, without one, the
	// operator's.
	Open   func(key, secret string) (Account, error)
	Book   Book
	Logger *slog.Logger
}

// Provider implements providers.Provider, Pauser, Referrer and Pinger.
type Provider struct {
	cfg      Config
	vendor   Account // answers what no account is needed for
	operator Account // nil = there is none
	log      *slog.Logger

	opening sync.Mutex
	opened  *cache.Cache[[sha256.Size]byte, Account] // by the hash of key and secret's name
	current *cache.Cache[Owner, Account]
	known   *cache.Cache[string, Owner]  // by the sandbox's id
	refs    *cache.Cache[string, string] // vendors' ids of sandboxes that no account was told yet

	mu     sync.Mutex
	listed map[string][]Owner // who has something of a sandbox that is none of theirs any more, by the last list
	failed map[Owner]failure
}

var _ Account = (*Provider)(nil)

// noKey is sent where only an answer is asked for.
const noKey = "none"

// New returns a provider, which is a Timer if accounts are. It does not touch the network. Error: Invalid for a
// configuration that cannot work.
func New(cfg Config) (Account, error) {
	vendor, err := cfg.Open(cmp.Or(cfg.Key, noKey), "")
	if err != nil {
		return nil, err
	}
	p := &Provider{
		cfg: cfg, vendor: vendor, log: cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler)),
		opened:  cache.New[[sha256.Size]byte, Account](maxOpen, 0),
		current: cache.New[Owner, Account](maxKeys, keyLife),
		known:   cache.New[string, Owner](maxKnown, knownLife),
		refs:    cache.New[string, string](maxKnown, 0),
		listed:  map[string][]Owner{}, failed: map[Owner]failure{},
	}
	if cfg.Key != "" {
		p.operator = vendor
	} else {
		p.log.Warn("no key of the operator's, only tenants with a key of their own have sandboxes made", "provider", cfg.Name)
	}
	if _, ok := vendor.(providers.Timer); ok {
		return timed{p}, nil
	}
	return p, nil
}

// Capabilities implements providers.Provider.
func (p *Provider) Capabilities() providers.Capabilities { return p.vendor.Capabilities() }

// account opens an owner's account; anew reads its key again.
func (p *Provider) account(ctx context.Context, o Owner, anew bool) (Account, error) {
	if o == (Owner{}) {
		if p.operator == nil {
			return nil, providers.Refused.Errorf("this server has no key of its own for %s; ask your operator to set "+
				"provider_keys of your tenant to a secret with a key, or use another provider", p.cfg.Name)
		}
		return p.operator, nil
	}
	if known := p.current.Get(o); known != nil && !anew {
		return known.Value(), nil
	}
	key, err := p.cfg.Book.Key(ctx, o)
	if err != nil {
		return nil, err
	}
	if key == "" || len(key) > maxKey || !remote.Printable(key) {
		return nil, providers.KeyRefused.Errorf("the secret %q holds no key of %s: one has visible ASCII characters "+
			"alone, no space and no line break; write it again with PUT /v1/secrets/%s", o.Secret, p.cfg.Name, o.Secret)
	}
	p.opening.Lock()
	defer p.opening.Unlock()
	hash := sha256.Sum256([]byte(o.Secret + "\x00" + key))
	if known := p.opened.Get(hash); known != nil {
		p.current.Set(o, known.Value(), cache.Life)
		return known.Value(), nil
	}
	a, err := p.cfg.Open(key, o.Secret)
	if err != nil {
		return nil, err
	}
	p.opened.Set(hash, a, cache.Life)
	p.current.Set(o, a, cache.Life)
	return a, nil
}

// with does something in an owner's account. A key that is refused is read again: it may have been replaced meanwhile.
func (p *Provider) with(ctx context.Context, o Owner, do func(Account) error) error {
	a, err := p.account(ctx, o, false)
	if err != nil {
		return err
	}
	err = do(a)
	if o == (Owner{}) || !remote.IsClass(err, providers.KeyRefused) {
		return err
	}
	again, readErr := p.account(ctx, o, true)
	if readErr != nil || again == a {
		return err
	}
	return do(again)
}

// owner returns whose account a sandbox is in; false = nobody has decided that.
func (p *Provider) owner(ctx context.Context, id string) (Owner, bool, error) {
	if known := p.known.Get(id); known != nil {
		return known.Value(), true, nil
	}
	rows, err := p.cfg.Book.Rows(ctx, []string{id})
	if err != nil || !rows[id].Decided {
		return Owner{}, false, err
	}
	p.known.Set(id, rows[id].Owner, cache.Life)
	return rows[id].Owner, true, nil
}

// in does something in the account of a sandbox. What nobody has decided was made by an older version, with the
// operator's key, or not at all: where there is no such key, nobody can say.
func (p *Provider) in(ctx context.Context, id string, do func(Account) error) error {
	o, decided, err := p.owner(ctx, id)
	if err != nil {
		return err
	}
	if !decided {
		o = Owner{}
	}
	return p.with(ctx, o, func(a Account) error {
		p.tell(a, id)
		return do(a)
	})
}

// tell passes on what the sandbox's row says of the vendor's id.
func (p *Provider) tell(a Account, id string) {
	if ref := p.refs.Get(id); ref != nil {
		p.refs.Delete(id)
		a.Remember(id, ref.Value())
	}
}

// Create implements providers.Provider. Whose account makes the sandbox is decided before the first call.
func (p *Provider) Create(ctx context.Context, spec providers.Spec) (made providers.Instance, err error) {
	o, err := p.cfg.Book.Decide(ctx, spec.ID)
	if err != nil {
		return made, err
	}
	p.known.Set(spec.ID, o, cache.Life)
	err = p.with(ctx, o, func(a Account) (err error) {
		made, err = a.Create(ctx, spec)
		return err
	})
	return made, err
}

// Open implements providers.Provider.
func (p *Provider) Open(ctx context.Context, id string) (box providers.Sandbox, err error) {
	err = p.in(ctx, id, func(a Account) (err error) {
		box, err = a.Open(ctx, id)
		return err
	})
	return box, err
}

// Delete implements providers.Provider: in the sandbox's own account, and in those that listed what is left of it.
func (p *Provider) Delete(ctx context.Context, id string) error {
	own, decided, err := p.owner(ctx, id)
	if err == nil && !decided && p.operator == nil {
		own, decided, err = p.settle(ctx, id)
	}
	if err != nil {
		return err
	}
	p.mu.Lock()
	all := slices.Clone(p.listed[id])
	p.mu.Unlock()
	if (decided || p.operator != nil) && !slices.Contains(all, own) {
		all = append(all, own)
	}
	var errs []error
	for _, o := range all {
		errs = append(errs, p.with(ctx, o, func(a Account) error {
			if o == own {
				p.tell(a, id)
			}
			return a.Delete(ctx, id)
		}))
	}
	return errors.Join(errs...)
}

// settle decides whose account a sandbox is deleted in that nobody has begun to make, where there is no operator's. One
// that is none of this provider's any more is in the accounts alone that list it.
func (p *Provider) settle(ctx context.Context, id string) (Owner, bool, error) {
	o, err := p.cfg.Book.Decide(ctx, id)
	if errors.Is(err, providers.ErrNotFound) {
		return Owner{}, false, nil
	}
	return o, err == nil, err
}

// Pause implements providers.Pauser.
func (p *Provider) Pause(ctx context.Context, id string) error {
	return p.in(ctx, id, func(a Account) error { return a.Pause(ctx, id) })
}

// Resume implements providers.Pauser.
func (p *Provider) Resume(ctx context.Context, id string) error {
	return p.in(ctx, id, func(a Account) error { return a.Resume(ctx, id) })
}

// timed is a provider of accounts that are Timers.
type timed struct{ *Provider }

// SetTimeout implements providers.Timer.
func (p timed) SetTimeout(ctx context.Context, id string, left time.Duration) error {
	return p.in(ctx, id, func(a Account) error {
		timer, ok := a.(providers.Timer)
		if !ok {
			return providers.NotSupported.Errorf("the provider %s does not change timeouts", p.cfg.Name)
		}
		return timer.SetTimeout(ctx, id, left)
	})
}

// Remember implements providers.Referrer.
func (p *Provider) Remember(id, ref string) { p.refs.Set(id, ref, cache.Life) }

// Ping implements providers.Pinger with the operator's key. Without one, any answer will do: a tenant's key that is
// refused must not stop the provider for others.
func (p *Provider) Ping(ctx context.Context) error {
	err := p.vendor.Ping(ctx)
	if p.operator == nil && remote.IsClass(err, providers.Refused) {
		return nil
	}
	return err
}

// Close implements providers.Provider.
func (p *Provider) Close() error {
	errs := []error{p.vendor.Close()}
	for _, a := range p.opened.Items() {
		errs = append(errs, a.Value().Close())
	}
	return errors.Join(errs...)
}
