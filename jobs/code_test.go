package jobs_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"sandyard/dev/jobsrig"
	"sandyard/jobs"
	"sandyard/jobs/kind"
	"sandyard/jobs/worker"
	"sandyard/models"
	"sandyard/providers"
	"sandyard/providers/codecontext"
	"sandyard/providers/fake"
)

// TestCellRunsOnceWhateverCallFails loses each call about a cell in turn, before and after its effect.
func TestCellRunsOnceWhateverCallFails(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.Worker(4)
	r.Scheduler()
	away := providers.Unavailable.Errorf("away")
	for _, after := range []bool{false, true} {
		for k := range 8 {
			t.Run(fmt.Sprintf("call %d, after %v", k, after), func(t *testing.T) {
				t.Parallel()
				box, created := r.Create(jobs.CreateSandbox{})
				r.Wait(created)
				if k > 0 {
					r.State.Inject(fake.Fault{Op: fake.OpBackground, Sandbox: box, Times: k})
				}
				r.State.Inject(fake.Fault{Op: fake.OpBackground, Sandbox: box, After: after, Err: away})
				j := r.Wait(r.Cell(box, "fake:append log x; fake:stdout out"))
				res := r.CodeResult(j)
				if j.State != models.Succeeded || res.Error != nil || res.ExecutionCount != 1 || string(j.Stdout) != "out" {
					t.Errorf("%s %+v %s %q", j.State, j.Error, j.Result, j.Stdout)
				}
				if log := r.Content(box, "log"); log != "x" {
					t.Errorf("the cell ran as %q", log)
				}
				if k == 0 && j.Attempt < 2 {
					t.Error("the fault has struck nothing")
				}
			})
		}
	}
}

func TestCellsOfOneContextWaitForEachOther(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.Worker(8)
	r.Scheduler()
	box, _ := r.Create(jobs.CreateSandbox{})
	parallel := func(_ *kind.Code, o *jobs.Options) { o.Parallel = true }
	r.Wait(r.Cell(box, "fake:stdout first"))
	var all []string
	for i := range 8 {
		all = append(all, r.Cell(box, fmt.Sprintf("fake:stdout %d; fake:sleep 20ms; fake:stdout %d", i, i), parallel))
	}
	for i, id := range all {
		if j := r.Wait(id); string(j.Stdout) != strings.Repeat(fmt.Sprint(i), 2) || j.State != models.Succeeded {
			t.Errorf("cell %d: %s %+v wrote %q", i, j.State, j.Error, j.Stdout)
		}
	}
	long := r.Cell(box, "fake:append log x; fake:sleep 1h", parallel)
	r.Eventually("the long cell runs", func() bool { return r.Content(box, "log") == "x" })
	late := r.Cell(box, "fake:stdout late", parallel, func(c *kind.Code, _ *jobs.Options) { c.TimeoutSeconds = 0.2 })
	if j := r.Wait(late); j.State != models.TimedOut || !strings.Contains(j.Error.Message, "earlier cells") {
		t.Errorf("a cell that had no turn: %s %+v", j.State, j.Error)
	}
	other := r.Cell(box, "fake:stdout beside", parallel, func(c *kind.Code, _ *jobs.Options) { c.Context = "other" })
	if j := r.Wait(other); string(j.Stdout) != "beside" {
		t.Errorf("a cell of another context: %s %+v", j.State, j.Error)
	}
	waits := r.Cell(box, "fake:stdout never", parallel)
	r.Eventually("the cell waits for its turn", func() bool { return r.Job(waits).State == models.Running })
	for _, id := range []string{waits, long} {
		_, err := r.Client.Cancel(t.Context(), jobsrig.Tenant, id, "test")
		r.Must(err)
		if j := r.Wait(id); j.State != models.Cancelled {
			t.Errorf("cancelled: %s %+v", j.State, j.Error)
		}
	}
}

func TestEndsOfCells(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.Worker(2)
	r.Scheduler()
	box, _ := r.Create(jobs.CreateSandbox{})
	r.Wait(r.Cell(box, "fake:stdout one"))
	j := r.Wait(r.Cell(box, "fake:stdout two; fake:exit 3"))
	if res := r.CodeResult(j); j.State != models.Succeeded || res.Error == nil || res.Error.Name != codecontext.ContextDied || !res.StateLost || string(j.Stdout) != "two" || *res.ExitCode != 3 {
		t.Errorf("a context that ends: %s %s", j.State, j.Result)
	}
	j = r.Wait(r.Cell(box, "fake:oom"))
	if res := r.CodeResult(j); res.Error == nil || res.Error.Name != codecontext.OutOfMemory || res.ExecutionCount != 1 {
		t.Errorf("a context without memory: %s %s", j.State, j.Result)
	}
	j = r.Wait(r.Cell(box, "fake:nothing"))
	if res := r.CodeResult(j); res.Error == nil || res.Error.Name != "ScriptError" || res.StateLost || j.State != models.Succeeded {
		t.Errorf("code that fails: %s %s", j.State, j.Result)
	}
	j = r.Wait(r.Cell(box, "fake:sleep 1h", func(c *kind.Code, _ *jobs.Options) { c.TimeoutSeconds = 0.2 }))
	if res := r.CodeResult(j); j.State != models.TimedOut || !res.TimedOut || !res.StateLost || j.Error == nil || j.Error.Code != "timeout" {
		t.Errorf("a timeout: %s %s %+v", j.State, j.Result, j.Error)
	}
	j = r.Wait(r.Cell(box, "fake:stdout 1", func(c *kind.Code, _ *jobs.Options) { c.Language = codecontext.Bash }))
	if j.State != models.Failed || j.Error.Code != string(providers.NoCommand) {
		t.Errorf("no interpreter: %s %+v", j.State, j.Error)
	}
	if j = r.Wait(r.Submit(box, &kind.DeleteContext{Context: codecontext.Python}, jobsrig.Options())); j.State != models.Succeeded {
		t.Errorf("delete: %s %+v", j.State, j.Error)
	}
	if j = r.Wait(r.Cell(box, "fake:crash")); j.State != models.Lost {
		t.Errorf("a sandbox that dies under a cell: %s %+v", j.State, j.Error)
	}
	if box := r.Sandbox(box); box.State != models.SandboxLost {
		t.Errorf("the sandbox is %s", box.State)
	}
}

// TestCellOutlivesItsWorker: the second worker joins the cell that the first has begun.
func TestCellOutlivesItsWorker(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	first := r.Worker(2, func(c *worker.Config) { c.Grace = time.Millisecond })
	r.Scheduler()
	box, _ := r.Create(jobs.CreateSandbox{})
	id := r.Cell(box, "fake:append log x; fake:stdout a; fake:sleep 2s; fake:stdout b")
	r.Eventually("the cell runs", func() bool {
		return r.State.Starts("code.python.python."+id) == 1 && r.Job(id).State == models.Running
	})
	r.Worker(2)
	first.Stop(t.Context())
	j := r.Wait(id)
	if res := r.CodeResult(j); j.State != models.Succeeded || string(j.Stdout) != "ab" || res.ExecutionCount != 1 || j.Attempt < 2 {
		t.Errorf("got %s at attempt %d %s %q", j.State, j.Attempt, j.Result, j.Stdout)
	}
	if log := r.Content(box, "log"); log != "x" {
		t.Errorf("it ran as %q", log)
	}
}
