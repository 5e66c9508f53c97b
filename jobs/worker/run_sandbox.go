package worker

import (
	"cmp"
	"context"
	"errors"
	"time"

	"sandyard/jobs/kind"
	"sandyard/jobs/node"
	"sandyard/models"
	"sandyard/providers"
)

func runCreate(ctx context.Context, a *attempt, _ *kind.Create) (result, error) {
	box, err := a.takeSandbox(ctx)
	if err != nil {
		return result{}, err
	}
	s, err := kind.SpecOf(box)
	if err != nil {
		return result{}, err
	}
	spec, err := a.w.wanted(ctx, box, s)
	if err != nil {
		return result{}, err
	}
	if err := a.w.pace(ctx); err != nil {
		return result{}, err
	}
	made, err := a.w.provider.Create(ctx, spec)
	if s.Build != "" && errors.Is(err, providers.ErrImageMissing) {
		a.slot.Rest()
		if err = a.w.buildHere(ctx, box, s); err == nil {
			made, err = a.w.provider.Create(ctx, spec)
		}
	}
	if err == nil {
		err = a.offerNetwork(ctx, box) // which the start command may need
	}
	if err == nil {
		err = a.setUp(ctx, box.ID, s.Steps())
	}
	if err == nil {
		err = a.comeUp(ctx, s)
	}
	remove := func(ctx context.Context) error { return a.w.provider.Delete(ctx, spec.ID) }
	if err != nil {
		// Not before the end is committed: until then it may be another attempt's sandbox by now.
		return result{afterCommit: remove}, err
	}
	// A sandbox that was ended meanwhile has nobody left to remove it but us.
	return result{
		change: models.Transition{To: models.SandboxRunning, Ref: made.Ref}, afterSandboxGone: remove,
		afterCommit: func(ctx context.Context) error { return a.forgetSteps(ctx, s.Steps()) },
	}, nil
}

// pace waits for the turn of one more create.
func (w *Worker) pace(ctx context.Context) error {
	if w.creates == nil {
		return nil
	}
	return w.creates.Wait(ctx)
}

// takeSandbox writes down that this node makes the sandbox. Where another has more room, the sandbox is that one's and
// the job goes there.
func (a *attempt) takeSandbox(ctx context.Context) (models.Sandbox, error) {
	h := models.Holder{}
	if a.w.provider.Capabilities().PerNode {
		h = models.Holder{Node: a.w.node.ID, Provider: a.w.node.Provider, Need: a.w.need}
	}
	box, err := a.w.store.BeginCreate(ctx, a.job, h)
	if full, ok := errors.AsType[*models.RoomError](err); ok {
		class := providers.Capacity
		if full.DiskLow > 0 && full.DiskLow+full.Draining == full.Nodes {
			class = providers.DiskFull
		}
		err = class.Errorf(
			"none of %d workers has room for the sandbox (%d are draining, the disks of %d are nearly full); "+
				"delete sandboxes, raise MAX_SANDBOXES, MAX_CPUS, MAX_MEMORY_MB or MAX_PIDS, free disk space, or start another "+
				"worker",
			full.Nodes,
			full.Draining,
			full.DiskLow,
		)
	}
	return box, err
}

// need is what a sandbox takes of the node's room.
func (w *Worker) need(box models.Sandbox) (models.Need, error) {
	s, err := kind.SpecOf(box)
	r := s.Resources
	if p, ok := w.provider.(providers.Defaulter); ok {
		d := p.Defaults()
		r.CPUs, r.MemoryMB, r.Pids = cmp.Or(r.CPUs, d.CPUs), cmp.Or(r.MemoryMB, d.MemoryMB), cmp.Or(r.Pids, d.Pids)
	}
	return models.Need{CPUs: r.CPUs, MemoryMB: r.MemoryMB, Pids: r.Pids + kind.BesidePids}, err
}

// wanted is what the provider is to make, if the tenant may have the image.
func (w *Worker) wanted(ctx context.Context, box models.Sandbox, s kind.Spec) (providers.Spec, error) {
	if !s.Shared && w.provider.Capabilities().Images != providers.Unsupported {
		if err := w.checkAgain(ctx, box.TenantID, box.Image); err != nil {
			return providers.Spec{}, err
		}
	}
	policy, err := kind.PolicyOf(box.Egress)
	spec := providers.Spec{
		ID: box.ID, Image: box.Image, Env: s.Env, WorkDir: s.WorkDir, Runtime: s.Runtime, Resources: s.Resources,
		Labels: box.Labels, Timeout: time.Duration(box.TimeoutMS)*time.Millisecond + node.Beyond, Network: !policy.Off(),
	}
	for _, port := range s.Ports {
		spec.Ports = append(spec.Ports, uint16(port))
	}
	return spec, err
}

func runDelete(ctx context.Context, a *attempt, d *kind.Delete) (result, error) {
	ended, err := a.w.store.BeginDelete(ctx, a.job, models.End{Reason: d.EndReason(), Actor: a.job.Actor})
	if err != nil {
		return result{}, err
	}
	a.w.queue.Announce(ctx, ended...)
	a.w.queue.Interrupt(ctx, a.job.SandboxID)
	if err := a.w.usage.Last(ctx, a.job.TenantID, a.job.SandboxID); err != nil {
		return result{}, err
	}
	err = a.w.provider.Delete(ctx, a.job.SandboxID)
	return result{change: models.Transition{To: models.SandboxDeleted, Reason: d.EndReason()}}, err
}

func runPause(ctx context.Context, a *attempt, _ *kind.Pause) (result, error) {
	p, err := a.pauser()
	if err != nil {
		return result{}, err
	}
	wanted, undo, err := a.w.store.BeginPause(ctx, a.job, a.job.Actor == kind.SchedulerActor)
	if err == nil && undo && a.job.Attempt > 1 { // an earlier attempt may have come further
		err = p.Resume(ctx, a.job.SandboxID)
	}
	if err != nil || !wanted {
		return result{state: models.Cancelled, change: models.Transition{Overtaken: true}, err: &models.JobError{
			Code: "overtaken", Message: "the sandbox was not paused: it was resumed, or its timeout was changed, after this " +
				"pause was submitted",
		}}, err
	}
	return result{change: models.Transition{To: models.SandboxPaused}}, p.Pause(ctx, a.job.SandboxID)
}

func runResume(ctx context.Context, a *attempt, _ *kind.Resume) (result, error) {
	p, err := a.pauser()
	if err == nil {
		err = a.w.store.BeginResume(ctx, a.job)
	}
	if err != nil {
		return result{}, err
	}
	return result{
		change:      models.Transition{To: models.SandboxRunning},
		afterCommit: func(context.Context) error { a.w.networks.Tend(); return nil },
	}, p.Resume(ctx, a.job.SandboxID)
}

func (a *attempt) pauser() (providers.Pauser, error) {
	p, ok := a.w.provider.(providers.Pauser)
	if !ok {
		return nil, providers.NotSupported.Errorf("provider %s cannot pause a sandbox", a.w.node.Provider)
	}
	return p, nil
}

func runSetTimeout(ctx context.Context, a *attempt, s *kind.SetTimeout) (result, error) {
	box, err := a.w.store.Sandbox(ctx, a.job.TenantID, a.job.SandboxID)
	return result{value: kind.SetTimeoutResult{ExpiresAt: box.ExpiresAt}}, err
}
