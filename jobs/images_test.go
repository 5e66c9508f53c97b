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
	"sandyard/providers/dockerfile"
)

// strict is a client of a server whose operator allows those images alone.
func (r *rig) strict(allowed ...string) *jobs.Client {
	return jobs.NewClient(r.Store, r.Queue, jobs.Catalog{
		Providers: []string{"fake"}, Images: allowed, Template: "python", Templates: map[string]string{"python": "fake"},
	}, r.Log)
}

// naming submits an image in every way that there is and returns the error of each.
func naming(t *testing.T, c *jobs.Client, o jobs.Options, image string) map[string]error {
	t.Helper()
	errs := map[string]error{}
	_, errs["create"] = c.Create(t.Context(), jobs.CreateSandbox{Image: image}, o)
	_, errs["run"] = c.Run(t.Context(), jobs.RunOnce{Sandbox: jobs.CreateSandbox{Image: image}, Exec: kind.Exec{Command: "fake:pwd"}}, o)
	errs["template"] = c.CheckTemplate(t.Context(), models.Owner{Tenant: o.TenantID}, models.Template{Name: "t", Image: image})
	for name, r := range map[string]dockerfile.Recipe{
		"FROM": {Dockerfile: "FROM " + image}, "ARG": {Dockerfile: "ARG A=" + image + "\nFROM ${A} AS x"},
		"from": {Script: "true", From: image}, "image": {Image: image},
	} {
		_, errs[name] = c.Build(t.Context(), jobs.NewBuild{Template: "t", Recipe: r}, o)
	}
	hour := int64(3_600_000)
	for name, a := range map[string]jobs.Action{
		"schedule's create": {Create: &jobs.CreateSandbox{Image: image}}, "schedule's run": {Run: &jobs.OneShot{Image: image, Exec: kind.Exec{Command: "fake:pwd"}}},
	} {
		s := models.Schedule{TenantID: o.TenantID, CreatedBy: "test", IntervalMS: &hour}
		if err := jobs.SetAction(&s, a, jobs.Standing{}); err != nil {
			t.Fatal(err)
		}
		_, errs[name] = c.CreateSchedule(t.Context(), s)
	}
	return errs
}

// TestImagesOfOthersAreRefused in every way in which a tenant can name one.
func TestImagesOfOthersAreRefused(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.SQL(`INSERT INTO tenants (id, name, webhook_secret) VALUES ('other', 'other', 'whsec_eA==')`)
	r.Client = r.strict()
	theirs := r.buildAs("other", "one")
	two := r.buildAs("other", "two")
	r.SQL("UPDATE builds SET shared = true WHERE job_id = $1", two.Jobs[0].ID)
	mine := r.build("mine")
	r.Must(r.Store.Declare(t.Context(), []models.Template{{Name: "tool", Image: "docker.io/acme/tool"}}))
	private, shared := imageOfBuild(r, theirs), imageOfBuild(r, two)
	for allowed, images := range map[string]struct{ yes, no []string }{
		"":       {yes: []string{"fake", "fake:latest", "acme/tool:latest", shared, imageOfBuild(r, mine)}, no: []string{"debian", "acme/tool:2"}},
		"*":      {yes: []string{"debian", "5", "ghcr.io/a/b:c"}},
		"acme/*": {yes: []string{"acme/x:1"}, no: []string{"debian", "ghcr.io/acme/x"}},
	} {
		c := r.strict(strings.Fields(allowed)...)
		never := []string{
			private, "docker.io/" + private, private + "@sha256:" + strings.Repeat("a", 64), "sandyard/build", "sandyard/build:bld_none",
			"../containers/x", "510cee4364f9", "sha256:510cee",
		}
		for _, image := range append(images.no, never...) {
			for way, err := range naming(t, c, jobsrig.Options(), image) {
				if wrong := (*kind.InvalidError)(nil); !errors.As(err, &wrong) {
					t.Errorf("with %q allowed, %s of %s: %v", allowed, way, image, err)
				}
			}
		}
		for _, image := range images.yes {
			for way, err := range naming(t, c, jobsrig.Options(), image) {
				if err != nil {
					t.Errorf("with %q allowed, %s of %s: %v", allowed, way, image, err)
				}
			}
		}
	}
	_, err := r.strict("acme/*").Create(t.Context(), jobs.CreateSandbox{Image: "debian"}, jobsrig.Options())
	for _, says := range []string{"debian:latest", "SANDBOX_IMAGES", "acme/*", "docker.io/acme/tool"} {
		if err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("the error does not say %q: %v", says, err)
		}
	}
}

func imageOfBuild(r *rig, built models.Submitted) string {
	r.T.Helper()
	b, err := r.Store.BuildOfJob(r.T.Context(), built.Jobs[0].ID)
	r.Must(err)
	return b.Image
}

// TestWorkersCheckImagesAgain: an older API has accepted what is not allowed.
func TestWorkersCheckImagesAgain(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.SQL(`INSERT INTO tenants (id, name, webhook_secret) VALUES ('other', 'other', 'whsec_eA==')`)
	r.Must(r.Store.Declare(t.Context(), []models.Template{{Name: "python", Image: "fake"}}))
	foreign := imageOfBuild(r, r.buildAs("other", "one"))
	var waiting []string
	accepted := func(out models.Submitted, err error) {
		t.Helper()
		r.Must(err)
		waiting = append(waiting, out.Jobs[0].ID)
	}
	accepted(r.Client.Create(t.Context(), jobs.CreateSandbox{Image: "fake-two"}, jobsrig.Options()))
	accepted(r.Client.Build(t.Context(), jobs.NewBuild{Template: "a", Recipe: dockerfile.Recipe{Dockerfile: "FROM fake-two"}}, jobsrig.Options()))
	accepted(r.Client.Build(t.Context(), jobs.NewBuild{Template: "b", Recipe: dockerfile.Recipe{Image: "fake-two"}}, jobsrig.Options()))
	for range 2 {
		out, err := r.Client.Create(t.Context(), jobs.CreateSandbox{Image: "fake-three"}, jobsrig.Options())
		accepted(out, err)
		r.SQL("UPDATE sandboxes SET image = $1 WHERE id = $2", foreign, out.Sandbox.ID)
	}
	plain, ok := r.Create(jobs.CreateSandbox{})
	own := r.build("own")
	r.builder(&jobsrig.Images{Held: []string{"fake", "fake-two", foreign}}, func(c *worker.Config) { c.Images = nil })
	for _, id := range waiting {
		if j := r.Wait(id); j.State != models.Failed || j.Error.Code != "invalid_argument" || j.Attempt != 1 {
			t.Errorf("%s of an image that is not allowed: %s in attempt %d, %+v", j.Kind, j.State, j.Attempt, j.Error)
		}
	}
	if j := r.Wait(ok); j.State != models.Succeeded {
		t.Errorf("sandbox %s of the shared template: %+v", plain, j.Error)
	}
	if j := r.Wait(own.Jobs[0].ID); j.State != models.Succeeded {
		t.Errorf("build from a shared template's image: %+v", j.Error)
	}
	if _, created := r.Create(jobs.CreateSandbox{Template: "t"}); r.Wait(created).State != models.Succeeded {
		t.Errorf("sandbox of the tenant's own build: %+v", r.Job(created).Error)
	}
}
