package models_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"sandyard/dev/testdb"
	"sandyard/models"
)

const lease = 30 * time.Second

// open returns a migrated store on a database of its own, with the first tenant in it.
func open(t *testing.T, window int) *models.Store {
	t.Helper()
	return openAt(t, testdb.New(t), window)
}

func openAt(t *testing.T, dsn string, window int) *models.Store {
	t.Helper()
	s, err := models.Open(t.Context(), dsn, 8, models.Limits{Window: window})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	if key, err := s.Bootstrap(t.Context()); err != nil || key == "" {
		t.Fatalf("bootstrap: key %q, %v", key, err)
	}
	return s
}

func newJob(kind, sandbox string) models.Job {
	return models.Job{
		ID: models.NewID("job_"), TenantID: "default", SandboxID: sandbox, Kind: kind, Actor: "test",
		Args: json.RawMessage(`{}`), TimeoutMS: 1000, MaxAttempts: 5,
	}
}

func newSandbox() *models.Sandbox {
	return &models.Sandbox{
		ID: models.NewID("sb"), TenantID: "default", Provider: "fake", Image: "image",
		State: models.SandboxCreating, Desired: models.DesiredRunning, Spec: json.RawMessage(`{}`),
		TimeoutMS: 60_000, OnTimeout: "delete",
	}
}

// create submits a sandbox with its create job and the further jobs.
func create(t *testing.T, s *models.Store, box *models.Sandbox, kinds ...string) models.Submitted {
	t.Helper()
	sub := models.Submission{TenantID: "default", SandboxID: box.ID, New: box, Timeout: time.Minute}
	for _, k := range append([]string{models.KindCreate}, kinds...) {
		sub.Jobs = append(sub.Jobs, newJob(k, box.ID))
	}
	out, err := s.Submit(t.Context(), sub)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// finish claims the dispatched job and ends it as succeeded.
func finish(t *testing.T, s *models.Store, d models.Dispatch, to models.SandboxState) models.FinishEffects {
	t.Helper()
	c, err := s.Claim(t.Context(), d.JobID, "node", lease)
	if err != nil {
		t.Fatalf("claim %s: %v", d.JobID, err)
	}
	f, err := s.Finish(t.Context(), outcome(c, models.Succeeded, to))
	if err != nil {
		t.Fatalf("finish %s: %v", d.JobID, err)
	}
	return f
}

func outcome(j models.Job, state models.JobState, to models.SandboxState) models.Outcome {
	return models.Outcome{
		AttemptRef: models.AttemptRef{ID: j.ID, Attempt: j.Attempt}, SandboxID: j.SandboxID, Kind: j.Kind,
		State: state, Sandbox: models.Transition{To: to},
	}
}

func state(t *testing.T, s *models.Store, id string) models.JobState {
	t.Helper()
	j, err := s.Job(t.Context(), "default", id)
	if err != nil {
		t.Fatal(err)
	}
	return j.State
}

func TestChainRunsJobsInOrder(t *testing.T) {
	t.Parallel()
	s := open(t, 100)
	out := create(t, s, newSandbox(), "write", "exec", models.KindDelete)
	if len(out.Dispatch) != 1 || out.Dispatch[0].JobID != out.Jobs[0].ID || out.Dispatch[0].Queue != "fake" {
		t.Fatalf("only the create may be dispatched, to the provider's queue: %+v", out.Dispatch)
	}
	next := out.Dispatch
	for i, to := range []models.SandboxState{models.SandboxRunning, "", "", models.SandboxDeleted} {
		if len(next) != 1 || next[0].JobID != out.Jobs[i].ID {
			t.Fatalf("step %d: dispatched %+v, want job %s", i, next, out.Jobs[i].ID)
		}
		next = finish(t, s, next[0], to).Dispatch
	}
	box, err := s.Sandbox(t.Context(), "default", out.Sandbox.ID)
	if err != nil || box.State != models.SandboxDeleted || box.EndedAt == nil {
		t.Fatalf("sandbox after its delete: %+v, %v", box, err)
	}
}

func TestClaimIsWonOnceAndFenced(t *testing.T) {
	t.Parallel()
	s := open(t, 100)
	d := create(t, s, newSandbox()).Dispatch[0]
	first, err := s.Claim(t.Context(), d.JobID, "a", -time.Second) // its lease has ended already
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Claim(t.Context(), d.JobID, "b", lease); !errors.Is(err, models.ErrStale) {
		t.Fatalf("a second claim answered %v", err)
	}
	lost, err := s.ExpiredLeases(t.Context(), time.Now(), 10)
	if err != nil || len(lost) != 1 {
		t.Fatalf("expired leases: %+v, %v", lost, err)
	}
	f, err := s.Recover(t.Context(), lost[0])
	if err != nil || len(f.Dispatch) != 1 || f.Dispatch[0].Generation <= d.Generation {
		t.Fatalf("recover: %+v, %v", f, err)
	}
	second, err := s.Claim(t.Context(), d.JobID, "b", lease)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Finish(t.Context(), outcome(first, models.Failed, "")); !errors.Is(err, models.ErrStale) {
		t.Fatalf("the fenced attempt finished: %v", err)
	}
	_, beats, err := s.Heartbeat(t.Context(), models.Node{ID: "a"}, []models.AttemptRef{{ID: d.JobID, Attempt: first.Attempt}}, lease)
	if err != nil || len(beats) != 0 {
		t.Fatalf("the fenced attempt's heartbeat: %+v, %v", beats, err)
	}
	if _, err := s.Finish(t.Context(), outcome(second, models.Succeeded, models.SandboxRunning)); err != nil {
		t.Fatal(err)
	}
}

func TestFailedCreateEndsWhatWaits(t *testing.T) {
	t.Parallel()
	s := open(t, 100)
	out := create(t, s, newSandbox(), "exec", models.KindDelete)
	c, err := s.Claim(t.Context(), out.Jobs[0].ID, "node", lease)
	if err != nil {
		t.Fatal(err)
	}
	f, err := s.Finish(t.Context(), outcome(c, models.Failed, ""))
	if err != nil || len(f.Ended) != 3 {
		t.Fatalf("finish: %+v, %v", f, err)
	}
	exec, err := s.Job(t.Context(), "default", out.Jobs[1].ID)
	if err != nil || exec.State != models.Failed || exec.Error == nil || exec.Error.Code != "sandbox_failed" {
		t.Fatalf("the waiting exec: %+v, %v", exec, err)
	}
	if got := state(t, s, out.Jobs[2].ID); got != models.Succeeded {
		t.Fatalf("the waiting delete is %s", got)
	}
	_, err = s.Submit(t.Context(), models.Submission{
		TenantID: "default", SandboxID: out.Sandbox.ID,
		Jobs: []models.Job{newJob("exec", out.Sandbox.ID)},
	})
	var ended *models.EndedError
	if !errors.As(err, &ended) || ended.State != models.SandboxFailed {
		t.Fatalf("submit to the failed sandbox: %v", err)
	}
}

func TestWindowHoldsJobsBack(t *testing.T) {
	t.Parallel()
	s := open(t, 2)
	var ids []string
	dispatched := 0
	for range 5 {
		out := create(t, s, newSandbox())
		ids = append(ids, out.Jobs[0].ID)
		dispatched += len(out.Dispatch)
	}
	if dispatched != 2 {
		t.Fatalf("%d dispatched, the window is 2", dispatched)
	}
	f := finish(t, s, models.Dispatch{JobID: ids[0]}, models.SandboxRunning)
	if len(f.Dispatch) != 1 || f.Dispatch[0].JobID != ids[2] {
		t.Fatalf("the oldest that waits must follow: %+v", f.Dispatch)
	}
}

func TestIdempotencyKey(t *testing.T) {
	t.Parallel()
	s := open(t, 100)
	submit := func(request string) (models.Submitted, error) {
		box := newSandbox()
		return s.Submit(context.Background(), models.Submission{
			TenantID: "default", SandboxID: box.ID, New: box,
			Jobs: []models.Job{newJob(models.KindCreate, box.ID)}, IdempotencyKey: "k", Request: []byte(request),
		})
	}
	var mu sync.Mutex
	ids := map[string]bool{}
	var all sync.WaitGroup
	for range 10 {
		all.Go(func() {
			out, err := submit("same")
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				t.Error(err)
				return
			}
			ids[out.Jobs[0].ID] = true
		})
	}
	all.Wait()
	if len(ids) != 1 {
		t.Fatalf("ten requests with one key made %d jobs", len(ids))
	}
	if _, err := submit("other"); !errors.Is(err, models.ErrKeyReused) {
		t.Fatalf("another request with the key: %v", err)
	}
}

func TestForcedEndCancelsWhatWaitsAndRuns(t *testing.T) {
	t.Parallel()
	s := open(t, 100)
	out := create(t, s, newSandbox(), "exec", "exec")
	next := finish(t, s, out.Dispatch[0], models.SandboxRunning).Dispatch
	running, err := s.Claim(t.Context(), next[0].JobID, "node", lease)
	if err != nil {
		t.Fatal(err)
	}
	del := newJob(models.KindDelete, out.Sandbox.ID)
	del.Parallel = true
	ended, err := s.Submit(t.Context(), models.Submission{
		TenantID: "default", SandboxID: out.Sandbox.ID,
		Jobs: []models.Job{del}, End: &models.End{Reason: "forced", Actor: "test"},
	})
	if err != nil || len(ended.Dispatch) != 1 || ended.Dispatch[0].JobID != del.ID {
		t.Fatalf("submit: %+v, %v", ended, err)
	}
	if got := state(t, s, out.Jobs[2].ID); got != models.Cancelled {
		t.Fatalf("the waiting exec is %s", got)
	}
	_, beats, err := s.Heartbeat(t.Context(), models.Node{ID: "node"}, []models.AttemptRef{{ID: running.ID, Attempt: 1}}, lease)
	if err != nil || len(beats) != 1 || !beats[0].Cancel {
		t.Fatalf("the running exec's heartbeat: %+v, %v", beats, err)
	}
}

func TestQuotaHoldsUnderConcurrentCreates(t *testing.T) {
	t.Parallel()
	s := open(t, 1000)
	var mu sync.Mutex
	made, refused := 0, 0
	var all sync.WaitGroup
	for range 120 {
		all.Go(func() {
			box := newSandbox()
			_, err := s.Submit(context.Background(), models.Submission{
				TenantID: "default", SandboxID: box.ID, New: box,
				Jobs: []models.Job{newJob(models.KindCreate, box.ID)},
			})
			var limit *models.LimitError
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err == nil:
				made++
			case errors.As(err, &limit):
				refused++
			default:
				t.Error(err)
			}
		})
	}
	all.Wait()
	if made != 100 || refused != 20 {
		t.Fatalf("made %d, refused %d of a quota of 100", made, refused)
	}
}

func TestConcurrentSubmitsKeepOneOrder(t *testing.T) {
	t.Parallel()
	s := open(t, 1000)
	box := create(t, s, newSandbox()).Sandbox
	var all sync.WaitGroup
	for range 50 {
		all.Go(func() {
			_, err := s.Submit(context.Background(), models.Submission{
				TenantID: "default", SandboxID: box.ID,
				Jobs: []models.Job{newJob("exec", box.ID)},
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	jobs, err := s.Jobs(t.Context(), "default", models.JobFilter{Sandbox: box.ID, Limit: 100})
	if err != nil || len(jobs) != 51 {
		t.Fatalf("%d jobs, %v", len(jobs), err)
	}
	seen := map[int64]bool{}
	for _, j := range jobs {
		if seen[j.Seq] {
			t.Fatalf("number %d was given twice", j.Seq)
		}
		seen[j.Seq] = true
	}
}

func TestDueTimeoutFiresOnce(t *testing.T) {
	t.Parallel()
	s := open(t, 100)
	box := newSandbox()
	box.TimeoutMS = 1
	out := create(t, s, box)
	finish(t, s, out.Dispatch[0], models.SandboxRunning)
	rule := models.DueTimeout()
	due, err := s.Due(t.Context(), rule, 10)
	for ; err == nil && len(due) == 0; due, err = s.Due(t.Context(), rule, 10) {
	}
	if err != nil {
		t.Fatal(err)
	}
	fired := 0
	var mu sync.Mutex
	var all sync.WaitGroup
	for i := range 2 {
		all.Go(func() {
			del := newJob(models.KindDelete, box.ID)
			del.Parallel = true
			_, err := s.Submit(context.Background(), models.Submission{
				TenantID: "default", SandboxID: box.ID,
				Jobs: []models.Job{del}, End: &models.End{Reason: "timeout", Actor: fmt.Sprint("scheduler ", i)},
				Due: models.DueTimeout(),
			})
			mu.Lock()
			defer mu.Unlock()
			if err == nil {
				fired++
			} else if !errors.Is(err, models.ErrNotDue) {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if fired != 1 {
		t.Fatalf("two schedulers fired one timeout %d times", fired)
	}
}
