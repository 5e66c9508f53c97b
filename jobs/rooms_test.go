package jobs_test

import (
	"errors"
	"strings"
	"testing"

	"sandyard/dev/jobsrig"
	"sandyard/jobs"
	"sandyard/jobs/kind"
	"sandyard/jobs/worker"
	"sandyard/models"
	"sandyard/providers"
	"sandyard/providers/dockerfile"
)

// TestOneSandboxHasTheServersMaximum: neither an image, nor a template of the tenant's that hides a shared one, nor a build gets
// more than the server allows one sandbox.
func TestOneSandboxHasTheServersMaximum(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	most := models.Bounds{CPUs: 2, MemoryMB: 1024, DiskMB: 512, Pids: 500}
	client := jobs.NewClient(r.Store, r.Queue, jobs.Catalog{
		Providers: []string{"fake"}, Images: []string{"*"}, Template: "python", Templates: map[string]string{"python": "fake"}, Maximum: most,
	}, r.Log)
	owner := models.Owner{Tenant: jobsrig.Tenant}
	hides := models.Template{Name: "python", Image: "fake", Definition: models.Definition{
		Resources: models.Bounds{MemoryMB: 2048}, Maximum: models.Bounds{MemoryMB: 4096, Pids: 32768},
	}}
	if err := client.CheckTemplate(t.Context(), owner, hides); err == nil || !strings.Contains(err.Error(), "SANDBOX_MAX_MEMORY_MB") {
		t.Errorf("such a template: %v", err)
	}
	_, err := r.Store.PutTemplate(t.Context(), owner, hides) // from when the server allowed it
	r.Must(err)
	for name, wish := range map[string]jobs.CreateSandbox{
		"cpus": {Image: "fake", CPUs: 2.5}, "memory_mb": {Image: "fake", MemoryMB: 1025}, "disk_mb": {Image: "fake", DiskMB: 513, MemoryMB: 1000},
		"pids": {Image: "fake", Pids: 501}, "memory_mb, by the template": {Template: "python"},
	} {
		field, _, _ := strings.Cut(name, ",")
		var refused *kind.InvalidError
		if _, err := client.Create(t.Context(), wish, jobsrig.Options()); !errors.As(err, &refused) || refused.Field != field {
			t.Errorf("%s: %v", name, err)
		}
		run := jobs.RunOnce{Sandbox: wish, Exec: kind.Exec{Command: "true"}}
		if _, err := client.Run(t.Context(), run, jobsrig.Options()); !errors.As(err, &refused) || refused.Field != field {
			t.Errorf("%s, in a run: %v", name, err)
		}
	}
	build := jobs.NewBuild{Template: "t", Recipe: dockerfile.Recipe{Script: "true", From: "fake"}, Resources: providers.Resources{MemoryMB: 1025}}
	if _, err := client.Build(t.Context(), build, jobsrig.Options()); err == nil || !strings.Contains(err.Error(), "SANDBOX_MAX_MEMORY_MB") {
		t.Errorf("a build: %v", err)
	}
	build.Resources = providers.Resources{DiskMB: 600}
	if _, err := client.Build(t.Context(), build, jobsrig.Options()); err != nil {
		t.Errorf("a build's disk is not in its memory: %v", err)
	}
	if _, err := client.Create(t.Context(), jobs.CreateSandbox{Image: "fake", CPUs: 2, MemoryMB: 1024, DiskMB: 512, Pids: 500}, jobsrig.Options()); err != nil {
		t.Errorf("what is allowed: %v", err)
	}
}

// TestWhatNoWorkerHasIsRefusedAtOnce, and not after a minute of looking for a place.
func TestWhatNoWorkerHasIsRefusedAtOnce(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	if _, err := r.Client.Create(t.Context(), jobs.CreateSandbox{MemoryMB: 3000}, jobsrig.Options()); err != nil {
		t.Errorf("without a worker nothing is known: %v", err)
	}
	r.Client = jobs.NewClient(r.Store, r.Queue, r.Client.Catalog(), r.Log) // one that has not looked yet
	r.onEngine("small", worker.Room{CPUs: 2, MemoryMB: 1000, Pids: 500})
	r.onEngine("large", worker.Room{CPUs: 4, MemoryMB: 2000, Pids: 400})
	for field, wish := range map[string]jobs.CreateSandbox{"cpus": {CPUs: 5}, "memory_mb": {MemoryMB: 2001}, "pids": {Pids: 500}} {
		var refused *kind.InvalidError
		if _, err := r.Client.Create(t.Context(), wish, jobsrig.Options()); !errors.As(err, &refused) || refused.Field != field ||
			!strings.Contains(refused.Message, "the largest worker has") {
			t.Errorf("%s: %v", field, err)
		}
	}
	_, made := r.Create(jobs.CreateSandbox{CPUs: 4, MemoryMB: 2000, Pids: 300})
	if j := r.Wait(made); j.State != models.Succeeded {
		t.Errorf("what the largest has: %s %+v", j.State, j.Error)
	}
}
