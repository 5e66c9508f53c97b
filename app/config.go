// Package app wires the processes: it turns the environment into the parts of an API, a worker or a scheduler,
// runs them until the context ends, and takes them down in order.
package app

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"sandyard/imageref"
	"sandyard/jobs"
	"sandyard/jobs/kind"
	"sandyard/jobs/queue"
	"sandyard/models"
	"sandyard/netguard"
	"sandyard/providers"
	"sandyard/providers/catalog"
	"sandyard/tokens"
	"sandyard/vault"
)

// Common is what every process needs to know. Field tags name the variables; docs/operate/configuration.md lists them
// all.
type Common struct {
	DatabaseURL  string     `env:"DATABASE_URL" doc:"PostgreSQL, as a URL or key=value string"`
	DatabaseConn int        `env:"DATABASE_CONNECTIONS" envDefault:"20" doc:"most connections to PostgreSQL per process"`
	RedisURL     string     `env:"REDIS_URL" doc:"Redis 6.2 or newer: redis://, rediss:// or unix://"`
	RedisHost    string     `env:"REDIS_HOST" doc:"Redis in place of REDIS_URL: its host, without TLS and password"`
	RedisPort    int        `env:"REDIS_PORT" envDefault:"6379" doc:"the port that goes with REDIS_HOST"`
	RedisDB      int        `env:"REDIS_DATABASE" envDefault:"0" doc:"the number of the database that goes with REDIS_HOST"`
	LogLevel     slog.Level `env:"LOG_LEVEL" envDefault:"info" doc:"debug, info, warn or error"`
	SecretsKey   string     `env:"SECRETS_KEY" doc:"key that encrypts the secrets of tenants, of API and workers: 32 bytes in base64, such as of openssl rand -base64 32; of several, comma-separated, the first encrypts and all decrypt; empty = no secrets"`
	SecretsFile  string     `env:"SECRETS_KEY_FILE" doc:"file with the keys, in place of SECRETS_KEY"`
	Window       int        `env:"TENANT_WINDOW" envDefault:"256" doc:"unclaimed jobs of one tenant that Redis may hold per lane; the others wait in PostgreSQL"`
}

func (c Common) validate() error {
	var errs []error
	if c.DatabaseURL == "" {
		errs = append(
			errs,
			errors.New(
				"DATABASE_URL is missing: set it to your PostgreSQL, such as postgres://user:password@host/sandyard",
			),
		)
	}
	url := c.redisURL()
	if url == "" {
		errs = append(
			errs,
			errors.New("REDIS_URL is missing: set it to your Redis, such as redis://host:6379, or set REDIS_HOST"),
		)
	} else if _, err := queue.ParseRedis(url); err != nil {
		errs = append(errs, err)
	}
	if _, err := c.vault(); err != nil {
		errs = append(errs, err)
	}
	return errors.Join(
		append(errs, positive("DATABASE_CONNECTIONS", c.DatabaseConn), positive("TENANT_WINDOW", c.Window))...)
}

// vault encrypts the secrets of tenants; nil = there is no key.
func (c Common) vault() (*vault.Vault, error) {
	text, name := c.SecretsKey, "SECRETS_KEY"
	if c.SecretsFile != "" {
		if text != "" {
			return nil, errors.New("SECRETS_KEY and SECRETS_KEY_FILE are both set; keep one")
		}
		b, err := os.ReadFile(c.SecretsFile)
		if err != nil {
			return nil, fmt.Errorf("SECRETS_KEY_FILE: %w", err)
		}
		text, name = string(b), "SECRETS_KEY_FILE"
	}
	v, err := vault.New(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return v, nil
}

// redisURL is where Redis is.
func (c Common) redisURL() string {
	if c.RedisURL != "" || c.RedisHost == "" {
		return c.RedisURL
	}
	return "redis://" + net.JoinHostPort(c.RedisHost, strconv.Itoa(c.RedisPort)) + "/" + strconv.Itoa(c.RedisDB)
}

func positive(name string, n int) error {
	if n < 1 {
		return fmt.Errorf("%s is %d, it must be at least 1", name, n)
	}
	return nil
}

func notNegative[N int | float64](name string, n N) error {
	if n < 0 {
		return fmt.Errorf("%s is %v, it must not be negative", name, n)
	}
	return nil
}

// Sandboxes is what the API offers and the worker makes.
type Sandboxes struct {
	Provider  string            `env:"SANDBOX_PROVIDER" envDefault:"docker" doc:"the default sandbox provider: docker, e2b, daytona, modal, runloop, or local (for development and trusted code only)"`
	Offered   []string          `env:"SANDBOX_PROVIDERS" doc:"the providers that requests may name, and that a worker runs, comma-separated; SANDBOX_PROVIDER is always among those of the API; default this one"`
	Templates map[string]string `env:"SANDBOX_TEMPLATES" envDefault:"python=sandyard/python:default,base=sandyard/base:default,node=sandyard/node:default,data-science=sandyard/data-science:default,python-data-science=sandyard/data-science:default,code-server=sandyard/code-server:default,browser=sandyard/browser:default,claude-code=sandyard/claude-code:default,codex=sandyard/codex:default,cloud=sandyard/cloud:default,all-in-one=sandyard/all-in-one:default" envKeyValSeparator:"=" doc:"shared templates that always exist: name=image, comma-separated"`
	Names     map[string]string `env:"PROVIDER_TEMPLATES" envKeyValSeparator:"=" doc:"names of shared templates at providers that make no sandboxes from images: provider/template=name, comma-separated, such as e2b/python=base"`
	Template  string            `env:"SANDBOX_TEMPLATE" envDefault:"python" doc:"the default template of sandboxes"`
	Runtime   string            `env:"SANDBOX_RUNTIME" doc:"the default OCI runtime of sandboxes, such as runsc; default the engine's"`
	Runtimes  []string          `env:"SANDBOX_RUNTIMES" doc:"OCI runtimes that requests and templates may name, comma-separated; SANDBOX_RUNTIME is always allowed"`
	Images    []string          `env:"SANDBOX_IMAGES" doc:"images that requests, templates and builds may name, as comma-separated patterns such as python:*,ghcr.io/acme/*; * alone = every image; the images of shared templates and of a tenant's own builds are always allowed; default only these"`
	CPUs      float64           `env:"SANDBOX_CPUS" envDefault:"1" doc:"the default cores of a sandbox"`
	MemoryMB  int64             `env:"SANDBOX_MEMORY_MB" envDefault:"512" doc:"the default memory of a sandbox"`
	WorkDir   string            `env:"SANDBOX_WORK_DIR" envDefault:"/workspace" doc:"the default work directory of sandboxes, except those of clients of the sandbox server and the agent API, which have /home/user"`
	Network   bool              `env:"SANDBOX_NETWORK" envDefault:"false" doc:"sandboxes whose request and template say nothing about network and egress may reach every public address"`
	ExecTime  time.Duration     `env:"EXEC_TIMEOUT" envDefault:"5m" doc:"the default timeout_seconds of commands and code cells; at most 24h"`
	Lifetime  time.Duration     `env:"LIFETIME" envDefault:"0" doc:"the default of max_lifetime_seconds: a sandbox is deleted that long after its first start; 0 = MAX_LIFETIME"`
	MaxLife   time.Duration     `env:"MAX_LIFETIME" envDefault:"0" doc:"the largest max_lifetime_seconds that a request may set; 0 = no limit"`
	Paused    time.Duration     `env:"PAUSED_TIMEOUT" envDefault:"0" doc:"the default of paused_timeout_seconds: a sandbox is deleted after it has been paused that long; 0 = MAX_PAUSED_TIMEOUT"`
	MaxPaused time.Duration     `env:"MAX_PAUSED_TIMEOUT" envDefault:"0" doc:"the largest paused_timeout_seconds that a request may set; 0 = no limit"`
	MostCPUs  float64           `env:"SANDBOX_MAX_CPUS" envDefault:"8" doc:"most cores that one sandbox or build may request"`
	MostMB    int64             `env:"SANDBOX_MAX_MEMORY_MB" envDefault:"8192" doc:"most memory that one sandbox or build may request"`
	MostDisk  int64             `env:"SANDBOX_MAX_DISK_MB" envDefault:"4096" doc:"largest work directory that one sandbox may request; it counts towards memory"`
	MostPids  int64             `env:"SANDBOX_MAX_PIDS" envDefault:"4096" doc:"most processes and threads that one sandbox or build may request"`
	BuildDisk int               `env:"BUILD_DISK_MB" envDefault:"16384" doc:"most disk space that a template build may request on top of its base image"`
}

func (s Sandboxes) validate() error {
	if _, ok := s.Templates[s.Template]; !ok {
		return fmt.Errorf(
			"SANDBOX_TEMPLATE is %q, which is not in SANDBOX_TEMPLATES; add it there or name another template",
			s.Template,
		)
	}
	if err := imageref.Globs(s.Images).Check(); err != nil {
		return fmt.Errorf("SANDBOX_IMAGES: %w", err)
	}
	if err := errors.Join(
		s.validateMost(),
		s.validateDefaults(),
		positive("BUILD_DISK_MB", s.BuildDisk),
		span("LIFETIME", s.Lifetime, s.MaxLife),
		span("PAUSED_TIMEOUT", s.Paused, s.MaxPaused),
	); err != nil {
		return err
	}
	if !slices.Contains(catalog.Names(), s.Provider) {
		return fmt.Errorf("SANDBOX_PROVIDER is %q; use one of %v", s.Provider, catalog.Names())
	}
	if err := CheckProviders(s.Offered); err != nil {
		return fmt.Errorf("SANDBOX_PROVIDERS %w", err)
	}
	return nil
}

// CheckProviders says what is wrong with a list of providers: unknown names, and those that are there twice.
func CheckProviders(names []string) error {
	for i, name := range names {
		if slices.Contains(names[:i], name) {
			return fmt.Errorf("names %s twice; leave one out", name)
		}
		if !slices.Contains(catalog.Names(), name) {
			return fmt.Errorf("has %q; use some of %v, comma-separated", name, catalog.Names())
		}
	}
	return nil
}

// KeyedProviders are the providers that take a key, of which tenants may have their own.
func KeyedProviders() []string { return catalog.Keyed() }

// offers are the providers that requests may name, the default one first.
func (s Sandboxes) offers() []string {
	return append(
		[]string{s.Provider},
		slices.DeleteFunc(slices.Clone(s.Offered), func(name string) bool { return name == s.Provider })...)
}

// providers are those that a worker runs.
func (c Worker) providers() []string {
	if len(c.Offered) == 0 {
		return []string{c.Provider}
	}
	return c.Offered
}

// validateMost refuses maxima below what a sandbox gets that does not say.
func (s Sandboxes) validateMost() error {
	var errs []error
	for _, m := range []struct {
		name        string
		most, least float64
	}{
		{"SANDBOX_MAX_CPUS", s.MostCPUs, s.CPUs},
		{"SANDBOX_MAX_MEMORY_MB", float64(s.MostMB), float64(s.MemoryMB)},
		{"SANDBOX_MAX_DISK_MB", float64(s.MostDisk), 256},
		{"SANDBOX_MAX_PIDS", float64(s.MostPids), 256},
	} {
		if m.most < m.least {
			errs = append(
				errs,
				fmt.Errorf("%s is %v, it must be at least %v, the default of a sandbox", m.name, m.most, m.least),
			)
		}
	}
	return errors.Join(errs...)
}

// validateDefaults refuses what no sandbox could have.
func (s Sandboxes) validateDefaults() error {
	var wrong *kind.InvalidError
	err := s.defaults().Check()
	if !errors.As(err, &wrong) {
		return errors.Join(err, atLeast("EXEC_TIMEOUT", s.ExecTime, 100*time.Millisecond))
	}
	name := map[string]string{
		"cpus": "SANDBOX_CPUS", "memory_mb": "SANDBOX_MEMORY_MB", "work_dir": "SANDBOX_WORK_DIR",
		"timeout_seconds": "EXEC_TIMEOUT",
	}[wrong.Field]
	return fmt.Errorf("%s %s", name, wrong.Message)
}

func (s Sandboxes) defaults() jobs.Defaults {
	return jobs.Defaults{
		CPUs:        s.CPUs,
		MemoryMB:    s.MemoryMB,
		WorkDir:     s.WorkDir,
		Network:     s.Network,
		ExecTimeout: s.ExecTime,
	}
}

// resources are the defaults of a provider.
func (s Sandboxes) resources() providers.Resources {
	return providers.Resources{CPUs: s.CPUs, MemoryMB: s.MemoryMB}
}

// span says what is wrong with a default and its maximum, whose variable has the same name behind MAX_.
func span(name string, own, most time.Duration) error {
	for variable, d := range map[string]time.Duration{name: own, "MAX_" + name: most} {
		if d != 0 && d < time.Second {
			return fmt.Errorf("%s is %v, it must be 0 or at least 1s", variable, d)
		}
	}
	if most > 0 && own > most {
		return fmt.Errorf("%s is %v, which is longer than MAX_%s, %v", name, own, name, most)
	}
	return nil
}

func (s Sandboxes) catalog() jobs.Catalog {
	return jobs.Catalog{
		Providers:   s.offers(),
		Able:        catalog.Capabilities(),
		Keyed:       catalog.Keyed(),
		Names:       s.Names,
		Templates:   s.Templates,
		Template:    s.Template,
		Runtimes:    s.offered(),
		Images:      s.Images,
		BuildDiskMB: int64(s.BuildDisk),
		Maximum:     models.Bounds{CPUs: s.MostCPUs, MemoryMB: s.MostMB, DiskMB: s.MostDisk, Pids: s.MostPids},
		Defaults:    s.defaults(),
		Lifetime:    jobs.Span{Default: s.Lifetime, Most: s.MaxLife},
		Paused:      jobs.Span{Default: s.Paused, Most: s.MaxPaused},
	}
}

// offered are the runtimes that may be named.
func (s Sandboxes) offered() []string {
	all := append([]string{s.Runtime}, s.Runtimes...)
	slices.Sort(all)
	return slices.DeleteFunc(slices.Compact(all), func(name string) bool { return name == "" })
}

// API configures cmd/api.
type API struct {
	Common
	Sandboxes
	Callbacks
	Addr          string `env:"LISTEN_ADDR" envDefault:":8080" doc:"where the API listens"`
	FirstKey      string `env:"FIRST_KEY_FILE" doc:"file to which the first API process on a new database writes the first key, with mode 0600; when unset, the key is printed if stdout is a terminal; otherwise make one with sandyard key"`
	MaxBody       int    `env:"MAX_BODY_BYTES" envDefault:"16777216" doc:"largest request body"`
	BodyMemory    int    `env:"BODY_MEMORY_BYTES" envDefault:"0" doc:"memory for request bodies and large answers per API process; a body counts five times its size; one tenant may use three quarters; above the limit, requests wait up to 5 s and then get a 503; 0 = 268435456, or ten times MAX_BODY_BYTES if that is more"`
	TenantWaits   int    `env:"TENANT_WAITS" envDefault:"1000" doc:"most waiting requests of one tenant at once, per API process"`
	TenantStreams int    `env:"TENANT_STREAMS" envDefault:"200" doc:"most streams of one tenant at once, per API process: terminals, file transfers, watches, followed build logs"`
	PublicMetrics bool   `env:"PUBLIC_METRICS" envDefault:"false" doc:"/metrics of the API needs no key"`
	Edge          string `env:"EDGE_ADDR" envDefault:":8090" doc:"where the API listens for traffic to sandbox ports (the edge); empty = off"`
	Scheme        string `env:"EDGE_SCHEME" envDefault:"http" doc:"http, or https if a TLS proxy is in front of the edge; https makes cookies Secure"`
	Internet      bool   `env:"E2B_INTERNET" envDefault:"true" doc:"sandboxes created by clients of E2B, Daytona, the sandbox server, the agent API and MCP may reach every public address, unless the request or the template says less"`
	Timeout       int    `env:"DEFAULT_TIMEOUT" envDefault:"3600" doc:"seconds that a sandbox lives that a client of the sandbox server or the agent API creates or connects to"`
	MaxTimeout    int    `env:"MAX_TIMEOUT" envDefault:"86400" doc:"most seconds that a client of the sandbox server or the agent API may set; at most 86400"`
	MCPPort       int    `env:"SANDBOX_MCP_SERVER_PORT" envDefault:"6060" doc:"port of the MCP server of sandboxes of the agent API whose template lists this port and sets no mcp_port"`
	VSCodePort    int    `env:"SANDBOX_CODE_SERVER_PORT" envDefault:"9000" doc:"port of the editor of sandboxes of the agent API whose template lists this port and sets no vscode_port"`
	Keyless       string `env:"SANDBOX_SERVER_ADDR" doc:"where clients of the sandbox server need no API key, such as 10.0.0.5:8080; whoever reaches this address works for SANDBOX_SERVER_TENANT, so bind it to a private network; empty = off"`
	KeylessTenant string `env:"SANDBOX_SERVER_TENANT" doc:"id of the tenant that clients at SANDBOX_SERVER_ADDR work for"`
	Domain        string `env:"EDGE_DOMAIN" envDefault:"localhost:8090" doc:"domain at which clients reach the edge: a sandbox's port is at {port}-{sandbox}.{domain}"`
}

// Validate says everything that is wrong.
func (c API) Validate() error {
	var scheme error
	if c.Scheme != "http" && c.Scheme != "https" {
		scheme = fmt.Errorf("EDGE_SCHEME is %q, it must be http or https", c.Scheme)
	}
	var keyless error
	if (c.Keyless == "") != (c.KeylessTenant == "") {
		keyless = errors.New("SANDBOX_SERVER_ADDR and SANDBOX_SERVER_TENANT go together: set both or none")
	}
	return errors.Join(c.Common.validate(), c.Sandboxes.validate(), scheme, keyless, c.validateTimeouts(),
		positive("MAX_BODY_BYTES", c.MaxBody), notNegative("BODY_MEMORY_BYTES", c.BodyMemory),
		positive("TENANT_WAITS", c.TenantWaits), positive("TENANT_STREAMS", c.TenantStreams))
}

func (c API) validateTimeouts() error {
	const day = 86400
	if c.MaxTimeout < 1 || c.MaxTimeout > day {
		return fmt.Errorf("MAX_TIMEOUT is %d, it must be between 1 and %d seconds", c.MaxTimeout, day)
	}
	if c.Timeout < 1 || c.Timeout > c.MaxTimeout {
		return fmt.Errorf(
			"DEFAULT_TIMEOUT is %d, it must be between 1 and MAX_TIMEOUT, %d seconds",
			c.Timeout,
			c.MaxTimeout,
		)
	}
	return nil
}

// edge is where clients reach the ports of sandboxes.
func (c API) edge() tokens.Address {
	return tokens.Address{Scheme: cmp.Or(c.Scheme, "http"), Domain: c.Domain}
}

// Callbacks configures what webhooks may reach.
type Callbacks struct {
	Allow []netip.Prefix `env:"WEBHOOK_ALLOW_CIDRS" doc:"loopback, private and other special addresses that webhooks may reach, as comma-separated CIDRs; default none; set it the same for API, workers and scheduler"`
}

// rules are those by which the URL of a callback is judged before it is called.
func (c Callbacks) rules() netguard.Rules { return netguard.Rules{Allow: c.Allow} }

// Egress configures what sandboxes may reach whose policies let them.
type Egress struct {
	EgressAllow       []netip.Prefix `env:"EGRESS_ALLOW_CIDRS" doc:"loopback, private and other special addresses that a sandbox's egress.allow may open, as comma-separated CIDRs; default none; EGRESS_DENY_CIDRS and the ports of PostgreSQL, Redis, engine and gateways stay closed"`
	EgressDeny        []netip.Prefix `env:"EGRESS_DENY_CIDRS" doc:"addresses that no sandbox and no webhook may reach, as comma-separated CIDRs, such as your hosts' public addresses behind NAT; it wins over EGRESS_ALLOW_CIDRS"`
	EgressConnections int            `env:"EGRESS_CONNECTIONS" envDefault:"128" doc:"most outbound connections of one sandbox at once"`
	EgressRate        int            `env:"EGRESS_BYTES_PER_SECOND" envDefault:"0" doc:"bytes per second that one sandbox may send and receive through egress; 0 = no limit"`
	EgressIdle        time.Duration  `env:"EGRESS_IDLE_TIMEOUT" envDefault:"10m" doc:"idle time after which an outbound connection is closed"`
}

func (c Egress) validate() error {
	var idle error
	if c.EgressIdle < time.Second {
		idle = fmt.Errorf("EGRESS_IDLE_TIMEOUT is %v, it must be at least 1s", c.EgressIdle)
	}
	return errors.Join(
		positive("EGRESS_CONNECTIONS", c.EgressConnections),
		notNegative("EGRESS_BYTES_PER_SECOND", c.EgressRate),
		idle,
	)
}

// Worker configures cmd/worker.
type Worker struct {
	Common
	Sandboxes
	Callbacks
	Egress
	E2B
	Daytona
	Runloop
	Modal
	ProviderKeys string             `env:"PROVIDER_KEYS" envDefault:"operator" doc:"operator = a worker opens e2b, daytona and runloop with E2B_API_KEY, DAYTONA_API_KEY and RUNLOOP_API_KEY alone, and ends without; tenants = it opens them without, too, for tenants that have keys of their own"`
	Health       string             `env:"HEALTH_ADDR" envDefault:"127.0.0.1:8081" doc:"where a worker or scheduler serves /healthz, /readyz and /metrics without a key; :8081 = every address"`
	Fleet        string             `env:"SANDYARD_FLEET" doc:"name of this installation on its engines; a worker removes containers with this name that are not in its database; default a name kept in the database"`
	DockerHost   string             `env:"DOCKER_HOST" doc:"the Docker engine; default its usual socket"`
	Unsafe       string             `env:"ENGINE_UNSAFE" envDefault:"refuse" doc:"what a worker does if its engine or runc has known container escapes, besides a warning at start: refuse = reject builds and sandboxes that share the host's kernel; allow = use it anyway"`
	Pull         bool               `env:"SANDBOX_PULL" envDefault:"false" doc:"pull missing template images when a worker starts; jobs never pull"`
	Guest        string             `env:"GUEST_PATH" doc:"directory of the programs guest, sup and sandbox-shim; default the directory of the worker's binary"`
	LocalDir     string             `env:"LOCAL_DIR" envDefault:".sandyard/local" doc:"where the provider local keeps its images and sandboxes"`
	Gateway      string             `env:"GATEWAY_ADDR" envDefault:":0" doc:"where a worker's gateway listens for traffic from API and edge to its sandboxes; port 0 = any free port; empty = off"`
	GatewayURL   string             `env:"GATEWAY_URL" doc:"URL at which API and edge reach the gateway, such as http://worker-3:8082; default the host's name and the port"`
	Name         string             `env:"NODE_NAME" doc:"name that keeps a worker's drain across restarts; workers of one engine may share it; default the host's name"`
	Slots        int                `env:"WORKER_SLOTS" envDefault:"64" doc:"jobs that a worker starts at once per lane; all tenants share these slots; a job that only waits holds none"`
	CreateRates  map[string]float64 `env:"CREATE_RATES" envKeyValSeparator:"=" doc:"most creates per second of a worker at a provider, such as e2b=1; comma-separated; default no limit"`
	MaxSandboxes int                `env:"MAX_SANDBOXES" envDefault:"100" doc:"most sandboxes that a worker holds at once"`
	MaxCPUs      Amount             `env:"MAX_CPUS" envDefault:"0" doc:"cores for all sandboxes and builds of an engine, across its workers; 0 = 16 times the machine's; unlimited = no limit"`
	MaxMemoryMB  Amount             `env:"MAX_MEMORY_MB" envDefault:"0" doc:"memory for all sandboxes and builds of an engine, across its workers, files included; 0 = the machine's minus one eighth (at least 512); unlimited = no limit"`
	MaxPids      Amount             `env:"MAX_PIDS" envDefault:"0" doc:"processes and threads for all sandboxes and builds of an engine, across its workers; 0 = three quarters of the kernel's limit; unlimited = no limit"`
	DiskReserve  int                `env:"DISK_RESERVE_MB" envDefault:"1024" doc:"free disk space that an engine must keep; below it, its workers get no new sandboxes; below twice this, running builds are stopped; 0 = no check"`
	PoolSize     int                `env:"POOL_SIZE" envDefault:"4" doc:"started containers kept ready per shared template that sets no pool, across all workers of an engine; 0 = no pool on this worker"`
	PoolMax      int                `env:"POOL_MAX" envDefault:"16" doc:"most ready containers per template; the pool grows from POOL_SIZE with the number of sandboxes created in the last minute"`
	Builds       int                `env:"MAX_BUILDS" envDefault:"4" doc:"template builds that a worker runs at once; one tenant may use half; the others wait"`
	Lease        time.Duration      `env:"LEASE" envDefault:"10s" doc:"time without a heartbeat after which a worker counts as dead and its jobs and sandboxes move on"`
	Reconcile    time.Duration      `env:"RECONCILE_EVERY" envDefault:"15s" doc:"how often a worker compares its engine with the database"`
	Patience     time.Duration      `env:"RECONCILE_GRACE" envDefault:"1m" doc:"minimum age before a mismatch (a container without a sandbox, or the reverse) is repaired"`
	Grace        time.Duration      `env:"DRAIN_GRACE" envDefault:"20s" doc:"time that a worker may take to stop; jobs run on until 5 seconds before its end (three quarters of a short one) and are then handed over; a hanging engine adds up to 3 seconds"`
}

// tenantsKeys is of PROVIDER_KEYS.
const tenantsKeys = "tenants"

// Validate says everything that is wrong.
func (c Worker) Validate() error {
	var unsafe error
	if c.Unsafe != "refuse" && c.Unsafe != "allow" {
		unsafe = fmt.Errorf("ENGINE_UNSAFE is %q, it must be refuse or allow", c.Unsafe)
	}
	var keys error
	switch {
	case c.ProviderKeys != "operator" && c.ProviderKeys != tenantsKeys:
		keys = fmt.Errorf("PROVIDER_KEYS is %q, it must be operator or tenants", c.ProviderKeys)
	case c.ProviderKeys == tenantsKeys && c.SecretsKey == "" && c.SecretsFile == "":
		keys = errors.New(
			"PROVIDER_KEYS is tenants, but nothing can read their keys: set SECRETS_KEY to that of the API",
		)
	}
	return errors.Join(
		unsafe,
		keys,
		c.Common.validate(),
		c.Sandboxes.validate(),
		c.Egress.validate(),
		atLeast("LEASE", c.Lease, time.Second),
		atLeast("RECONCILE_EVERY", c.Reconcile, 100*time.Millisecond),
		atLeast("RECONCILE_GRACE", c.Patience, 0),
		positive("WORKER_SLOTS", c.Slots),
		positive("MAX_SANDBOXES", c.MaxSandboxes),
		positive("MAX_BUILDS", c.Builds),
		notNegative("DISK_RESERVE_MB", c.DiskReserve),
		notNegative("POOL_SIZE", c.PoolSize),
		notNegative("POOL_MAX", c.PoolMax),
	)
}

// guest is where the guest's programs lie.
func (c Worker) guest() (string, error) {
	if c.Guest != "" {
		return c.Guest, nil
	}
	self, err := os.Executable()
	return filepath.Dir(self), err
}

// Scheduler configures cmd/scheduler.
type Scheduler struct {
	Common
	Sandboxes
	Callbacks
	Health    string        `env:"HEALTH_ADDR" envDefault:"127.0.0.1:8081" doc:"where a worker or scheduler serves /healthz, /readyz and /metrics without a key; :8081 = every address"`
	Retention time.Duration `env:"RETENTION" envDefault:"720h" doc:"how long ended sandboxes, builds, schedule runs and jobs with their deliveries are kept; events are kept at least as long; 0 = forever"`
	Output    time.Duration `env:"OUTPUT_RETENTION" envDefault:"168h" doc:"how long the output of ended jobs is kept; 0 = as long as the job"`
	Audit     time.Duration `env:"AUDIT_RETENTION" envDefault:"8760h" doc:"how long entries of the audit log and security events are kept; 0 = forever"`
	LostAfter time.Duration `env:"LOST_AFTER" envDefault:"5m" doc:"how long sandboxes wait for a worker of their engine to return before they are marked lost"`
}

// Validate says everything that is wrong.
func (c Scheduler) Validate() error {
	return errors.Join(c.Common.validate(), c.Sandboxes.validate(), atLeast("LOST_AFTER", c.LostAfter, time.Second),
		noneOrLong("RETENTION", c.Retention), noneOrLong("OUTPUT_RETENTION", c.Output),
		noneOrLong("AUDIT_RETENTION", c.Audit))
}

// noneOrLong refuses to forget jobs while a repeated request may still be answered with them.
func noneOrLong(name string, d time.Duration) error {
	const least = 25 * time.Hour
	if d == 0 {
		return nil
	}
	return atLeast(name, d, least)
}

func atLeast(name string, d, least time.Duration) error {
	if d < least {
		return fmt.Errorf("%s is %v, it must be at least %v", name, d, least)
	}
	return nil
}
