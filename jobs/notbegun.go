package jobs

import (
	"context"
	"errors"
	"strings"

	"sandyard/models"
	"sandyard/providers"
)

// errNotBegun: a background exec was accepted, and its job has not started it yet.
var errNotBegun = errors.New("the exec has not started yet; the job waits for it")

// awaitStart turns the error that a sandbox does not know an exec into errNotBegun where the exec's job is still to
// start it. A job that has just succeeded may have started it after the sandbox was asked, so the first attempt is
// given back then, too.
func (a *attempt) awaitStart(ctx context.Context, exec string, err error) error {
	var unknown *providers.Error
	if !errors.As(err, &unknown) || unknown.Class != providers.NoExec || !strings.HasPrefix(exec, "job_") {
		return err
	}
	j, lookup := a.w.store.JobEnd(ctx, a.job.TenantID, exec)
	switch {
	case errors.Is(lookup, models.ErrNotFound):
		return err
	case lookup != nil:
		return lookup
	case j.SandboxID != a.job.SandboxID || j.Kind != models.KindExec:
		return err
	case !j.State.Terminal(), j.State == models.Succeeded && a.job.Attempt == 1:
		return errNotBegun
	}
	return err
}
