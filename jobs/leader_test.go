package jobs_test

import (
	"testing"
	"time"

	"sandyard/jobs"
	"sandyard/models"
)

// TestAnotherSchedulerTakesOver: of two schedulers one works, and the other as soon as the first has stopped or its
// lease has ended.
func TestAnotherSchedulerTakesOver(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.Worker(4)
	dead, err := r.Store.TakeLease(t.Context(), "scheduler", "a dead one", time.Second)
	if err != nil || !dead.Ours {
		t.Fatalf("lease: %+v, %v", dead, err)
	}
	first := r.Scheduler()
	box, _ := r.Create(jobs.CreateSandbox{TimeoutSeconds: 1})
	r.Eventually("the first fires the timeout", func() bool { return r.Sandbox(box).State == models.SandboxDeleted })
	r.Scheduler()
	first.Stop()
	box, _ = r.Create(jobs.CreateSandbox{TimeoutSeconds: 1})
	r.Eventually("the second fires the timeout", func() bool { return r.Sandbox(box).State == models.SandboxDeleted })
}
