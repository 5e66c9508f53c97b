package jobs_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"sandyard/dev/jobsrig"
	"sandyard/dev/testenv"
	"sandyard/jobs"
	"sandyard/jobs/kind"
	"sandyard/models"
)

func TestRedisLosesEverything(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.Scheduler()
	const running, queued = 10, 100
	boxes := make([]string, running)
	var all []string
	for i := range boxes {
		boxes[i], _ = r.Create(jobs.CreateSandbox{})
	}
	for i := range running {
		all = append(all, r.Exec(boxes[i], "fake:sleep 300ms; fake:append log first,"))
	}
	for i := range queued {
		all = append(all, r.Exec(boxes[i%running], fmt.Sprintf("fake:append log %d,", i)))
	}
	r.Worker(20)
	r.Eventually("ten commands run", func() bool {
		n := 0
		for _, id := range all[:running] {
			n += r.State.Starts(id)
		}
		return n == running
	})
	r.Must(r.RDB.FlushAll(t.Context()).Err())
	for _, id := range all {
		if j := r.Wait(id); j.State != models.Succeeded {
			t.Fatalf("job ended %s: %+v", j.State, j.Error)
		}
		if n := r.State.Starts(id); n != 1 {
			t.Fatalf("a command was started %d times", n)
		}
	}
}

func TestTaskTakenByADeadWorkerIsSentAgain(t *testing.T) {
	testenv.Long(t, "it takes many seconds")
	t.Parallel()
	r := newRig(t)
	r.Scheduler()
	// Its first sweep sends everything anew, as after a loss, which is not meant here.
	r.Eventually("the first sweep", func() bool { return r.RDB.Exists(t.Context(), "sandyard:epoch").Val() == 1 })
	_, created := r.Create(jobs.CreateSandbox{})
	r.handOut("fake", created+":1") // and the worker dies before it claims the job
	r.Worker(2)
	if j := r.Wait(created); j.State != models.Succeeded || j.Attempt != 1 {
		t.Fatalf("create: %s at attempt %d, %+v", j.State, j.Attempt, j.Error)
	}
}

// handOut does to the oldest waiting task of a queue what Asynq does when a worker fetches it.
func (r *rig) handOut(queue, task string) {
	r.T.Helper()
	key := "asynq:{" + queue + "}:"
	taken, err := r.RDB.LMove(r.T.Context(), key+"pending", key+"active", "RIGHT", "LEFT").Result()
	r.Must(err)
	if taken != task {
		r.T.Fatalf("the queue held %q, want %q", taken, task)
	}
	r.Must(r.RDB.HSet(r.T.Context(), key+"t:"+task, "state", "active").Err())
	r.Must(r.RDB.ZAdd(r.T.Context(), key+"lease", redis.Z{Score: float64(time.Now().Add(time.Minute).Unix()), Member: task}).Err())
}

func TestJobsAreAcceptedWhileRedisIsAway(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.Scheduler()
	r.Must(r.RDB.Do(t.Context(), "CLIENT", "PAUSE", "1000", "ALL").Err()) // every command hangs for a second
	_, created := r.Create(jobs.CreateSandbox{})
	r.Worker(2)
	if j := r.Wait(created); j.State != models.Succeeded {
		t.Fatalf("create: %s %+v", j.State, j.Error)
	}
}

func TestStoppedWorkerHandsItsCommandOver(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.Scheduler()
	first := r.Worker(2)
	box, created := r.Create(jobs.CreateSandbox{})
	r.Wait(created)
	exec := r.Exec(box, "fake:stdout a; fake:sleep 8s; fake:stdout b")
	r.Eventually("the command runs", func() bool { return r.State.Starts(exec) == 1 })
	holder := *r.Sandbox(box).NodeID
	r.Worker(2)
	first.Stop(t.Context()) // its grace is shorter than the command
	j := r.Wait(exec)
	if j.State != models.Succeeded || string(j.Stdout) != "ab" {
		t.Fatalf("exec: %s, stdout %q, %+v", j.State, j.Stdout, j.Error)
	}
	if n := r.State.Starts(exec); n != 1 {
		t.Fatalf("the command was started %d times", n)
	}
	r.Eventually("the sandbox is adopted", func() bool { return *r.Sandbox(box).NodeID != holder }) // on a busy machine the grace may do
}

func TestIdleAndTimeout(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.Worker(4)
	idle, _ := r.Create(jobs.CreateSandbox{IdleTimeoutSeconds: 1})
	busy := r.Exec(idle, "fake:sleep 2s; fake:stdout done") // longer than the idle timeout: a running job is activity
	timed, _ := r.Create(jobs.CreateSandbox{TimeoutSeconds: 1})
	hung := r.Exec(timed, "fake:sleep 1h")
	paused, _ := r.Create(jobs.CreateSandbox{TimeoutSeconds: 1, OnTimeout: "pause"})
	r.Scheduler() // not before everything is submitted: the timeouts are short
	r.Scheduler() // two are harmless
	if j := r.Wait(busy); j.State != models.Succeeded {
		t.Errorf("exec in the idle sandbox: %s %+v", j.State, j.Error)
	}
	if j := r.Wait(hung); j.State != models.Cancelled {
		t.Errorf("exec in the timed sandbox: %s %+v", j.State, j.Error)
	}
	r.Eventually("all three have got what is due", func() bool {
		return r.Sandbox(idle).State == models.SandboxDeleted && r.Sandbox(timed).State == models.SandboxDeleted &&
			r.Sandbox(paused).State == models.SandboxPaused
	})
	for box, reason := range map[string]string{idle: "idle", timed: "timeout"} {
		if b := r.Sandbox(box); *b.EndReason != reason || *b.EndActor != "scheduler" {
			t.Errorf("ended for %s by %s, want %s by the scheduler", *b.EndReason, *b.EndActor, reason)
		}
	}
}

func TestExtendedTimeoutHolds(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.Worker(4)
	box, created := r.Create(jobs.CreateSandbox{TimeoutSeconds: 2})
	r.Wait(created)
	before := r.Sandbox(box).ExpiresAt
	if j := r.Wait(r.Submit(box, &kind.SetTimeout{TimeoutSeconds: 600}, jobsrig.Options())); j.State != models.Succeeded {
		t.Fatalf("set timeout: %s %+v", j.State, j.Error)
	}
	if after := r.Sandbox(box).ExpiresAt; after.Sub(before) < 9*time.Minute {
		t.Fatalf("expires %v, was %v", after, before)
	}
}
