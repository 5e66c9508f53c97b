package jobs_test

import (
	"encoding/json"
	"errors"
	"testing"
	"time"

	"sandyard/dev/jobsrig"
	"sandyard/egress"
	"sandyard/jobs"
	"sandyard/jobs/kind"
	"sandyard/models"
)

// TestOperatorsDefaults: they hold where neither the request nor the template nor another contract says anything.
func TestOperatorsDefaults(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	catalog := r.Client.Catalog()
	catalog.Defaults = jobs.Defaults{CPUs: 2, MemoryMB: 1024, WorkDir: "/srv/work", Network: true, ExecTimeout: 2 * time.Hour}
	r.Client = jobs.NewClient(r.Store, r.Queue, catalog, r.Log)
	_, err := r.Store.CreateTemplate(t.Context(), models.Owner{Tenant: jobsrig.Tenant}, models.Template{Name: "small", Image: "fake", Definition: models.Definition{
		WorkDir: "/own", Maximum: models.Bounds{MemoryMB: 256}, Resources: models.Bounds{CPUs: 0.5}, Egress: &models.EgressRules{},
	}})
	r.Must(err)
	for name, c := range map[string]struct {
		wish   jobs.CreateSandbox
		cpus   float64
		memory int64
		dir    string
		open   bool
	}{
		"nothing is said":       {jobs.CreateSandbox{}, 2, 1024, "/srv/work", true},
		"the request says":      {jobs.CreateSandbox{CPUs: 1, MemoryMB: 64, Egress: &egress.Policy{}}, 1, 64, "/srv/work", false},
		"the template says":     {jobs.CreateSandbox{Template: "small"}, 0.5, 256, "/own", false},
		"another contract says": {jobs.CreateSandbox{Foreign: jobs.Foreign{OwnNetwork: true, WorkDir: "/home/user"}}, 2, 1024, "/home/user", false},
	} {
		box := r.Sandbox(func() string { id, _ := r.Create(c.wish); return id }())
		var spec struct {
			WorkDir   string                           `json:"work_dir"`
			Resources struct{ CPUs, MemoryMB float64 } `json:"resources"`
		}
		r.Must(json.Unmarshal(box.Spec, &spec))
		if box.CPUs != c.cpus || box.MemoryMB != c.memory || spec.Resources.CPUs != c.cpus || spec.Resources.MemoryMB != float64(c.memory) ||
			spec.WorkDir != c.dir || (len(box.Egress) > 0) != c.open {
			t.Errorf("%s: %g cores, %d MiB, %s, egress %s", name, box.CPUs, box.MemoryMB, box.Spec, box.Egress)
		}
	}
	box, _ := r.Create(jobs.CreateSandbox{})
	for want, args := range map[time.Duration]kind.Args{
		2 * time.Hour:   &kind.Exec{Command: "x"},
		7 * time.Second: &kind.Exec{Command: "x", TimeoutSeconds: 7},
		time.Minute:     &kind.Exec{Command: "x", Background: true}, // its launch
	} {
		if got := r.Job(r.Submit(box, args, jobsrig.Options())).Timeout(); got != want {
			t.Errorf("a command has %v, want %v", got, want)
		}
	}
	if got := r.Job(r.Submit(box, &kind.Code{Code: "x", Language: "python"}, jobsrig.Options())).Timeout(); got != 2*time.Hour {
		t.Errorf("a cell has %v", got)
	}
	once := jobs.OneShot{Exec: kind.Exec{Command: "x"}}
	out, err := r.Client.Run(t.Context(), once.RunOnce(), jobsrig.Options())
	r.Must(err)
	if got := time.Duration(out.Sandbox.TimeoutMS) * time.Millisecond; got != 2*time.Hour+10*time.Minute {
		t.Errorf("the sandbox of one command lives %v", got)
	}
	for _, bad := range []jobs.Defaults{{CPUs: 0.01}, {MemoryMB: 1}, {WorkDir: "relative"}, {WorkDir: "/proc/x"}, {ExecTimeout: time.Millisecond}, {ExecTimeout: 25 * time.Hour}} {
		if err := bad.Check(); !errors.As(err, new(*kind.InvalidError)) {
			t.Errorf("%+v: %v", bad, err)
		}
	}
}
