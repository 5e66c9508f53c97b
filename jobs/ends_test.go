package jobs_test

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"sandyard/jobs"
	"sandyard/jobs/kind"
	"sandyard/jobs/scheduler"
	"sandyard/models"
)

func TestLifetimeAndPausedTimeout(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.worker(4)
	old, _ := r.create(jobs.CreateSandbox{MaxLifetimeSeconds: 2})
	hung := r.exec(old, "fake:sleep 1h")
	extended := r.submit(old, &kind.SetTimeout{TimeoutSeconds: 3600}, options()) // changes nothing about that
	asleep, _ := r.create(jobs.CreateSandbox{PausedTimeoutSeconds: 1})
	dozing, _ := r.create(jobs.CreateSandbox{PausedTimeoutSeconds: 3600})
	for _, box := range []string{asleep, dozing} {
		if j := r.wait(r.submit(box, &kind.Pause{}, options())); j.State != models.Succeeded {
			t.Fatalf("pause: %s %+v", j.State, j.Error)
		}
	}
	r.scheduler() // not before everything is submitted: the times are short
	if j := r.wait(hung); j.State != models.Cancelled {
		t.Errorf("the exec in the old sandbox: %s %+v", j.State, j.Error)
	}
	if j := r.wait(extended); !j.State.Terminal() {
		t.Errorf("the new timeout: %s %+v", j.State, j.Error)
	}
	for box, reason := range map[string]string{old: "max_lifetime", asleep: "paused_timeout"} {
		r.eventually("the sandbox has ended", func() bool { return r.sandbox(box).State == models.SandboxDeleted })
		if b := r.sandbox(box); *b.EndReason != reason || *b.EndActor != "scheduler" {
			t.Errorf("ended for %s by %s, want %s by the scheduler", *b.EndReason, *b.EndActor, reason)
		}
	}
	if b := r.sandbox(dozing); b.State != models.SandboxPaused || b.PausedAt == nil {
		t.Errorf("the other paused sandbox is %s since %v", b.State, b.PausedAt)
	}
}

func TestOutputsAreForgottenFirst(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.worker(2)
	box, _ := r.create(jobs.CreateSandbox{})
	exec := r.exec(box, "fake:stdout secret; fake:exit 3")
	if j := r.wait(exec); string(j.Stdout) != "secret" {
		t.Fatalf("exec: %s %q %+v", j.State, j.Stdout, j.Error)
	}
	r.scheduler(func(c *scheduler.Config) { c.Retention.Output = time.Millisecond })
	r.eventually("the output is forgotten", func() bool { return r.job(exec).Stdout == nil })
	if j := r.job(exec); j.OutputDroppedAt == nil || j.State != models.Succeeded || len(j.Result) == 0 {
		t.Errorf("of the job is left: %+v", j)
	}
}

func TestHistoryIsForgotten(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	w := r.worker(2)
	box, created := r.create(jobs.CreateSandbox{})
	o := options()
	o.CallbackURL = "http://127.0.0.1:1/nobody" // is tried for days
	called := r.submit(box, &kind.Exec{Command: "fake:exit 0"}, o)
	r.wait(created)
	r.wait(called)
	w.Stop(t.Context())
	waiting := r.exec(box, "fake:exit 0")
	r.scheduler(func(c *scheduler.Config) { c.Retention.History = time.Millisecond })
	r.eventually("the job is forgotten", func() bool {
		_, err := r.store.Job(t.Context(), tenant, created)
		return errors.Is(err, models.ErrNotFound)
	})
	r.eventually("its events are forgotten", func() bool {
		list, err := r.store.Events(t.Context(), tenant, models.EventFilter{Job: created, Limit: 10})
		r.must(err)
		return !slices.ContainsFunc(list, func(e models.Event) bool { return strings.HasPrefix(e.Event, "job.") }) // its sandbox lives
	})
	if j := r.job(called); j.State != models.Succeeded {
		t.Errorf("the job whose callback is still tried is %s", j.State)
	}
	if j := r.job(waiting); j.State != models.Queued {
		t.Errorf("the job that waits is %s", j.State)
	}
	if b := r.sandbox(box); b.State != models.SandboxRunning {
		t.Errorf("the sandbox is %s", b.State)
	}
}

// TestHousekeepingWithTheUsualRetention: a month in milliseconds is more than four bytes hold.
func TestHousekeepingWithTheUsualRetention(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.worker(2)
	box := r.readied()
	schedule := r.schedule(execIn(box, "fake:exit 0"))
	o := options()
	o.IdempotencyKey, o.Request = "once", []byte("request")
	r.wait(r.submit(box, &kind.Exec{Command: "fake:exit 0"}, o))
	_, err := r.client.RunSchedule(t.Context(), schedule, options())
	r.must(err)
	r.sql("UPDATE idempotency_keys SET created_at = created_at - interval '2 days'")
	r.sql("UPDATE schedule_runs SET state = 'succeeded', ended_at = now() - interval '2 months'")
	r.scheduler(func(c *scheduler.Config) {
		c.Retention = scheduler.Retention{History: 720 * time.Hour, Output: 168 * time.Hour}
	})
	r.eventually("the run is forgotten", func() bool { return len(r.runs(schedule)) == 0 })
	r.eventually("the key is forgotten", func() bool {
		j := r.submit(box, &kind.Exec{Command: "fake:exit 1"}, o)
		return string(r.wait(j).Result) != "" && exitCode(r, j) == 1
	})
}

func exitCode(r *rig, job string) int {
	var res struct {
		Code int `json:"exit_code"`
	}
	r.must(json.Unmarshal(r.job(job).Result, &res))
	return res.Code
}
