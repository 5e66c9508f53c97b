package jobs

import (
	"encoding/json"
	"regexp"
	"time"

	"sandyard/egress"
	"sandyard/guard"
	"sandyard/models"
	"sandyard/providers"
)

// CreateSandbox is a wish for a sandbox.
type CreateSandbox struct {
	Template             string            `json:"template,omitempty" doc:"A named environment; default python. Or give image"`
	Image                string            `json:"image,omitempty" maxLength:"512" doc:"A container image that the provider holds already, as REPOSITORY:TAG: one of a shared template, of a build of yours, or one that the operator allows (SANDBOX_IMAGES)"`
	Provider             string            `json:"provider,omitempty" doc:"Default is the server's"`
	Key                  string            `json:"key,omitempty" maxLength:"256" doc:"Your own name for it: while a sandbox with this key lives, create returns that one"`
	Labels               map[string]string `json:"labels,omitempty" doc:"For list filters"`
	Env                  map[string]string `json:"env,omitempty" doc:"For every command in it"`
	CPUs                 float64           `json:"cpus,omitempty" doc:"Cores; default 1. The server has a maximum, as for memory, disk and pids"`
	MemoryMB             int64             `json:"memory_mb,omitempty" doc:"Memory and swap; default 512"`
	DiskMB               int64             `json:"disk_mb,omitempty" doc:"Size of the work directory, which counts towards memory; default 256"`
	Pids                 int64             `json:"pids,omitempty" doc:"Processes and threads; default 256"`
	Network              bool              `json:"network,omitempty" doc:"Every public address may be reached, as with egress.allow [\"*\"]. Default false: no network at all"`
	Egress               *egress.Policy    `json:"egress,omitempty" doc:"What may be reached of the outside, through a proxy that programs find in HTTP_PROXY and the like. Private and special addresses are closed in any case, unless the operator opens them"`
	Runtime              string            `json:"runtime,omitempty" maxLength:"64" doc:"OCI runtime that it runs under, such as runsc (gVisor, a kernel of its own); one that the server offers. Default is the template's, else the server's"`
	TimeoutSeconds       float64           `json:"timeout_seconds,omitempty" doc:"It ends that long after it started, or after it was asked for where it has not started by then, whatever it does; default 3600, at most 86400"`
	OnTimeout            string            `json:"on_timeout,omitempty" enum:"delete,pause" doc:"Default delete. A pause that fails is tried again every ten seconds; a sandbox that is still to be made is deleted"`
	OnLost               string            `json:"on_lost,omitempty" enum:"recreate" doc:"recreate: when it is lost, a new sandbox with the same key and settings takes its place, empty; what waited for the lost one ends. Not after five in a row that lived less than ten minutes"`
	AutoResume           bool              `json:"auto_resume,omitempty" doc:"When it is paused, traffic to its ports and jobs that need it running resume it"`
	IdleTimeoutSeconds   float64           `json:"idle_timeout_seconds,omitempty" doc:"It is deleted when for that long no job was submitted to it or has ended, none has run (a wait for a command is one), no traffic came to its ports, no terminal was open and no file was streamed or watched; default 3600. A background command that nobody waits for keeps it no longer, and neither does reading output"`
	MaxLifetimeSeconds   float64           `json:"max_lifetime_seconds,omitempty" minimum:"0" maximum:"31536000" doc:"It is deleted that long after its first start, however often its timeout is set anew or it is paused. The server may have a maximum; 0 = the server's default, which is no limit unless the operator sets one"`
	PausedTimeoutSeconds float64           `json:"paused_timeout_seconds,omitempty" minimum:"0" maximum:"31536000" doc:"It is deleted when it has been paused for that long. The server may have a maximum; 0 = the server's default, which is never unless the operator sets one"`

	// Foreign is what other APIs than our own may ask for.
	Foreign Foreign `json:"-"`
}

// Foreign widens a wish by what the APIs of others know.
type Foreign struct {
	Metadata  map[string]string // labels with any names
	NeverIdle bool
	Public    bool          // its ports need no token
	Egress    egress.Policy // where neither the wish nor its template says anything
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
	Files   []Write
	Exec    Exec
	Code    *Code // in place of Exec
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
	retryOf         string
	needsFiles      bool                // the answer's job needs the one before it, which writes files
	run             *models.ScheduleRun // that the jobs are for
}

// check says what is wrong with the options, whose callback is to heed the rules.
func (o Options) check(callbacks guard.Rules) error {
	if o.Priority < -100 || o.Priority > 100 {
		return invalid("priority", "must be between -100 and 100, not %d", o.Priority)
	}
	if len(o.IdempotencyKey) > 255 {
		return invalid("Idempotency-Key", "is longer than 255 characters")
	}
	if o.QueueDeadline < 0 || o.QueueDeadline > MaxTimeout {
		return invalid("queue_deadline_seconds", "must be between 0 and %.0f", MaxTimeout.Seconds())
	}
	return checkCallback(o.CallbackURL, callbacks)
}

// sandbox makes the row that c wishes for from what it resolves to, with the limits that it asks for.
func (c CreateSandbox) sandbox(tenant string, from source) (*models.Sandbox, providers.Resources, error) {
	timeout, err := seconds("timeout_seconds", c.TimeoutSeconds, DefaultTimeout, time.Second)
	if err != nil {
		return nil, providers.Resources{}, err
	}
	idle, err := seconds("idle_timeout_seconds", c.IdleTimeoutSeconds, DefaultIdleTimeout, time.Second)
	if err != nil {
		return nil, providers.Resources{}, err
	}
	if err := c.check(); err != nil {
		return nil, providers.Resources{}, err
	}
	box := &models.Sandbox{
		ID: models.NewID("sb"), TenantID: tenant, State: models.SandboxCreating,
		Desired: models.DesiredRunning, Labels: c.Labels, OnTimeout: orDelete(c.OnTimeout), OnLost: c.OnLost,
		TimeoutMS: timeout.Milliseconds(), IdleTimeoutMS: idle.Milliseconds(), AutoResume: c.AutoResume,
		MaxLifetimeMS: int64(c.MaxLifetimeSeconds * 1000), PausedTimeoutMS: int64(c.PausedTimeoutSeconds * 1000),
	}
	if c.Key != "" {
		box.Key = &c.Key
	}
	c.Foreign.apply(box)
	if box.Egress, err = c.egress(from.template.Definition.Egress); err != nil {
		return nil, providers.Resources{}, err
	}
	spec := sandboxSpec{Env: c.Env, Public: c.Foreign.Public, Resources: providers.Resources{
		CPUs: c.CPUs, MemoryMB: c.MemoryMB, DiskMB: c.DiskMB, Pids: c.Pids,
	}}
	if err := from.apply(box, &spec); err != nil {
		return nil, providers.Resources{}, err
	}
	box.Spec, err = json.Marshal(spec)
	return box, spec.Resources, err
}

func (f Foreign) apply(box *models.Sandbox) {
	if f.Metadata != nil {
		box.Labels = f.Metadata
	}
	if f.NeverIdle {
		box.IdleTimeoutMS = 0
	}
}

// maxMetadata bounds the metadata of one sandbox, in bytes.
const maxMetadata = 16 << 10

func (f Foreign) check() error {
	size := 0
	for k, v := range f.Metadata {
		if err := noNUL("metadata", k+v); err != nil {
			return err
		}
		size += len(k) + len(v)
	}
	if size > maxMetadata {
		return invalid("metadata", "is %d bytes in all, at most %d are possible", size, maxMetadata)
	}
	return nil
}

func orDelete(s string) string {
	if s == "" {
		return "delete"
	}
	return s
}

func (c CreateSandbox) check() error {
	r := func(field string, v, least, most float64) error {
		if v != 0 && (v < least || v > most) {
			return invalid(field, "must be between %s and %s, not %s", plain(least), plain(most), plain(v))
		}
		return nil
	}
	for _, err := range []error{
		r("cpus", c.CPUs, 0.1, 64), r("memory_mb", float64(c.MemoryMB), 64, 262144),
		r("max_lifetime_seconds", c.MaxLifetimeSeconds, 1, year.Seconds()), r("paused_timeout_seconds", c.PausedTimeoutSeconds, 1, year.Seconds()),
		r("disk_mb", float64(c.DiskMB), 1, 262144), r("pids", float64(c.Pids), 32, 32768),
		checkEnv("env", c.Env), checkLabels(c.Labels), c.Foreign.check(), noNUL("key", c.Key), noNUL("image", c.Image),
	} {
		if err != nil {
			return err
		}
	}
	if c.OnLost != "" && c.OnLost != models.OnLostRecreate {
		return invalid("on_lost", "must be recreate or be left out, not %q", c.OnLost)
	}
	if c.OnTimeout != "" && c.OnTimeout != "delete" && c.OnTimeout != "pause" {
		return invalid("on_timeout", "must be delete or pause, not %q", c.OnTimeout)
	}
	return nil
}

func checkLabels(labels map[string]string) error {
	name := regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._/-]{0,62}$`)
	if len(labels) > 64 {
		return invalid("labels", "are %d, at most 64 are possible", len(labels))
	}
	for k, v := range labels {
		if !name.MatchString(k) {
			return invalid("labels", "%q is not a label's name: use letters, digits and ._/-, at most 63", k)
		}
		if len(v) > 256 {
			return invalid("labels."+k, "is longer than 256 bytes")
		}
		if err := noNUL("labels."+k, v); err != nil {
			return err
		}
	}
	return nil
}
