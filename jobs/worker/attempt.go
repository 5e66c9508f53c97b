package worker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"sandyard/jobs/kind"
	"sandyard/jobs/slots"
	"sandyard/models"
	"sandyard/models/pg"
	"sandyard/providers"
)

// Why an attempt lets go of its job before it has ended.
var (
	errFenced   = errors.New("the job belongs to another worker now")
	errShutdown = errors.New("the worker is stopping")
	errCancel   = errors.New("a cancel was requested")
)

// attempt is one try of this worker at a job.
type attempt struct {
	w       *Worker
	job     models.Job
	slot    *slots.Slot
	lasts   *time.Timer // until it gives the slot back without being asked
	log     *slog.Logger
	began   time.Time
	abandon context.CancelCauseFunc // ends the attempt's context: it must let go
	entered bool                    // the sandbox was running

	mu        sync.Mutex
	finishing bool // its row may be terminal already: not seen by a heartbeat is no news
	cancelled bool // from the start where the job was while nobody had it
	killing   bool
	refused   time.Time     // when the last kill failed
	rest      time.Duration // for which the provider wants no further one
	kill      func() error
}

// result is what a kind's run brings home when it did not fail.
type result struct {
	state            models.JobState // empty = succeeded
	detached         bool            // what was started goes on, so that it is too late for a cancel
	value            any             // becomes the job's result
	err              *models.JobError
	stdout           []byte
	stderr           []byte
	content          []byte
	change           models.Transition
	grant            *models.PortGrant
	afterCommit      func(context.Context) error // when the end is committed
	afterSandboxGone func(context.Context) error // when the sandbox had ended meanwhile
}

func (a *attempt) held() models.AttemptRef {
	return models.AttemptRef{ID: a.job.ID, Attempt: a.job.Attempt}
}

// fence makes the attempt let go of a job that is not ours any more.
func (a *attempt) fence() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.finishing {
		a.abandon(errFenced)
	}
}

// open connects to the job's sandbox. A provider that hangs is given up long before a program that may run for a day.
func (a *attempt) open(ctx context.Context) (providers.Sandbox, error) {
	ctx, cancel := context.WithTimeout(ctx, a.w.patience)
	defer cancel()
	sb, err := a.w.provider.Open(ctx, a.job.SandboxID)
	a.entered = a.entered || err == nil
	return sb, err
}

// file runs f on the sandbox's files; what f returns becomes the job's result.
func (a *attempt) file(ctx context.Context, f func(providers.Files) (any, error)) (result, error) {
	sb, err := a.open(ctx)
	if err != nil {
		return result{}, err
	}
	v, err := f(sb)
	return result{value: v}, err
}

// onCancel makes f the way to cancel this attempt, instead of ending its context. f is called again at every heartbeat
// until it has succeeded.
func (a *attempt) onCancel(f func() error) (stop func()) {
	a.mu.Lock()
	a.kill = f
	asked := a.cancelled
	a.mu.Unlock()
	if asked {
		a.requestCancel()
	}
	return func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.kill = nil
	}
}

func (a *attempt) requestCancel() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.cancelled = true
	if a.kill == nil {
		if !models.IsProgram(a.job.Kind) { // a program that is not running yet is told when it is
			a.abandon(errCancel)
		}
		return
	}
	if a.killing || time.Since(a.refused) < a.rest {
		return
	}
	a.killing = true
	kill := a.kill
	go a.doKill(kill)
}

func (a *attempt) doKill(kill func() error) {
	err := kill()
	a.mu.Lock()
	defer a.mu.Unlock()
	a.killing = false
	if err != nil {
		a.refused, a.rest = time.Now(), retryAfter(err)
		a.log.Warn("exec not killed, trying again at the next heartbeat", "error", err)
	}
}

func (a *attempt) isCancelled() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.cancelled
}

// execute runs the job's kind within its time.
func (a *attempt) execute(ctx context.Context) (result, error) {
	args, err := kind.FromJob(a.job)
	if err != nil {
		return result{}, err
	}
	limit := a.job.Timeout()
	if models.IsProgram(a.job.Kind) || a.job.Kind == models.KindExecWait {
		limit += a.w.patience // they have their own clock; this only catches a provider that hangs
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	a.log.InfoContext(ctx, "job started")
	return a.persist(ctx, args)
}

// persist runs the kind, again for as long as our own database is away, which says nothing about the job. That is as
// safe as a further attempt, and costs none.
func (a *attempt) persist(ctx context.Context, args kind.Args) (result, error) {
	for pause := (retryPause{}); ; {
		res, err := a.perform(ctx, args)
		if !isOurs(err) || ctx.Err() != nil {
			return res, err
		}
		a.log.WarnContext(ctx, "database unavailable, trying again", "error", err)
		if !pause.wait(ctx) {
			return res, err
		}
	}
}

// isOurs says whether an error is our database's, not the provider's.
func isOurs(err error) bool {
	var inside *providers.Error
	return err != nil && !errors.As(err, &inside) && pg.IsUnavailable(err)
}

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
	return runners()[args.Kind()](ctx, a, args)
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
