package jobs_test

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"sandyard/dev/jobsrig"
	"sandyard/dev/testenv"
	"sandyard/jobs"
	"sandyard/jobs/kind"
	"sandyard/models"
)

// stopRedis stops the rig's redis-server without ending it: connections stay open and nothing is answered.
func (r *rig) stopRedis() (goOn func()) {
	r.T.Helper()
	info, err := r.RDB.Info(r.T.Context(), "server").Result()
	r.Must(err)
	_, rest, _ := strings.Cut(info, "process_id:")
	pid, err := strconv.Atoi(strings.TrimSpace(strings.SplitN(rest, "\n", 2)[0]))
	r.Must(err)
	r.Must(syscall.Kill(pid, syscall.SIGSTOP))
	goOn = func() { r.Must(syscall.Kill(pid, syscall.SIGCONT)) }
	r.T.Cleanup(goOn)
	return goOn
}

// median is how long the calls took, but for those that a busy machine has slowed down.
func median(times []time.Duration) time.Duration {
	slices.Sort(times)
	return times[len(times)/2]
}

// TestARedisThatHangsCostsARequestLittle: submissions, cancels, an end that follows from others and a shutdown do not wait
// for it, and what was accepted meanwhile is done when it answers again.
func TestARedisThatHangsCostsARequestLittle(t *testing.T) {
	testenv.Long(t, "its verdict hangs on the clock")
	t.Parallel()
	r := newRig(t)
	r.Queue.Wait(0) // as in production
	w := r.Worker(4)
	r.Scheduler()
	to := newReceiver(t)
	box, created := r.Create(jobs.CreateSandbox{})
	r.Wait(created)
	ends := r.Exec(box, "fake:sleep 300ms")
	r.Eventually("the command runs", func() bool { return r.State.Starts(ends) == 1 })

	goOn := r.stopRedis()
	var took []time.Duration
	var accepted []string
	timed := func(do func()) {
		began := time.Now()
		do()
		took = append(took, time.Since(began))
	}
	o := jobsrig.Options()
	o.Parallel, o.CallbackURL = true, to.URL
	for range 10 {
		timed(func() { accepted = append(accepted, r.Submit(box, &kind.Exec{Command: "fake:exit 0"}, o)) })
	}
	timed(func() {
		_, err := r.Client.Cancel(t.Context(), jobsrig.Tenant, accepted[0], "test")
		r.Must(err)
	})
	if m := median(took); m > 300*time.Millisecond {
		t.Errorf("a request took %v, all of them %v", m, took)
	}
	t.Logf("requests took %v", took)
	r.Eventually("the end of a command is written", func() bool { return r.Job(ends).State == models.Succeeded })
	goOn()
	for _, id := range accepted[1:] {
		if j := r.Wait(id); j.State != models.Succeeded {
			t.Errorf("%s: %s %+v", id, j.State, j.Error)
		}
	}
	r.Eventually("the callbacks are made", func() bool { return len(to.calls()) == len(accepted) })

	r.stopRedis()
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		r.Hooks.Close()
		w.Stop(context.Background())
	}()
	select {
	case <-closed:
	case <-time.After(testenv.Patience()):
		t.Fatal("the worker does not stop")
	}
}
