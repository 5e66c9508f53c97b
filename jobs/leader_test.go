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
	r.worker(4)
	dead, err := r.store.TakeLease(t.Context(), "scheduler", "a dead one", time.Second)
	if err != nil || !dead.Ours {
		t.Fatalf("lease: %+v, %v", dead, err)
	}
	first := r.scheduler()
	box, _ := r.create(jobs.CreateSandbox{TimeoutSeconds: 1})
	r.eventually("the first fires the timeout", func() bool { return r.sandbox(box).State == models.SandboxDeleted })
	r.scheduler()
	first.Stop()
	box, _ = r.create(jobs.CreateSandbox{TimeoutSeconds: 1})
	r.eventually("the second fires the timeout", func() bool { return r.sandbox(box).State == models.SandboxDeleted })
}
