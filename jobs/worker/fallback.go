package worker

import (
	"context"
	"encoding/json"
	"errors"
	"slices"

	"sandyard/jobs/circuit"
	"sandyard/jobs/kind"
	"sandyard/models"
	"sandyard/providers"
)

// moveOn gives a create to the next provider of its order, if the error is one for which another may be asked: no room,
// a quota or an outage. What this provider may have made all the same is removed when it is reconciled.
func (a *attempt) moveOn(ctx context.Context, why error) bool {
	if a.job.Kind != models.KindCreate || a.isCancelled() || !fallsBack(why) {
		return false
	}
	ctx, cancel := a.w.waits.Within(ctx, a.w.lease)
	defer cancel()
	box, err := a.w.store.Sandbox(ctx, a.job.TenantID, a.job.SandboxID)
	if err != nil || box.Provider != a.w.node.Provider {
		return false
	}
	spec, err := kind.SpecOf(box)
	if err != nil || len(spec.Next) == 0 {
		return false
	}
	to := spec.Next[0]
	spec.Next = spec.Next[1:]
	text, err := json.Marshal(spec)
	if err != nil {
		return false
	}
	tasks, err := a.w.store.MoveProvider(ctx, a.job, models.Place{Provider: to.Provider, Image: to.Image, Spec: text},
		models.Requeue{AttemptRef: a.held(), Reason: reasonOf(why) + "; provider " + to.Provider + " is next"})
	if err != nil {
		a.log.WarnContext(ctx, "sandbox not given to the next provider", "to", to.Provider, "error", err)
		return false
	}
	a.log.WarnContext(ctx, "sandbox given to the next provider", "to", to.Provider, "reason", loggable(why))
	a.w.queue.Send(ctx, tasks)
	return true
}

// fallsBack says whether another provider may succeed where this one did not.
func fallsBack(err error) bool {
	if errors.As(err, new(*circuit.AwayError)) {
		return true
	}
	var p *providers.Error
	return errors.As(err, &p) && slices.Contains([]providers.Class{
		providers.Capacity, providers.Quota, providers.DiskFull, providers.RateLimited, providers.Refused,
		providers.KeyRefused,
	}, p.Class)
}
