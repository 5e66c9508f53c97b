package e2e_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestWorkerWaitsForItsEngine starts a worker before the engine answers.
func TestWorkerWaitsForItsEngine(t *testing.T) {
	t.Parallel()
	r := prepare(t)
	real := strings.TrimPrefix(r.settings["DOCKER_HOST"], "unix://")
	if real == "" {
		real = "/var/run/docker.sock"
	}
	late := filepath.Join(t.TempDir(), "docker.sock")
	r.settings["DOCKER_HOST"] = "unix://" + late
	r.startAll()
	r.worker.Line(&r.worker.Stderr, `"provider docker does not answer yet"`)
	if err := os.Symlink(real, late); err != nil {
		t.Fatal(err)
	}
	r.worker.Line(&r.worker.Stderr, `"msg":"worker started"`)
	box := r.create(object{"memory_mb": 64}).ID
	if got := r.exec(box, "echo there").Stdout; got != "there\n" {
		t.Errorf("it says %q", got)
	}
	r.remove(box)
}
