package e2e_test

import (
	"slices"
	"testing"

	"sandyard/dev/testenv"

	"github.com/docker/docker/api/types/container"
)

// TestContainersThatChangeBehindOurBack: one is killed, one removed, one paused, and one was never asked for.
func TestContainersThatChangeBehindOurBack(t *testing.T) {
	t.Parallel()
	r := newRig(t, "RECONCILE_EVERY", "300ms", "RECONCILE_GRACE", "1s")
	killed, removed, paused, kept := r.created(object{}).ID, r.created(object{}).ID, r.created(object{}).ID, r.created(object{}).ID
	ctx := t.Context()
	orphan, err := r.engine.api.ContainerCreate(ctx, &container.Config{
		Image: image, Cmd: []string{"sleep", "1000"},
		Labels: map[string]string{"sandyard.fleet": r.engine.fleet, "sandyard.sandbox": "orphan" + killed},
	}, nil, nil, nil, "sandyard-orphan"+killed)
	if err != nil {
		t.Fatal(err)
	}
	for what, err := range map[string]error{
		"kill":   r.engine.api.ContainerKill(ctx, "sandyard-"+killed, "KILL"),
		"remove": r.engine.api.ContainerRemove(ctx, "sandyard-"+removed, container.RemoveOptions{Force: true}),
	} {
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
	}
	testenv.PauseContainer(t, r.engine.api.ContainerPause, "sandyard-"+paused)
	for box, want := range map[string]string{killed: "lost", removed: "lost", paused: "paused"} {
		testenv.Eventually(t, "the sandbox is "+want, func() bool { return r.sandbox(box).State == want })
	}
	r.lostBecause(killed, "killed outside Sandyard")              // on a busy engine no more is known
	r.lostBecause(removed, byARemoval, "killed outside Sandyard") // it may be seen dead before
	testenv.Eventually(t, "the orphan and the body are removed", func() bool {
		return !slices.ContainsFunc(r.engine.list(t), func(c container.Summary) bool {
			return c.ID == orphan.ID || slices.Contains(c.Names, "/sandyard-"+killed)
		})
	})
	r.exec(kept, "true").succeeded(t)
	r.submit("/v1/sandboxes/"+paused+"/resume?wait=60s", object{}).Job.succeeded(t)
	r.exec(paused, "true").succeeded(t)
	r.clean()
}
