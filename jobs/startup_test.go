package jobs_test

import (
	"strings"
	"testing"

	"sandyard/jobs"
	"sandyard/jobs/kind"
	"sandyard/models"
	"sandyard/providers"
	"sandyard/providers/fake"
)

// template makes the tenant's template "t" what d says.
func (r *rig) template(d models.Definition) {
	r.t.Helper()
	t := models.Template{Name: "t", Image: "fake", Definition: d}
	r.must(jobs.CheckTemplate(t))
	_, err := r.store.PutTemplate(r.t.Context(), models.Owner{Tenant: tenant}, t)
	r.must(err)
}

func TestStartCommandRunsOnceAndGoesOn(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.worker(4)
	r.template(models.Definition{
		StartCommand: "fake:append log begun,; fake:sleep 1h", Ready: &models.Probe{Command: "fake:exit 0"},
	})
	box, created := r.create(jobs.CreateSandbox{Template: "t"})
	if j := r.wait(created); j.State != models.Succeeded {
		t.Fatalf("create ended %s: %+v", j.State, j.Error)
	}
	r.eventually("the start command has written its line", func() bool { return r.read(box, "log") == "begun," })
	if n := r.state.Starts("start"); n != 1 {
		t.Errorf("it was started %d times", n)
	}
}

func TestTemplateThatDoesNotComeUp(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.worker(4)
	backend := fake.New(fake.Options{State: r.state})
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
		box, created := r.create(jobs.CreateSandbox{Template: "t"})
		j := r.wait(created)
		if j.State != models.Failed || j.Error.Code != "template_not_ready" || !strings.Contains(j.Error.Message, c.says) {
			t.Errorf("%s: %s %+v, want %q", name, j.State, j.Error, c.says)
		}
		if b := r.sandbox(box); b.State != models.SandboxFailed {
			t.Errorf("%s: the sandbox is %s", name, b.State)
		}
		r.eventually(name+": what was half made goes after the job's end", func() bool {
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
	r.state.Inject(fake.Fault{Op: fake.OpRun, After: true, Err: providers.Errorf(providers.Unavailable, "the answer was lost")})
	box, created := r.create(jobs.CreateSandbox{Template: "t"})
	r.worker(4)
	j := r.wait(created)
	if j.State != models.Succeeded || j.Attempt != 2 {
		t.Fatalf("create ended %s in attempt %d: %+v", j.State, j.Attempt, j.Error)
	}
	r.eventually("the start command has written its line", func() bool { return r.read(box, "log") == "begun," })
	if n := r.state.Starts("start"); n != 1 {
		t.Errorf("it was started %d times", n)
	}
}

// read returns what a file holds, or nothing where there is none.
func (r *rig) read(box, path string) string {
	r.t.Helper()
	return string(r.wait(r.submit(box, &kind.Read{Path: path}, options())).Content)
}
