package jobs_test

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"sandyard/dev/jobsrig"
	"sandyard/jobs"
	"sandyard/jobs/kind"
	"sandyard/jobs/scheduler"
	"sandyard/models"
)

func TestLifetimeAndPausedTimeout(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.Worker(4)
	old, _ := r.Create(jobs.CreateSandbox{MaxLifetimeSeconds: 2})
	hung := r.Exec(old, "fake:sleep 1h")
	extended := r.Submit(old, &kind.SetTimeout{TimeoutSeconds: 3600}, jobsrig.Options()) // changes nothing about that
	asleep, _ := r.Create(jobs.CreateSandbox{PausedTimeoutSeconds: 1})
	dozing, _ := r.Create(jobs.CreateSandbox{PausedTimeoutSeconds: 3600})
	for _, box := range []string{asleep, dozing} {
		if j := r.Wait(r.Submit(box, &kind.Pause{}, jobsrig.Options())); j.State != models.Succeeded {
			t.Fatalf("pause: %s %+v", j.State, j.Error)
		}
	}
	r.Scheduler() // not before everything is submitted: the times are short
	if j := r.Wait(hung); j.State != models.Cancelled {
		t.Errorf("the exec in the old sandbox: %s %+v", j.State, j.Error)
	}
	if j := r.Wait(extended); !j.State.Terminal() {
		t.Errorf("the new timeout: %s %+v", j.State, j.Error)
	}
	for box, reason := range map[string]string{old: "max_lifetime", asleep: "paused_timeout"} {
		r.Eventually("the sandbox has ended", func() bool { return r.Sandbox(box).State == models.SandboxDeleted })
		if b := r.Sandbox(box); *b.EndReason != reason || *b.EndActor != "scheduler" {
			t.Errorf("ended for %s by %s, want %s by the scheduler", *b.EndReason, *b.EndActor, reason)
		}
	}
	if b := r.Sandbox(dozing); b.State != models.SandboxPaused || b.PausedAt == nil {
		t.Errorf("the other paused sandbox is %s since %v", b.State, b.PausedAt)
	}
}

func TestOutputsAreForgottenFirst(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.Worker(2)
	box, _ := r.Create(jobs.CreateSandbox{})
	exec := r.Exec(box, "fake:stdout secret; fake:exit 3")
	if j := r.Wait(exec); string(j.Stdout) != "secret" {
		t.Fatalf("exec: %s %q %+v", j.State, j.Stdout, j.Error)
	}
	r.Scheduler(func(c *scheduler.Config) { c.Retention.Output = time.Millisecond })
	r.Eventually("the output is forgotten", func() bool { return r.Job(exec).Stdout == nil })
	if j := r.Job(exec); j.OutputDroppedAt == nil || j.State != models.Succeeded || len(j.Result) == 0 {
		t.Errorf("of the job is left: %+v", j)
	}
}

func TestHistoryIsForgotten(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	w := r.Worker(2)
	box, created := r.Create(jobs.CreateSandbox{})
	o := jobsrig.Options()
	o.CallbackURL = "http://127.0.0.1:1/nobody" // is tried for days
	called := r.Submit(box, &kind.Exec{Command: "fake:exit 0"}, o)
	r.Wait(created)
	r.Wait(called)
	w.Stop(t.Context())
	waiting := r.Exec(box, "fake:exit 0")
	r.Scheduler(func(c *scheduler.Config) { c.Retention.History = time.Millisecond })
	r.Eventually("the job is forgotten", func() bool {
		_, err := r.Store.Job(t.Context(), jobsrig.Tenant, created)
		return errors.Is(err, models.ErrNotFound)
	})
	r.Eventually("its events are forgotten", func() bool {
		list, err := r.Store.Events(t.Context(), jobsrig.Tenant, models.EventFilter{Job: created, Limit: 10})
		r.Must(err)
		return !slices.ContainsFunc(list, func(e models.Event) bool { return strings.HasPrefix(e.Event, "job.") }) // its sandbox lives
	})
	if j := r.Job(called); j.State != models.Succeeded {
		t.Errorf("the job whose callback is still tried is %s", j.State)
	}
	if j := r.Job(waiting); j.State != models.Queued {
		t.Errorf("the job that waits is %s", j.State)
	}
	if b := r.Sandbox(box); b.State != models.SandboxRunning {
		t.Errorf("the sandbox is %s", b.State)
	}
}

// TestHousekeepingWithTheUsualRetention: a month in milliseconds is more than four bytes hold.
func TestHousekeepingWithTheUsualRetention(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.Worker(2)
	box := r.readied()
	schedule := r.Schedule(jobsrig.ExecIn(box, "fake:exit 0"))
	o := jobsrig.Options()
	o.IdempotencyKey, o.Request = "once", []byte("request")
	r.Wait(r.Submit(box, &kind.Exec{Command: "fake:exit 0"}, o))
	_, err := r.Client.RunSchedule(t.Context(), schedule, jobsrig.Options())
	r.Must(err)
	r.SQL("UPDATE idempotency_keys SET created_at = created_at - interval '2 days'")
	r.SQL("UPDATE schedule_runs SET state = 'succeeded', ended_at = now() - interval '2 months'")
	r.Scheduler(func(c *scheduler.Config) {
		c.Retention = scheduler.Retention{History: 720 * time.Hour, Output: 168 * time.Hour}
	})
	r.Eventually("the run is forgotten", func() bool { return len(r.Runs(schedule)) == 0 })
	r.Eventually("the key is forgotten", func() bool {
		j := r.Submit(box, &kind.Exec{Command: "fake:exit 1"}, o)
		return string(r.Wait(j).Result) != "" && exitCode(r, j) == 1
	})
}

func exitCode(r *rig, job string) int {
	var res struct {
		Code int `json:"exit_code"`
	}
	r.Must(json.Unmarshal(r.Job(job).Result, &res))
	return res.Code
}
