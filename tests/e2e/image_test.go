package e2e_test

import (
	"context"
	"strings"
	"testing"

	"github.com/docker/docker/api/types/container"
)

// TestImagesOfOthersAreOutOfReach: where the operator allows every image, names still lead neither to other containers of
// the engine, nor to images by their ids, nor to what another tenant has built.
func TestImagesOfOthersAreOutOfReach(t *testing.T) {
	t.Parallel()
	r := newRig(t, "SANDBOX_IMAGES", "*")
	t.Cleanup(func() { r.engine.removeImages(t) })
	name := "victim-" + strings.TrimPrefix(r.engine.fleet, "sandyard-")
	victim, err := r.engine.api.ContainerCreate(t.Context(), &container.Config{
		Image: image, Env: []string{"SECRET=hunter2"}, Entrypoint: []string{"/never"}, NetworkDisabled: true,
		Labels: map[string]string{"sandyard.fleet": r.engine.fleet + "-victim"},
	}, &container.HostConfig{NetworkMode: "none"}, nil, nil, name)
	must(t, err)
	t.Cleanup(func() {
		must(t, r.engine.api.ContainerRemove(context.WithoutCancel(t.Context()), victim.ID, container.RemoveOptions{Force: true}))
	})
	theirs := r.build("secret", object{"dockerfile": "FROM " + image + "\nRUN mkdir -p /srv && echo TENANT-A-SECRET >/srv/secret"})
	if theirs.Job.State != "succeeded" {
		t.Fatalf("the other tenant's build: %+v", theirs.Job.job)
	}
	held, err := r.engine.api.ImageInspect(t.Context(), theirs.Job.Result.Image)
	must(t, err)
	hex := strings.TrimPrefix(held.ID, "sha256:")
	stranger := *r.caller
	stranger.key = otherTenant(t, r.settings["DATABASE_URL"])
	names := []string{"../containers/" + name, "../containers/" + victim.ID[:12], "../distribution/127.0.0.1:9/x", held.ID, "sha256:" + hex[:9], theirs.Job.Result.Image}
	for n := 1; n <= 12; n += 2 {
		names = append(names, hex[:n])
	}
	for _, name := range names {
		for to, body := range map[string]object{
			"/v1/sandboxes?wait=60s":          {"image": name},
			"/v1/run?wait=60s":                {"image": name, "command": "cat /srv/secret"},
			"/v1/templates/x/builds?wait=60s": {"dockerfile": "FROM " + name + "\nCOPY ${SECRET:-a} /a", "files": []object{{"path": "a", "content": ""}}},
			"/v1/templates/y/builds?wait=60s": {"script": "cat /srv/secret", "from": name},
			"/v1/templates/z/builds?wait=60s": {"image": name},
			"/v1/templates":                   {"name": "t", "image": name},
			"/v1/schedules":                   {"interval_seconds": 3600, "run": object{"image": name, "command": "true"}},
		} {
			a := stranger.call("POST", to, body)
			if strings.Contains(a.raw, "hunter2") || strings.Contains(a.raw, "TENANT-A-SECRET") || strings.Contains(a.raw, `"succeeded"`) {
				t.Errorf("%s with %s: %.600s", to, name, a.raw)
			}
		}
	}
}
