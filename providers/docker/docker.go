// Package docker runs sandboxes as containers of one Docker engine. It is the only package that knows Docker.
//
// Every container has the guest as its first process, reached over the container's own standard input and output, so
// a sandbox needs no network, no port and no mounted socket. The guest is worked by package envd; this package makes,
// finds, watches and removes the containers around it.
package docker

import (
	"cmp"
	"context"
	"io/fs"
	"log/slog"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/docker/docker/client"

	"sandyard/keymutex"
	"sandyard/providers"
	"sandyard/providers/confine"
	"sandyard/providers/docker/engineerr"
	"sandyard/providers/docker/imagebuild"
	"sandyard/providers/docker/pool"
	"sandyard/providers/guestconn"
)

// Config says which engine to use and how its containers are made.
type Config struct {
	// Host is the engine's address, such as unix:///var/run/docker.sock. Empty = DOCKER_HOST's default.
	Host string
	// Fleet names the installation. Only containers that carry it are ever listed, adopted or removed.
	Fleet string
	// Guest holds the static guest binary under the name "guest", and its supervisor as "sup" where there is one.
	Guest fs.FS
	// Runtime is the engine's OCI runtime of sandboxes that name none, such as runsc. Empty = the engine's default.
	Runtime string
	// StartConcurrency limits starts in flight; more than the engine has cores only queues inside it. 0 = our cores.
	StartConcurrency int
	// Unsafe lets the provider use an engine that has known escapes.
	Unsafe bool
	// Pull lets Ensure fetch a missing image. Nothing else ever pulls.
	Pull bool
	// Defaults fill what a Spec leaves at zero.
	Defaults providers.Resources
	// Pool lets containers wait for sandboxes.
	Pool pool.Config
	// DiskReserve is how much of the engine's disk builds leave free, in bytes; 0 = they do not look.
	DiskReserve int64
	// GuestGrace is how long no container may have used the guest of another release before it is removed. 0 = an hour.
	GuestGrace time.Duration
	// Outbound makes the connections that sandboxes ask for. Nil = they get none.
	Outbound providers.Outbound
	Logger   *slog.Logger
}

// Provider is a Docker engine as a sandbox provider. It implements providers.Provider and providers.Pauser.
type Provider struct {
	*engine
	guest   *guestVolume
	starts  chan struct{}  // one token per start in flight
	locks   keymutex.Mutex // of sandboxes that change; between processes the engine's unique names decide
	guests  *guestconn.Guests[resource]
	pool    *pool.Pool
	builds  *imagebuild.Builder
	silent  sync.Map // containers that this process has ended because their guests did not answer
	resumed resumes
	members *members
	// refilling is the refiller's alone.
	refilling sighting
	// leftovers are Sweep's alone.
	leftovers    sightings
	sweptMembers atomic.Int64       // since the last Sweep
	cancel       context.CancelFunc // ends the pool's upkeep
	life         guestconn.Life
	// work counts goroutines that outlive the call which began them; Close waits for them, and ends life when that takes too long.
	work sync.WaitGroup
}

// engine is what is known of the Docker engine.
type engine struct {
	cfg      Config
	api      *client.Client
	runtimes runtimes
	old      []string               // known escapes
	root     atomic.Pointer[string] // its directory, when it was asked for
}

var (
	_ providers.Provider = (*Provider)(nil)
	_ providers.Pauser   = (*Provider)(nil)
)

// question is how long the engine may take to answer what it need not think about.
const question = 20 * time.Second

// New connects to the engine. It answers a providers.Unavailable error where none listens.
func New(ctx context.Context, cfg Config) (*Provider, error) {
	cfg, err := cfg.complete()
	if err != nil {
		return nil, err
	}
	life := guestconn.NewLife() //nolint:contextcheck // it ends with Close
	guest, err := newGuestVolume(cfg, life)
	if err != nil {
		return nil, err
	}
	api, err := connect(ctx, cfg.Host)
	if err != nil {
		return nil, err
	}
	p := &Provider{
		engine: &engine{cfg: cfg, api: api}, guest: guest, starts: make(chan struct{}, cfg.StartConcurrency),
		pool: pool.New(cfg.Pool, classKey), leftovers: sightings{}, life: life,
	}
	p.members = &members{p}
	p.builds = imagebuild.New(imagebuild.Config{
		API: api, GuestProgram: guestProgram, DiskReserve: cfg.DiskReserve, Disk: p.disk, Image: p.inspectImage,
	})
	err = p.checkRuntime(ctx, cfg.Runtime)
	if err == nil {
		err = p.learnVersions(ctx)
	}
	if err != nil {
		_ = api.Close()
		return nil, err
	}
	p.guests = guestconn.New(backend{p}, confine.UserName, cfg.Outbound, cfg.Logger)
	p.keepPool(ctx)
	return p, nil
}

// keepPool begins the upkeep of the pool, which ends with Close.
func (p *Provider) keepPool(ctx context.Context) {
	ctx, p.cancel = context.WithCancel(context.WithoutCancel(ctx))
	if p.cfg.Pool.Size > 0 {
		p.work.Go(func() { p.members.refill(ctx) })
		p.work.Go(func() { p.members.tend(ctx) })
	}
	p.work.Go(func() { p.members.sweepPools(ctx) }) // others' pools, too
}

func (c Config) complete() (Config, error) {
	if c.Fleet == "" {
		return c, providers.Invalid.Errorf("the docker provider needs a fleet name; set SANDYARD_FLEET")
	}
	if c.StartConcurrency <= 0 {
		c.StartConcurrency = runtime.NumCPU()
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	c.GuestGrace = cmp.Or(c.GuestGrace, time.Hour)
	c.Defaults = confine.Defaults(c.Defaults)
	return c, nil
}

func connect(ctx context.Context, host string) (*client.Client, error) {
	opts := []client.Opt{client.FromEnv, client.WithAPIVersionNegotiation()}
	if host != "" {
		opts = append(opts, client.WithHost(host))
	}
	api, err := client.NewClientWithOpts(opts...)
	if err != nil {
		return nil, providers.Invalid.Errorf("docker address: %w", err)
	}
	ctx, stop := context.WithTimeout(ctx, question)
	defer stop()
	answer, err := api.Ping(ctx)
	if err != nil {
		_ = api.Close()
		return nil, engineerr.ClassOf(err).Errorf("could not reach the docker engine: %w", err) // operators may know where
	}
	api.NegotiateAPIVersionPing(answer) // now, because the client's calls race for it
	return api, nil
}

// Defaults implements providers.Defaulter.
func (p *Provider) Defaults() providers.Resources { return p.cfg.Defaults }

// Capabilities implements providers.Provider.
func (p *Provider) Capabilities() providers.Capabilities {
	c := guestconn.Capabilities("docker")
	c.Builds = providers.Native
	return c
}

// EngineID is the engine's own identity: two workers with the same answer share their sandboxes.
func (p *engine) EngineID(ctx context.Context) (string, error) {
	ctx, stop := context.WithTimeout(ctx, question)
	defer stop()
	info, err := p.api.Info(ctx)
	if err != nil {
		return "", engineerr.Translate(err, "ask the docker engine")
	}
	return info.ID, nil
}

// DiskFree implements providers.DiskReporter, for an engine on this machine whose directory can be seen from here.
func (p *engine) DiskFree(ctx context.Context) (int64, error) {
	fs, err := p.disk(ctx)
	if err != nil {
		return 0, err
	}
	return int64(fs.Bavail) * fs.Bsize, nil
}

// Waiting is how many started containers wait for sandboxes.
func (p *Provider) Waiting() int { return len(p.pool.All()) }

const (
	// closePatience is how long Close waits for an engine that answers nothing.
	closePatience = 3 * time.Second
	// closeTimeout is how long it waits for one that answers, and has not done yet what was asked of it.
	closeTimeout = 8 * time.Second
)

// Close lets go of every sandbox, waits for creates in flight, whose containers are left to the next attempt where they run
// already, and removes the pool. It waits for closeTimeout, and no longer than closePatience for an engine that hangs: what is
// left of the pool then ends by itself, and the next sweep removes it.
func (p *Provider) Close() error {
	p.cancel()
	waiting := p.pool.Close()
	p.guests.Close()
	for _, m := range waiting {
		p.work.Go(func() { p.members.retire(context.Background(), m) })
	}
	ctx, done := context.WithCancel(context.Background())
	var watch sync.WaitGroup
	watch.Go(func() { p.giveUp(ctx) })
	p.work.Wait()
	if p.cfg.Pool.Size > 0 {
		p.sweepLast()
	}
	done()
	watch.Wait()
	return p.api.Close()
}

func (p *Provider) sweepLast() {
	ctx, stop := p.life.Own(context.Background(), removeTimeout)
	defer stop()
	p.members.sweep(ctx)
}

// giveUp ends all that goes on when ctx has ended, when the engine does not answer, or when it takes too long.
func (p *Provider) giveUp(ctx context.Context) {
	defer p.life.End()
	ctx, stop := context.WithTimeout(ctx, closeTimeout)
	defer stop()
	for p.answers(ctx) {
		select {
		case <-time.After(closePatience / 10):
		case <-ctx.Done():
			return
		}
	}
}

// answers says whether the engine answers anything.
func (p *engine) answers(ctx context.Context) bool {
	ctx, stop := context.WithTimeout(ctx, closePatience)
	defer stop()
	_, err := p.api.Ping(ctx)
	return err == nil
}

// GuestVolume names the engine's volume that holds this release's guest. It may be removed when no sandbox uses it.
func (p *Provider) GuestVolume() string { return p.guest.name() }

// alone lets one change of a sandbox happen at a time in this process.
func (p *Provider) alone(ctx context.Context, id string) (unlock func(), err error) {
	unlock, err = p.locks.Lock(ctx, id)
	if err != nil {
		return nil, engineerr.Translate(ctx.Err(), "wait for another change of the sandbox")
	}
	return unlock, nil
}
