package e2e_test

import (
	"testing"
	"time"

	"sandyard/dev/testenv"
)

// TestFrozenCommandsOutliveTheirWorker: a command that a pause has frozen goes on with its sandbox, whoever waited for it before,
// and whatever its time was meanwhile.
func TestFrozenCommandsOutliveTheirWorker(t *testing.T) {
	testenv.Long(t, "it takes many seconds")
	t.Parallel()
	const limit = 3.0 // seconds, of the command
	for name, worker := range map[string]struct{ before, after func(*rig) }{
		"stopped meanwhile": {after: func(r *rig) { r.worker.Stop(); r.startWorker() }},
		"killed meanwhile":  {after: func(r *rig) { r.worker.Kill(); r.startWorker() }},
		"killed before":     {before: func(r *rig) { r.worker.Kill(); r.startWorker() }},
		"the same":          {},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			box := r.created(object{}).ID
			command := r.start(box, "echo start >>log; echo begun; sleep 1; echo done", object{"timeout_seconds": limit})
			log := func() string {
				return r.end(r.submit("/v1/sandboxes/"+box+"/files/read", object{"path": "log", "parallel": true}).Job).Content
			}
			testenv.Eventually(t, "the command runs", func() bool { return log() == "start\n" })
			call(worker.before, r)
			r.end(r.submit("/v1/sandboxes/"+box+"/pause", object{"parallel": true}).Job).succeeded(t)
			paused := time.Now()
			call(worker.after, r)
			testenv.Eventually(t, "the command's time would be over, and nobody waits for it", func() bool {
				return time.Since(paused).Seconds() > limit && r.job(command.ID).State == "queued"
			})
			r.end(r.submit("/v1/sandboxes/"+box+"/resume", object{}).Job).succeeded(t)
			if j := r.end(command).succeeded(t); j.Stdout != "begun\ndone\n" || j.Result.ExitCode != 0 || j.Attempt < 2 {
				t.Errorf("after the resume: %s", j)
			}
			if log := log(); log != "start\n" {
				t.Errorf("the command ran more than once: %q", log)
			}
			r.clean()
		})
	}
}

func call(f func(*rig), r *rig) {
	if f != nil {
		f(r)
	}
}
