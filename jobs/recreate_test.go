package jobs_test

import (
	"strings"
	"testing"
	"time"

	"sandyard/jobs"
	"sandyard/models"
)

// lose makes a sandbox lost and returns what has taken its place.
func (r *rig) lose(box string) models.Sandbox {
	r.t.Helper()
	r.state.Vanish(box)
	r.eventually("the sandbox is lost and replaced", func() bool { return r.sandbox(box).ReplacedBy != nil })
	return r.sandbox(*r.sandbox(box).ReplacedBy)
}

func TestLostSandboxIsMadeAgainOnRequest(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.worker(4, reconciling(time.Millisecond))
	r.scheduler()
	wish := jobs.CreateSandbox{Key: "thread", Env: map[string]string{"A": "b"}, OnLost: models.OnLostRecreate}
	box, made := r.create(wish)
	r.wait(made)
	running := r.exec(box, "fake:sleep 1h")
	waiting := r.exec(box, "fake:stdout never")
	r.eventually("the command runs", func() bool { return r.state.Starts(running) == 1 })
	again := r.lose(box)
	for _, id := range []string{running, waiting} {
		if j := r.wait(id); j.State == models.Succeeded {
			t.Errorf("%s succeeded in a sandbox that was lost", j.Kind)
		}
	}
	if again.Key == nil || *again.Key != "thread" || *again.Replaces != box {
		t.Errorf("in its place is %+v", again)
	}
	if j := r.wait(r.exec(again.ID, "fake:env A")); string(j.Stdout) != "b" {
		t.Errorf("in the new one: %s %q %v", j.State, j.Stdout, j.Error)
	}
	_, err := r.client.Submit(t.Context(), box, &jobs.Exec{Command: "true"}, options())
	if err == nil || !strings.Contains(err.Error(), again.ID+" has taken its place") {
		t.Errorf("work for the lost one: %v", err)
	}
	if found, _ := r.create(wish); found != again.ID {
		t.Errorf("under the key is %s, not %s", found, again.ID)
	}
}

// Without end a sandbox that dies at its start would be made again.
func TestSandboxesThatKeepDyingAreGivenUp(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.worker(4, reconciling(time.Millisecond))
	r.scheduler()
	box, made := r.create(jobs.CreateSandbox{OnLost: models.OnLostRecreate})
	r.wait(made)
	for range 5 {
		again := r.lose(box)
		r.eventually("the next one runs", func() bool { return r.sandbox(again.ID).State == models.SandboxRunning })
		box = again.ID
	}
	r.state.Vanish(box)
	r.eventually("the last one is lost", func() bool { return r.sandbox(box).State == models.SandboxLost })
	due, err := r.store.DueRecreations(t.Context(), 10)
	if r.must(err); len(due) > 0 {
		t.Errorf("yet another is to be made: %+v", due)
	}
}

// Two schedulers, or one that dies after its commit, make one.
func TestOneReplacement(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.worker(4, reconciling(time.Millisecond))
	box, made := r.create(jobs.CreateSandbox{OnLost: models.OnLostRecreate})
	r.wait(made)
	r.state.Vanish(box)
	r.eventually("the sandbox is lost", func() bool { return r.sandbox(box).State == models.SandboxLost })
	lost := r.sandbox(box)
	sub := func() error {
		again := lost.Replacement()
		_, err := r.store.Submit(t.Context(), models.Submission{TenantID: tenant, SandboxID: again.ID, New: again, Timeout: time.Hour, Jobs: []models.Job{{
			ID: models.NewID("job_"), TenantID: tenant, SandboxID: again.ID, Kind: models.KindCreate, Actor: "test", MaxAttempts: 1, TimeoutMS: 1000, Args: []byte("{}"),
		}}})
		return err
	}
	if first, second := sub(), sub(); first != nil || second != models.ErrNotDue { //nolint:errorlint // it is that one
		t.Errorf("the first: %v, the second: %v", first, second)
	}
}
