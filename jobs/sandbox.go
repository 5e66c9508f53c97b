package jobs

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"sandyard/models"
	"sandyard/providers"
)

// Budgets of jobs that change a sandbox, apart from any time they wait in the queue.
const (
	createTimeout = 2 * time.Minute
	deleteTimeout = time.Minute
	fileTimeout   = time.Minute
	launchTimeout = time.Minute
)

// Create makes the sandbox that its row describes.
type Create struct {
	// ReadySeconds is how long its template's programs may take to be ready.
	ReadySeconds float64 `json:"ready_seconds,omitempty"`
}

// sandboxSpec is the part of a sandbox's wish that its columns do not hold.
type sandboxSpec struct {
	Env       map[string]string   `json:"env,omitempty"`
	Resources providers.Resources `json:"resources"`
	Public    bool                `json:"public,omitempty"` // for the edge: the ports need no token
	Git       *Git                `json:"git,omitempty"`
	Setup     *Setup              `json:"setup,omitempty"`
	Next      []place             `json:"next,omitempty"` // where it may be made if its provider cannot make it
	fromTemplate
}

// Kind implements Args.
func (*Create) Kind() string { return models.KindCreate }

// Validate implements Args.
func (*Create) Validate() error { return nil }

func (*Create) run(ctx context.Context, a *attempt) (result, error) {
	box, err := a.takeSandbox(ctx)
	if err != nil {
		return result{}, err
	}
	spec, err := a.w.wanted(ctx, box)
	if err != nil {
		return result{}, err
	}
	if err := a.w.pace(ctx); err != nil {
		return result{}, err
	}
	made, err := a.w.provider.Create(ctx, spec)
	if build, ok := buildOf(box); ok && errors.Is(err, providers.ErrImageMissing) {
		a.slot.rest()
		if err = a.w.buildHere(ctx, box, build); err == nil {
			made, err = a.w.provider.Create(ctx, spec)
		}
	}
	if err == nil {
		err = a.offerNetwork(ctx, box) // which the start command may need
	}
	if err == nil {
		err = a.setUp(ctx, box)
	}
	if err == nil {
		err = a.startUp(ctx, box)
	}
	remove := func(ctx context.Context) error { return a.w.provider.Delete(ctx, spec.ID) }
	if err != nil {
		// Not before the end is committed: until then it may be another attempt's sandbox by now.
		return result{settled: remove}, err
	}
	// A sandbox that was ended meanwhile has nobody left to remove it but us.
	return result{
		change: models.Change{To: models.SandboxRunning, Ref: made.Ref}, orphaned: remove,
		settled: func(ctx context.Context) error { return a.forgetSteps(ctx, box) },
	}, nil
}

// pace waits for the turn of one more create.
func (w *Worker) pace(ctx context.Context) error {
	if w.creates == nil {
		return nil
	}
	return w.creates.Wait(ctx)
}

// buildOf returns the build that a sandbox's image came from.
func buildOf(box models.Sandbox) (string, bool) {
	s, err := specOf(box)
	return s.Build, err == nil && s.Build != ""
}

// takeSandbox writes down that this node makes the sandbox. Where another has more room, the sandbox is that one's and
// the job goes there.
func (a *attempt) takeSandbox(ctx context.Context) (models.Sandbox, error) {
	h := models.Holder{}
	if a.w.provider.Capabilities().PerNode {
		h = models.Holder{Node: a.w.node.ID, Provider: a.w.node.Provider, Need: a.w.need}
	}
	box, err := a.w.store.BeginCreate(ctx, a.job, h)
	var full *models.RoomError
	if errors.As(err, &full) {
		class := providers.Capacity
		if full.DiskLow > 0 && full.DiskLow+full.Draining == full.Nodes {
			class = providers.DiskFull
		}
		err = providers.Errorf(class, "none of %d workers has room for the sandbox (%d are draining, the disks of %d are nearly full); "+
			"delete sandboxes, raise MAX_SANDBOXES, MAX_CPUS, MAX_MEMORY_MB or MAX_PIDS, free disk space, or start another worker", full.Nodes, full.Draining, full.DiskLow)
	}
	return box, err
}

// besidePids are the processes and threads of a sandbox that its own limit does not count: the guest's, and the engine's for it.
const besidePids = 64

// need is what a sandbox takes of the node's room.
func (w *Worker) need(box models.Sandbox) (models.Need, error) {
	s, err := specOf(box)
	r := s.Resources
	if p, ok := w.provider.(providers.Defaulter); ok {
		d := p.Defaults()
		r.CPUs, r.MemoryMB, r.Pids = cmp.Or(r.CPUs, d.CPUs), cmp.Or(r.MemoryMB, d.MemoryMB), cmp.Or(r.Pids, d.Pids)
	}
	return models.Need{CPUs: r.CPUs, MemoryMB: r.MemoryMB, Pids: r.Pids + besidePids}, err
}

// wanted is what the provider is to make, if the tenant may have the image.
func (w *Worker) wanted(ctx context.Context, box models.Sandbox) (providers.Spec, error) {
	s, err := specOf(box)
	if err == nil && !s.Shared && w.provider.Capabilities().Images != providers.Unsupported {
		err = w.checkAgain(ctx, box.TenantID, box.Image)
	}
	if err != nil {
		return providers.Spec{}, err
	}
	policy, err := PolicyOf(box.Egress)
	spec := providers.Spec{
		ID: box.ID, Image: box.Image, Env: s.Env, WorkDir: s.WorkDir, Runtime: s.Runtime, Resources: s.Resources,
		Labels: box.Labels, Timeout: time.Duration(box.TimeoutMS)*time.Millisecond + beyond, Network: !policy.Off(),
	}
	for _, port := range s.Ports {
		spec.Ports = append(spec.Ports, uint16(port))
	}
	return spec, err
}

func specOf(box models.Sandbox) (s sandboxSpec, err error) {
	if err := json.Unmarshal(box.Spec, &s); err != nil {
		return s, fmt.Errorf("read the sandbox's spec: %w", err)
	}
	return s, nil
}

// Delete removes the sandbox with everything in it.
type Delete struct {
	Reason string `json:"reason,omitempty" doc:"Stored as the sandbox's end_reason"`
}

// Kind implements Args.
func (*Delete) Kind() string { return models.KindDelete }

// Validate implements Args.
func (d *Delete) Validate() error { return noNUL("reason", d.Reason) }

func (d *Delete) run(ctx context.Context, a *attempt) (result, error) {
	ended, err := a.w.store.BeginDelete(ctx, a.job, models.End{Reason: orDeleted(d.Reason), Actor: a.job.Actor})
	if err != nil {
		return result{}, err
	}
	a.w.queue.Announce(ctx, ended...)
	a.w.queue.Interrupt(ctx, a.job.SandboxID)
	if err := a.measureLast(ctx); err != nil {
		return result{}, err
	}
	err = a.w.provider.Delete(ctx, a.job.SandboxID)
	return result{change: models.Change{To: models.SandboxDeleted, Reason: orDeleted(d.Reason)}}, err
}

func orDeleted(reason string) string {
	if reason == "" {
		return "deleted"
	}
	return reason
}

// Pause freezes the sandbox with its memory.
type Pause struct {
	Reason string `json:"reason,omitempty" doc:"Stored in the sandbox's events"`
}

// Kind implements Args.
func (*Pause) Kind() string { return models.KindPause }

// Validate implements Args.
func (p *Pause) Validate() error { return noNUL("reason", p.Reason) }

func (*Pause) run(ctx context.Context, a *attempt) (result, error) {
	p, err := a.pauser()
	if err != nil {
		return result{}, err
	}
	wanted, undo, err := a.w.store.BeginPause(ctx, a.job, a.job.Actor == schedulerActor)
	if err == nil && undo && a.job.Attempt > 1 { // an earlier attempt may have come further
		err = p.Resume(ctx, a.job.SandboxID)
	}
	if err != nil || !wanted {
		return result{state: models.Cancelled, change: models.Change{Overtaken: true}, err: &models.JobError{
			Code: "overtaken", Message: "the sandbox was not paused: it was resumed, or its timeout was changed, after this pause was submitted",
		}}, err
	}
	return result{change: models.Change{To: models.SandboxPaused}}, p.Pause(ctx, a.job.SandboxID)
}

// Resume thaws a paused sandbox; its timeout starts anew.
type Resume struct {
	TimeoutSeconds float64 `json:"timeout_seconds,omitempty" doc:"The timeout after the resume, at most 86400; of several concurrent resumes the longest counts. Absent: the previous timeout"`
}

// Kind implements Args.
func (*Resume) Kind() string { return models.KindResume }

// Validate implements Args.
func (r *Resume) Validate() error {
	_, err := r.duration()
	return err
}

func (r *Resume) duration() (time.Duration, error) {
	return seconds("timeout_seconds", r.TimeoutSeconds, 0, time.Second)
}

func (*Resume) run(ctx context.Context, a *attempt) (result, error) {
	p, err := a.pauser()
	if err == nil {
		err = a.w.store.BeginResume(ctx, a.job)
	}
	if err != nil {
		return result{}, err
	}
	return result{
		change:  models.Change{To: models.SandboxRunning},
		settled: func(context.Context) error { a.w.tendNetworks(); return nil },
	}, p.Resume(ctx, a.job.SandboxID)
}

func (a *attempt) pauser() (providers.Pauser, error) {
	p, ok := a.w.provider.(providers.Pauser)
	if !ok {
		return nil, providers.Errorf(providers.NotSupported, "provider %s cannot pause a sandbox", a.w.node.Provider)
	}
	return p, nil
}

// SetTimeout moves the time at which the sandbox ends, counted from the request. The new time holds from the moment
// the job is accepted; the job's end only confirms it.
type SetTimeout struct {
	TimeoutSeconds float64 `json:"timeout_seconds" doc:"From now on; at most 86400"`
	OnlyLater      bool    `json:"only_later,omitempty" doc:"Never shorten the current timeout, so that concurrent requests cannot take time from each other"`
}

// SetTimeoutResult says when the sandbox ends now.
type SetTimeoutResult struct {
	ExpiresAt time.Time `json:"expires_at"`
}

// Kind implements Args.
func (*SetTimeout) Kind() string { return "timeout" }

// Validate implements Args.
func (s *SetTimeout) Validate() error {
	if s.TimeoutSeconds == 0 {
		return invalid("timeout_seconds", "is missing")
	}
	_, err := s.duration()
	return err
}

func (s *SetTimeout) duration() (time.Duration, error) {
	return seconds("timeout_seconds", s.TimeoutSeconds, 0, time.Second)
}

func (s *SetTimeout) run(ctx context.Context, a *attempt) (result, error) {
	box, err := a.w.store.Sandbox(ctx, a.job.TenantID, a.job.SandboxID)
	return result{value: SetTimeoutResult{box.ExpiresAt}}, err
}
