package jobs_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"sandyard/dev/testenv"
	"sandyard/jobs"
	"sandyard/jobs/kind"
	"sandyard/models"
)

func TestRedisLosesEverything(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.scheduler()
	const running, queued = 10, 100
	boxes := make([]string, running)
	var all []string
	for i := range boxes {
		boxes[i], _ = r.create(jobs.CreateSandbox{})
	}
	for i := range running {
		all = append(all, r.exec(boxes[i], "fake:sleep 300ms; fake:append log first,"))
	}
	for i := range queued {
		all = append(all, r.exec(boxes[i%running], fmt.Sprintf("fake:append log %d,", i)))
	}
	r.worker(20)
	r.eventually("ten commands run", func() bool {
		n := 0
		for _, id := range all[:running] {
			n += r.state.Starts(id)
		}
		return n == running
	})
	r.must(r.rdb.FlushAll(t.Context()).Err())
	for _, id := range all {
		if j := r.wait(id); j.State != models.Succeeded {
			t.Fatalf("job ended %s: %+v", j.State, j.Error)
		}
		if n := r.state.Starts(id); n != 1 {
			t.Fatalf("a command was started %d times", n)
		}
	}
}

func TestTaskTakenByADeadWorkerIsSentAgain(t *testing.T) {
	testenv.Long(t, "it takes many seconds")
	t.Parallel()
	r := newRig(t)
	r.scheduler()
	// Its first sweep sends everything anew, as after a loss, which is not meant here.
	r.eventually("the first sweep", func() bool { return r.rdb.Exists(t.Context(), "sandyard:epoch").Val() == 1 })
	_, created := r.create(jobs.CreateSandbox{})
	r.handOut("fake", created+":1") // and the worker dies before it claims the job
	r.worker(2)
	if j := r.wait(created); j.State != models.Succeeded || j.Attempt != 1 {
		t.Fatalf("create: %s at attempt %d, %+v", j.State, j.Attempt, j.Error)
	}
}

// handOut does to the oldest waiting task of a queue what Asynq does when a worker fetches it.
func (r *rig) handOut(queue, task string) {
	r.t.Helper()
	key := "asynq:{" + queue + "}:"
	taken, err := r.rdb.LMove(r.t.Context(), key+"pending", key+"active", "RIGHT", "LEFT").Result()
	r.must(err)
	if taken != task {
		r.t.Fatalf("the queue held %q, want %q", taken, task)
	}
	r.must(r.rdb.HSet(r.t.Context(), key+"t:"+task, "state", "active").Err())
	r.must(r.rdb.ZAdd(r.t.Context(), key+"lease", redis.Z{Score: float64(time.Now().Add(time.Minute).Unix()), Member: task}).Err())
}

func TestJobsAreAcceptedWhileRedisIsAway(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.scheduler()
	r.must(r.rdb.Do(t.Context(), "CLIENT", "PAUSE", "1000", "ALL").Err()) // every command hangs for a second
	_, created := r.create(jobs.CreateSandbox{})
	r.worker(2)
	if j := r.wait(created); j.State != models.Succeeded {
		t.Fatalf("create: %s %+v", j.State, j.Error)
	}
}

func TestStoppedWorkerHandsItsCommandOver(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.scheduler()
	first := r.worker(2)
	box, created := r.create(jobs.CreateSandbox{})
	r.wait(created)
	exec := r.exec(box, "fake:stdout a; fake:sleep 8s; fake:stdout b")
	r.eventually("the command runs", func() bool { return r.state.Starts(exec) == 1 })
	holder := *r.sandbox(box).NodeID
	r.worker(2)
	first.Stop(t.Context()) // its grace is shorter than the command
	j := r.wait(exec)
	if j.State != models.Succeeded || string(j.Stdout) != "ab" {
		t.Fatalf("exec: %s, stdout %q, %+v", j.State, j.Stdout, j.Error)
	}
	if n := r.state.Starts(exec); n != 1 {
		t.Fatalf("the command was started %d times", n)
	}
	r.eventually("the sandbox is adopted", func() bool { return *r.sandbox(box).NodeID != holder }) // on a busy machine the grace may do
}

func TestIdleAndTimeout(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.worker(4)
	idle, _ := r.create(jobs.CreateSandbox{IdleTimeoutSeconds: 1})
	busy := r.exec(idle, "fake:sleep 2s; fake:stdout done") // longer than the idle timeout: a running job is activity
	timed, _ := r.create(jobs.CreateSandbox{TimeoutSeconds: 1})
	hung := r.exec(timed, "fake:sleep 1h")
	paused, _ := r.create(jobs.CreateSandbox{TimeoutSeconds: 1, OnTimeout: "pause"})
	r.scheduler() // not before everything is submitted: the timeouts are short
	r.scheduler() // two are harmless
	if j := r.wait(busy); j.State != models.Succeeded {
		t.Errorf("exec in the idle sandbox: %s %+v", j.State, j.Error)
	}
	if j := r.wait(hung); j.State != models.Cancelled {
		t.Errorf("exec in the timed sandbox: %s %+v", j.State, j.Error)
	}
	r.eventually("all three have got what is due", func() bool {
		return r.sandbox(idle).State == models.SandboxDeleted && r.sandbox(timed).State == models.SandboxDeleted &&
			r.sandbox(paused).State == models.SandboxPaused
	})
	for box, reason := range map[string]string{idle: "idle", timed: "timeout"} {
		if b := r.sandbox(box); *b.EndReason != reason || *b.EndActor != "scheduler" {
			t.Errorf("ended for %s by %s, want %s by the scheduler", *b.EndReason, *b.EndActor, reason)
		}
	}
}

func TestExtendedTimeoutHolds(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.worker(4)
	box, created := r.create(jobs.CreateSandbox{TimeoutSeconds: 2})
	r.wait(created)
	before := r.sandbox(box).ExpiresAt
	if j := r.wait(r.submit(box, &kind.SetTimeout{TimeoutSeconds: 600}, options())); j.State != models.Succeeded {
		t.Fatalf("set timeout: %s %+v", j.State, j.Error)
	}
	if after := r.sandbox(box).ExpiresAt; after.Sub(before) < 9*time.Minute {
		t.Fatalf("expires %v, was %v", after, before)
	}
}
