package jobs_test

import (
	"strings"
	"testing"

	"sandyard/dev/jobsrig"
	"sandyard/jobs"
	"sandyard/jobs/kind"
	"sandyard/models"
	"sandyard/providers"
	"sandyard/providers/fake"
)

// template makes the tenant's template "t" what d says.
func (r *rig) template(d models.Definition) {
	r.T.Helper()
	t := models.Template{Name: "t", Image: "fake", Definition: d}
	r.Must(jobs.CheckTemplate(t))
	_, err := r.Store.PutTemplate(r.T.Context(), models.Owner{Tenant: jobsrig.Tenant}, t)
	r.Must(err)
}

func TestStartCommandRunsOnceAndGoesOn(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.Worker(4)
	r.template(models.Definition{
		StartCommand: "fake:append log begun,; fake:sleep 1h", Ready: &models.Probe{Command: "fake:exit 0"},
	})
	box, created := r.Create(jobs.CreateSandbox{Template: "t"})
	if j := r.Wait(created); j.State != models.Succeeded {
		t.Fatalf("create ended %s: %+v", j.State, j.Error)
	}
	r.Eventually("the start command has written its line", func() bool { return r.read(box, "log") == "begun," })
	if n := r.State.Starts("start"); n != 1 {
		t.Errorf("it was started %d times", n)
	}
}

func TestTemplateThatDoesNotComeUp(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.Worker(4)
	backend := fake.New(fake.Options{State: r.State})
	defer backend.Close()
	for name, c := range map[string]struct {
		d    models.Definition
		says string
	}{
		"a start command that fails": {models.Definition{
			StartCommand: "fake:stderr no such module; fake:exit 3", Ready: &models.Probe{Command: "fake:exit 1"},
		}, "exit code 3: no such module"},
		"a probe that never succeeds": {models.Definition{
			StartCommand: "fake:sleep 1h", Ready: &models.Probe{Command: "fake:stderr still loading; fake:exit 1", TimeoutSeconds: 0.5},
		}, "still loading"},
	} {
		r.template(c.d)
		box, created := r.Create(jobs.CreateSandbox{Template: "t"})
		j := r.Wait(created)
		if j.State != models.Failed || j.Error.Code != "template_not_ready" || !strings.Contains(j.Error.Message, c.says) {
			t.Errorf("%s: %s %+v, want %q", name, j.State, j.Error, c.says)
		}
		if b := r.Sandbox(box); b.State != models.SandboxFailed {
			t.Errorf("%s: the sandbox is %s", name, b.State)
		}
		r.Eventually(name+": what was half made goes after the job's end", func() bool {
			left, err := backend.List(t.Context())
			return err == nil && len(left) == 0
		})
	}
}

func TestStartedTemplateIsAdopted(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	d := models.Definition{StartCommand: "fake:append log begun,; fake:sleep 1h", Ready: &models.Probe{Command: "fake:exit 0"}}
	r.template(d)
	r.State.Inject(fake.Fault{Op: fake.OpRun, After: true, Err: providers.Unavailable.Errorf("the answer was lost")})
	box, created := r.Create(jobs.CreateSandbox{Template: "t"})
	r.Worker(4)
	j := r.Wait(created)
	if j.State != models.Succeeded || j.Attempt != 2 {
		t.Fatalf("create ended %s in attempt %d: %+v", j.State, j.Attempt, j.Error)
	}
	r.Eventually("the start command has written its line", func() bool { return r.read(box, "log") == "begun," })
	if n := r.State.Starts("start"); n != 1 {
		t.Errorf("it was started %d times", n)
	}
}

// read returns what a file holds, or nothing where there is none.
func (r *rig) read(box, path string) string {
	r.T.Helper()
	return string(r.Wait(r.Submit(box, &kind.Read{Path: path}, jobsrig.Options())).Content)
}
