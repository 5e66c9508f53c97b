package calls

import (
	"fmt"
	"net/http"

	"sandyard/models"
	"sandyard/providers"
	"sandyard/web/problem"
)

// Failure is the answer that a job means which has not succeeded, or not yet.
func Failure(job models.Job, box models.Sandbox) error {
	why := models.JobError{Code: string(job.State), Message: fmt.Sprintf("job %s ended %s", job.ID, job.State)}
	if job.Error != nil {
		why = *job.Error
	}
	switch {
	case !job.State.Terminal() && job.Kind == models.KindExec:
		return problem.New(
			http.StatusRequestTimeout,
			"still_running",
			fmt.Sprintf("the command still runs, as job %s; send the same request "+
				"again to wait for it, or run long commands in the background", job.ID),
		)
	case !job.State.Terminal():
		return problem.New(
			http.StatusRequestTimeout,
			"still_running",
			fmt.Sprintf("the job has not ended in the time of one request; job %s continues, and GET /v1/jobs/%s tells "+
				"its state", job.ID, job.ID),
		)
	case job.State == models.TimedOut, job.State == models.Expired:
		return problem.New(http.StatusRequestTimeout, why.Code, why.Message)
	case job.State == models.Cancelled && box.Ended():
		return problem.New(http.StatusNotFound, "not_found", "the sandbox was deleted while the job waited or ran; create "+
			"another one")
	case job.State == models.Cancelled:
		return problem.New(http.StatusConflict, why.Code, why.Message)
	}
	switch class := providers.Class(why.Code); class {
	case providers.Capacity, providers.DiskFull, providers.RateLimited, providers.Unavailable:
		return problem.RetryLater(problem.New(http.StatusServiceUnavailable, why.Code, why.Message), 2)
	case providers.NotFound, providers.Lost:
		return problem.New(http.StatusNotFound, why.Code, why.Message)
	default:
		return &providers.Error{Class: class, Message: why.Message}
	}
}
