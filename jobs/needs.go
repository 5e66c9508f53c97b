package jobs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"sandyard/jobs/kind"
	"sandyard/models"
)

// fileNotWritten is the error code of a program that was not started because a file of its run is missing.
const fileNotWritten = "file_not_written"

// perform runs the kind, unless a job that it needs has failed. The needed job has ended: jobs of one sandbox run in
// order.
func (a *attempt) perform(ctx context.Context, args kind.Args) (result, error) {
	if a.job.Needs != nil {
		why, err := a.unmet(ctx, *a.job.Needs)
		if err != nil {
			return result{}, err
		}
		if why != nil {
			return result{state: models.Failed, err: why}, nil
		}
	}
	if err := a.w.referJob(ctx, a.job); err != nil {
		return result{}, err
	}
	return runners()[a.job.Kind](ctx, a, args)
}

// unmet says why a needed write has not done all that it was to do; nil means that it has.
func (a *attempt) unmet(ctx context.Context, needed string) (*models.JobError, error) {
	j, err := a.w.store.JobEnd(ctx, a.job.TenantID, needed)
	switch {
	case errors.Is(err, models.ErrNotFound):
		return notStarted(models.JobError{Message: "the job that writes the files was deleted"}), nil
	case err != nil:
		return nil, err
	case j.Error != nil:
		return notStarted(*j.Error), nil
	case j.State != models.Succeeded:
		return notStarted(models.JobError{Message: "the job that writes the files ended " + string(j.State)}), nil
	}
	return firstUnwritten(j.Result)
}

// firstUnwritten finds the first file of a write of many files that was not written.
func firstUnwritten(stored json.RawMessage) (*models.JobError, error) {
	var done kind.WriteManyResult
	if err := json.Unmarshal(stored, &done); err != nil {
		return nil, fmt.Errorf("read the result of the files' job: %w", err)
	}
	for _, f := range done.Files {
		if f.Error != nil {
			why := *f.Error
			why.Message = fmt.Sprintf("%q: %s (%s)", f.Path, why.Message, why.Code)
			return notStarted(why), nil
		}
	}
	return nil, nil
}

func notStarted(cause models.JobError) *models.JobError {
	return &models.JobError{
		Code: fileNotWritten, Retryable: cause.Retryable,
		Message: "the command did not run, because a file was not written: " + cause.Message,
	}
}
