package jobs

import (
	"cmp"
	"context"
	"encoding/json"
	"regexp"
	"slices"
	"time"

	"sandyard/egress"
	"sandyard/jobs/kind"
	"sandyard/jobs/webhook"
	"sandyard/models"
	"sandyard/netguard"
	"sandyard/providers"
)

// egress is the policy that c wishes for, as it is stored. Of one that says nothing the template decides.
func (c CreateSandbox) egress(from source) (json.RawMessage, error) {
	p, err := c.policy(from)
	if err == nil {
		err = kind.CheckPolicy("egress.", p)
	}
	if err != nil {
		return nil, err
	}
	return kind.PolicyText(p)
}

func (c CreateSandbox) policy(from source) (egress.Policy, error) {
	template := from.template.Definition.Egress
	switch {
	case c.Network && c.Egress != nil && len(c.Egress.Allow) > 0:
		return egress.Policy{}, kind.Invalid("network", "means the same as egress.allow [\"*\"]; use only one of them")
	case c.Network && c.Egress != nil:
		return egress.Policy{Allow: egress.Public().Allow, Deny: c.Egress.Deny, AllowFirst: c.Egress.AllowFirst}, nil
	case c.Network:
		return egress.Public(), nil
	case c.Egress != nil:
		return *c.Egress, nil
	case template != nil:
		return egress.Policy{Allow: template.Allow, Deny: template.Deny}, nil
	}
	return from.defaults.open(c.Foreign), nil
}

// CreateSandbox is a wish for a sandbox.
type CreateSandbox struct {
	Template             string            `json:"template,omitempty" doc:"The template's name; default python. Or use image"`
	Image                string            `json:"image,omitempty" maxLength:"512" doc:"A container image on the provider's engines, as REPOSITORY:TAG: of a shared template, of one of your builds, or allowed by the operator (SANDBOX_IMAGES)"`
	Provider             string            `json:"provider,omitempty" doc:"Default: the server's provider"`
	Providers            []string          `json:"providers,omitempty" maxItems:"8" doc:"In place of provider: the providers to ask in this order; the next one makes it where one has no room, has reached its quota or does not answer"`
	Git                  *kind.Git         `json:"git,omitempty" doc:"A repository that is cloned into it before anybody uses it"`
	Setup                *kind.Setup       `json:"setup,omitempty" doc:"A script that prepares it before anybody uses it"`
	Key                  string            `json:"key,omitempty" maxLength:"256" doc:"Your own name for it: while a sandbox with this key is live, create returns it"`
	Labels               map[string]string `json:"labels,omitempty" doc:"Labels for list filters"`
	Reuse                bool              `json:"reuse,omitempty" doc:"If live sandboxes have all of labels, create returns the newest of them, as it is. Concurrent creates make one"`
	Env                  map[string]string `json:"env,omitempty" doc:"Environment variables for every command in it"`
	CPUs                 float64           `json:"cpus,omitempty" doc:"Cores; default 1 (SANDBOX_CPUS). The server limits cores, memory, disk and pids"`
	MemoryMB             int64             `json:"memory_mb,omitempty" doc:"Memory and swap; default 512 (SANDBOX_MEMORY_MB)"`
	DiskMB               int64             `json:"disk_mb,omitempty" doc:"Size of the work directory, which counts towards memory; default 256"`
	Pids                 int64             `json:"pids,omitempty" doc:"Processes and threads; default 256"`
	Network              bool              `json:"network,omitempty" doc:"Allow connections to every public address, as egress.allow [\"*\"] does. Default false: no network, unless the operator sets SANDBOX_NETWORK"`
	Egress               *egress.Policy    `json:"egress,omitempty" doc:"Destinations that programs may connect to, through the proxy in HTTP_PROXY and similar variables. Private and special addresses stay closed unless the operator opens them"`
	Runtime              string            `json:"runtime,omitempty" maxLength:"64" doc:"OCI runtime that the server offers, such as runsc (gVisor, a separate kernel). Default: the template's, else the server's"`
	TimeoutSeconds       float64           `json:"timeout_seconds,omitempty" doc:"It ends this long after its start, regardless of activity; if it has not started by then, after its submission, but not within ten minutes; default 3600, at most 86400"`
	OnTimeout            string            `json:"on_timeout,omitempty" enum:"delete,pause" doc:"Default delete. A failed pause is retried every ten seconds; a sandbox that is still being created is deleted"`
	OnLost               string            `json:"on_lost,omitempty" enum:"recreate" doc:"recreate: if it is lost, a new empty sandbox with the same key and settings replaces it; jobs of the lost one end. It stops after five in a row that lived less than ten minutes"`
	AutoResume           bool              `json:"auto_resume,omitempty" doc:"While it is paused, traffic to its ports and jobs that need it running resume it"`
	IdleTimeoutSeconds   float64           `json:"idle_timeout_seconds,omitempty" doc:"It is deleted after this time without activity; default 3600. Activity: a job is submitted, runs or ends (waits included), port traffic, an open terminal, a file transfer or watch. Background commands and output reads do not count"`
	MaxLifetimeSeconds   float64           `json:"max_lifetime_seconds,omitempty" minimum:"0" maximum:"31536000" doc:"It is deleted this long after its first start, regardless of new timeouts and pauses. The server may set a maximum; 0 = the server's default, which is no limit unless the operator sets one"`
	PausedTimeoutSeconds float64           `json:"paused_timeout_seconds,omitempty" minimum:"0" maximum:"31536000" doc:"It is deleted after it has been paused for this long. The server may set a maximum; 0 = the server's default, which is no limit unless the operator sets one"`

	// Foreign is what other APIs than our own may ask for.
	Foreign Foreign `json:"-"`
}

// Foreign widens a wish by what the APIs of others know.
type Foreign struct {
	Metadata  map[string]string // labels with any names
	NeverIdle bool
	Public    bool          // its ports need no token
	Egress    egress.Policy // where neither the wish nor its template says anything
	// OwnNetwork: Egress holds then also where the operator's default is another.
	OwnNetwork bool
	WorkDir    string // where the template names none
	// MCPPort and VSCodePort are those of the tools of a template that lists such a port and does not say whose it is.
	MCPPort, VSCodePort int
}

// Defaults of a sandbox.
const (
	DefaultTimeout     = time.Hour
	DefaultIdleTimeout = time.Hour

	year = 365 * 24 * time.Hour
)

// RunOnce is a wish for one command, or one piece of code, in a sandbox of its own.
type RunOnce struct {
	Sandbox CreateSandbox
	Files   []kind.Write
	Exec    kind.Exec
	Code    *kind.Code // in place of Exec
}

// Options go with any submission.
type Options struct {
	Parallel        bool          // do not wait for earlier jobs of the sandbox
	Priority        int           // -100 to 100, within the tenant
	CallbackURL     string        // told when the job has ended
	QueueDeadline   time.Duration // the job expires if it has not started by then; 0 = never
	IdempotencyKey  string
	Request         []byte // digest of the request, to go with the key
	TenantID, Actor string
	User            string // whose limits hold, too; empty = only the tenant's do
	Audit           *models.AuditEntry
	// Call recognises what a caller asks for who knows no jobs, and JoinIn is how long that caller waits. After that the
	// same call may join the job: see models.Store.JoinCall.
	Call       []byte
	JoinIn     time.Duration
	retryOf    string
	needsFiles bool                // the answer's job needs the one before it, which writes files
	run        *models.ScheduleRun // that the jobs are for
}

// check says what is wrong with the options, whose callback is to heed the rules.
func (o Options) check(callbacks netguard.Rules) error {
	if o.Priority < -100 || o.Priority > 100 {
		return kind.Invalid("priority", "must be between -100 and 100, not %d", o.Priority)
	}
	if len(o.IdempotencyKey) > 255 {
		return kind.Invalid("Idempotency-Key", "is longer than 255 characters")
	}
	if o.QueueDeadline < 0 || o.QueueDeadline > kind.MaxTimeout {
		return kind.Invalid("queue_deadline_seconds", "must be between 0 and %.0f", kind.MaxTimeout.Seconds())
	}
	if err := webhook.CheckURL(o.CallbackURL, callbacks); err != nil {
		return kind.Invalid("callback_url", "%s", err)
	}
	return nil
}

// sandbox makes the row that c wishes for from what it resolves to, with the limits that it asks for.
func (c CreateSandbox) sandbox(tenantID string, from source) (*models.Sandbox, providers.Resources, error) {
	timeout, err := kind.Seconds("timeout_seconds", c.TimeoutSeconds, DefaultTimeout, time.Second)
	if err != nil {
		return nil, providers.Resources{}, err
	}
	idle, err := kind.Seconds("idle_timeout_seconds", c.IdleTimeoutSeconds, DefaultIdleTimeout, time.Second)
	if err != nil {
		return nil, providers.Resources{}, err
	}
	if err := c.check(); err != nil {
		return nil, providers.Resources{}, err
	}
	box := &models.Sandbox{
		ID: models.NewID("sb"), TenantID: tenantID, State: models.SandboxCreating,
		Desired: models.DesiredRunning, Labels: c.Labels, OnTimeout: cmp.Or(c.OnTimeout, "delete"), OnLost: c.OnLost,
		TimeoutMS: timeout.Milliseconds(), IdleTimeoutMS: idle.Milliseconds(), AutoResume: c.AutoResume,
		MaxLifetimeMS: int64(c.MaxLifetimeSeconds * 1000), PausedTimeoutMS: int64(c.PausedTimeoutSeconds * 1000),
	}
	if c.Key != "" {
		box.Key = &c.Key
	}
	if box.Reuse = c.Reuse; c.Reuse && (c.Key != "" || len(c.Labels) == 0) {
		return nil, providers.Resources{}, kind.Invalid("reuse", "finds a sandbox by labels; give labels, and no key")
	}
	c.Foreign.apply(box)
	if box.Egress, err = c.egress(from); err != nil {
		return nil, providers.Resources{}, err
	}
	spec := kind.Spec{Env: c.Env, Git: c.Git, Setup: c.Setup, Public: c.Foreign.Public, Resources: providers.Resources{
		CPUs: c.CPUs, MemoryMB: c.MemoryMB, DiskMB: c.DiskMB, Pids: c.Pids,
	}}
	if err := from.apply(box, &spec); err != nil {
		return nil, providers.Resources{}, err
	}
	c.Foreign.complete(&spec)
	from.defaults.fill(&spec, from.template.Definition.Maximum)
	weigh(box, spec.Resources)
	box.Spec, err = json.Marshal(spec)
	return box, spec.Resources, err
}

// weigh writes down what the sandbox takes of its tenant's quota.
func weigh(box *models.Sandbox, r providers.Resources) {
	r = r.Or(providers.StandardResources())
	box.CPUs, box.MemoryMB = r.CPUs, r.MemoryMB
}

func (f Foreign) apply(box *models.Sandbox) {
	if f.Metadata != nil {
		box.Labels = f.Metadata
	}
	if f.NeverIdle {
		box.IdleTimeoutMS = 0
	}
}

// complete fills in what the template leaves open.
func (f Foreign) complete(spec *kind.Spec) {
	spec.WorkDir = cmp.Or(spec.WorkDir, f.WorkDir)
	if spec.MCPPort == 0 && slices.Contains(spec.Ports, f.MCPPort) {
		spec.MCPPort = f.MCPPort
	}
	if spec.VSCodePort == 0 && slices.Contains(spec.Ports, f.VSCodePort) {
		spec.VSCodePort = f.VSCodePort
	}
}

// maxMetadata bounds the metadata of one sandbox, in bytes.
const maxMetadata = 16 << 10

// CheckMetadata says what is wrong with labels of any names.
func CheckMetadata(m map[string]string) error { return Foreign{Metadata: m}.check() }

func (f Foreign) check() error {
	size := 0
	for k, v := range f.Metadata {
		if err := kind.NoNUL("metadata", k+v); err != nil {
			return err
		}
		size += len(k) + len(v)
	}
	if size > maxMetadata {
		return kind.Invalid("metadata", "is %d bytes in total; the limit is %d", size, maxMetadata)
	}
	return nil
}

func (c CreateSandbox) check() error {
	r := func(field string, v, least, most float64) error {
		if v != 0 && (v < least || v > most) {
			return kind.Invalid(field, "must be between %s and %s, not %s", kind.Plain(least), kind.Plain(most), kind.Plain(v))
		}
		return nil
	}
	for _, err := range []error{
		r("cpus", c.CPUs, 0.1, 64), r("memory_mb", float64(c.MemoryMB), 64, 262144),
		r("max_lifetime_seconds", c.MaxLifetimeSeconds, 1, year.Seconds()), r("paused_timeout_seconds",
			c.PausedTimeoutSeconds, 1, year.Seconds()),
		r("disk_mb", float64(c.DiskMB), 1, 262144), r("pids", float64(c.Pids), 32, 32768),
		kind.CheckEnv("env", c.Env), c.Git.Check(), c.Setup.Check(), checkLabels(c.Labels), c.Foreign.check(),
		kind.NoNUL("key", c.Key), kind.NoNUL("image", c.Image),
	} {
		if err != nil {
			return err
		}
	}
	if c.OnLost != "" && c.OnLost != models.OnLostRecreate {
		return kind.Invalid("on_lost", "must be recreate or left out, not %q", c.OnLost)
	}
	if c.OnTimeout != "" && c.OnTimeout != "delete" && c.OnTimeout != "pause" {
		return kind.Invalid("on_timeout", "must be delete or pause, not %q", c.OnTimeout)
	}
	return nil
}

func checkLabels(labels map[string]string) error {
	name := regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._/-]{0,62}$`)
	if len(labels) > 64 {
		return kind.Invalid("labels", "has %d entries; the limit is 64", len(labels))
	}
	for k, v := range labels {
		if !name.MatchString(k) {
			return kind.Invalid("labels", "%q is not a valid label name; use letters, digits and ._/-, at most 63", k)
		}
		if len(v) > 256 {
			return kind.Invalid("labels."+k, "is longer than 256 bytes")
		}
		if err := kind.NoNUL("labels."+k, v); err != nil {
			return err
		}
	}
	return nil
}

// checkSetup refuses what can be seen to fail: a clone without a way out, or a secret that the tenant has not.
func (c *Client) checkSetup(ctx context.Context, wish CreateSandbox, box *models.Sandbox) error {
	policy, err := kind.PolicyOf(box.Egress)
	if err != nil {
		return err
	}
	if wish.Git != nil && policy.Off() {
		return kind.Invalid(
			"git",
			"cannot reach %s, because the sandbox has no network; set egress, such as {\"allow\": [%q]}, or network",
			wish.Git.Host(),
			wish.Git.Host(),
		)
	}
	for _, one := range (kind.Spec{Git: wish.Git, Setup: wish.Setup}).Steps() {
		if err := c.knowsSecrets(ctx, box.TenantID, one.Secrets.Secrets); err != nil {
			return err
		}
	}
	return nil
}
