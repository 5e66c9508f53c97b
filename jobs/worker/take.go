package worker

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"sandyard/jobs/queue"
	"sandyard/jobs/slots"
	"sandyard/models"
)

// lasting is the time after which an attempt that still works gives its slot back: that it waits for something slow,
// such as a hung sandbox, is no reason to start nothing else.
const lasting = time.Second

// handle is called by Asynq with a task. It waits for a slot of the job's lane and claims the job; the attempt then
// goes on by itself, and the task is done with.
func (w *Worker) handle(ctx context.Context, t queue.Task) error {
	id := t.Payload
	if !w.expect(id) {
		return nil // another task for the same job is here
	}
	defer w.expectNot(id)
	err := w.take(ctx, id, models.LaneOf(t.Kind), t.Tenant, t.Again)
	if err != nil && t.Again {
		w.log.WarnContext(ctx, "task dropped, the sweep sends another", "job_id", id, "error", err)
		return queue.ErrDrop // Asynq's archive would keep it for nothing
	}
	return err
}

// take claims a job and sets an attempt to work. Its error is for Asynq only, and means that nothing was begun; Asynq
// calls again then.
func (w *Worker) take(ctx context.Context, id string, lane models.Lane, tenantID string, again bool) error {
	slot, err := w.lanes[lane].Take(ctx, tenantID, func() {})
	if err != nil {
		return err
	}
	ctx = context.WithoutCancel(ctx) // Asynq's deadlines are not ours
	job, err := w.claim(ctx, id, again)
	if err != nil {
		slot.End()
		if errors.Is(err, models.ErrStale) {
			return nil
		}
		return fmt.Errorf("claim job: %w", err)
	}
	ctx, a := w.begin(ctx, job, slot)
	go w.work(ctx, a)
	return nil
}

// work is one attempt, from its beginning to its end.
func (w *Worker) work(ctx context.Context, a *attempt) {
	defer w.end(a)
	defer func() {
		if broke := recover(); broke != nil {
			a.log.ErrorContext(ctx, "attempt panicked", "panic", broke, "stack", string(debug.Stack()))
		}
	}()
	var res result
	err := w.health.Begin()
	if err == nil {
		res, err = a.execute(ctx)
	}
	a.conclude(ctx, res, err)
}

// claim gives up with the lease that it asks for. What an earlier claim has taken without being told is taken again.
func (w *Worker) claim(ctx context.Context, id string, again bool) (models.Job, error) {
	ctx, cancel := context.WithTimeout(ctx, w.lease)
	defer cancel()
	if again && !w.holds(id) {
		return w.store.ClaimAgain(ctx, id, w.node.ID, w.lease)
	}
	return w.store.Claim(ctx, id, w.node.ID, w.lease)
}

// expect notes that a task of the job is here, unless one is.
func (w *Worker) expect(id string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, here := w.coming[id]; here {
		return false
	}
	w.coming[id] = time.Now()
	return true
}

func (w *Worker) expectNot(id string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.coming, id)
}

// handLoop tells the sweep which tasks are here, though their jobs have no slot yet: it would send them again.
func (w *Worker) handLoop() {
	w.life.Every(queue.HandTime/20, nil, func() {
		ctx, cancel := w.life.Within(context.Background(), queue.HandTime/2)
		defer cancel()
		if err := w.queue.InHand(ctx, w.untold()); err != nil {
			w.log.WarnContext(ctx, "waiting tasks not recorded, the sweep may send them again", "error", err)
		}
	})
}

// untold returns the jobs of which the sweep was not told for a while, as told from now on. What has just come is left
// out: it has likely found a slot before anybody asks.
func (w *Worker) untold() (ids []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := time.Now()
	for id, told := range w.coming {
		if now.Sub(told) > queue.HandTime/20 {
			ids, w.coming[id] = append(ids, id), now.Add(queue.HandTime/4)
		}
	}
	return ids
}

// begin holds a job; the context it returns ends when the job must be let go.
func (w *Worker) begin(ctx context.Context, j models.Job, s *slots.Slot) (context.Context, *attempt) {
	a := &attempt{
		w: w, job: j, slot: s, began: time.Now(), cancelled: j.CancelRequestedAt != nil,
		log: w.log.With("job_id", j.ID, "kind", j.Kind, "attempt", j.Attempt, "sandbox_id", j.SandboxID),
	}
	if j.Kind != models.KindCreate { // engines start so many at a time, and no more
		a.lasts = time.AfterFunc(lasting, s.Rest)
	}
	ctx, a.abandon = context.WithCancelCause(ctx)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.held[a.held()] = a
	if w.handsOver {
		a.abandon(errShutdown)
	}
	return ctx, a
}

func (w *Worker) end(a *attempt) {
	a.abandon(nil)
	if a.lasts != nil {
		a.lasts.Stop()
	}
	w.mu.Lock()
	delete(w.held, a.held())
	w.mu.Unlock()
	a.slot.End()
}

func (w *Worker) holds(id string) (found bool) {
	w.each(func(a *attempt) { found = found || a.job.ID == id })
	return found
}

func (w *Worker) each(f func(*attempt)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, a := range w.held {
		f(a)
	}
}
