package jobs_test

import (
	"strings"
	"testing"
	"time"

	"sandyard/dev/jobsrig"
	"sandyard/dev/testenv"
	"sandyard/jobs"
	"sandyard/jobs/kind"
	"sandyard/models"
)

// lose makes a sandbox lost and returns what has taken its place.
func (r *rig) lose(box string) models.Sandbox {
	r.T.Helper()
	r.State.Vanish(box)
	r.Eventually("the sandbox is lost and replaced", func() bool { return r.Sandbox(box).ReplacedBy != nil })
	return r.Sandbox(*r.Sandbox(box).ReplacedBy)
}

func TestLostSandboxIsMadeAgainOnRequest(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.Worker(4, reconciling(time.Millisecond))
	r.Scheduler()
	wish := jobs.CreateSandbox{Key: "thread", Env: map[string]string{"A": "b"}, OnLost: models.OnLostRecreate}
	box, made := r.Create(wish)
	r.Wait(made)
	running := r.Exec(box, "fake:sleep 1h")
	waiting := r.Exec(box, "fake:stdout never")
	r.Eventually("the command runs", func() bool { return r.State.Starts(running) == 1 })
	again := r.lose(box)
	for _, id := range []string{running, waiting} {
		if j := r.Wait(id); j.State == models.Succeeded {
			t.Errorf("%s succeeded in a sandbox that was lost", j.Kind)
		}
	}
	if again.Key == nil || *again.Key != "thread" || *again.Replaces != box {
		t.Errorf("in its place is %+v", again)
	}
	if j := r.Wait(r.Exec(again.ID, "fake:env A")); string(j.Stdout) != "b" {
		t.Errorf("in the new one: %s %q %v", j.State, j.Stdout, j.Error)
	}
	_, err := r.Client.Submit(t.Context(), box, &kind.Exec{Command: "true"}, jobsrig.Options())
	if err == nil || !strings.Contains(err.Error(), again.ID+" replaces it") {
		t.Errorf("work for the lost one: %v", err)
	}
	if found, _ := r.Create(wish); found != again.ID {
		t.Errorf("under the key is %s, not %s", found, again.ID)
	}
}

// Without end a sandbox that dies at its start would be made again.
func TestSandboxesThatKeepDyingAreGivenUp(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.Worker(4, reconciling(time.Millisecond))
	r.Scheduler()
	box, made := r.Create(jobs.CreateSandbox{OnLost: models.OnLostRecreate})
	r.Wait(made)
	for range 5 {
		again := r.lose(box)
		r.Eventually("the next one runs", func() bool { return r.Sandbox(again.ID).State == models.SandboxRunning })
		box = again.ID
	}
	r.State.Vanish(box)
	r.Eventually("the last one is lost", func() bool { return r.Sandbox(box).State == models.SandboxLost })
	due, err := r.Store.DueRecreations(t.Context(), 10)
	if r.Must(err); len(due) > 0 {
		t.Errorf("yet another is to be made: %+v", due)
	}
}

// Two schedulers, or one that dies after its commit, make one.
func TestOneReplacement(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.Worker(4, reconciling(time.Millisecond))
	box, made := r.Create(jobs.CreateSandbox{OnLost: models.OnLostRecreate})
	r.Wait(made)
	r.State.Vanish(box)
	r.Eventually("the sandbox is lost", func() bool { return r.Sandbox(box).State == models.SandboxLost })
	lost := r.Sandbox(box)
	sub := func() error {
		again := lost.Replacement()
		_, err := r.Store.Submit(t.Context(), models.Submission{TenantID: jobsrig.Tenant, SandboxID: again.ID, New: again, Timeout: time.Hour, Jobs: []models.Job{{
			ID: models.NewID("job_"), TenantID: jobsrig.Tenant, SandboxID: again.ID, Kind: models.KindCreate, Actor: "test", MaxAttempts: 1, TimeoutMS: 1000, Args: []byte("{}"),
		}}})
		return err
	}
	if first, second := sub(), sub(); first != nil || second != models.ErrNotDue { //nolint:errorlint // it is that one
		t.Errorf("the first: %v, the second: %v", first, second)
	}
}

// TestATenantAtItsLimitKeepsNobodyFromRecreation: it has lost more than a scheduler looks at, earlier than all others. What may
// not be made again for now says why, and is made when it may be.
func TestATenantAtItsLimitKeepsNobodyFromRecreation(t *testing.T) {
	testenv.Long(t, "it takes many seconds")
	t.Parallel()
	r := newRig(t)
	r.Worker(4, reconciling(time.Millisecond))
	wish := jobs.CreateSandbox{OnLost: models.OnLostRecreate}
	box, made := r.Create(wish)
	r.Wait(made)
	r.State.Vanish(box)
	r.Eventually("the sandbox is lost", func() bool { return r.Sandbox(box).State == models.SandboxLost })
	r.SQL("INSERT INTO tenants (id, name, max_sandboxes, webhook_secret) VALUES ('full', 'full', 0, 'whsec_')")
	r.SQL(`INSERT INTO sandboxes SELECT (jsonb_populate_record(s, jsonb_build_object(
			'id', 'full' || i, 'tenant_id', 'full', 'ended_at', s.ended_at - interval '1 minute' - i * interval '1 ms'))).*
		FROM sandboxes s, generate_series(1, 1100) i WHERE id = $1`, box)
	r.Scheduler()
	r.Eventually("the sandbox is replaced", func() bool { return r.Sandbox(box).ReplacedBy != nil })
	events, err := r.Store.Events(t.Context(), "full", models.EventFilter{Sandbox: "full1", Limit: 1})
	if r.Must(err); len(events) != 1 || events[0].Event != "sandbox.recreation_refused" || events[0].Reason == nil || !strings.Contains(*events[0].Reason, "max_sandboxes") {
		t.Errorf("why there is none in its place: %+v", events)
	}
	r.SQL("UPDATE sandboxes SET replaced_by = 'x' WHERE tenant_id = 'full' AND id <> 'full7'")
	r.SQL("UPDATE tenants SET max_sandboxes = 1 WHERE id = 'full'")
	r.Eventually("it is made when there is room", func() bool {
		b, err := r.Store.Sandbox(t.Context(), "full", "full7")
		r.Must(err)
		return b.ReplacedBy != nil
	})
}
