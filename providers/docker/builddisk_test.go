package docker_test

import (
	"bytes"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/docker/docker/api/types/container"
	"golang.org/x/sys/unix"

	"sandyard/dev/testenv"
	"sandyard/providers"
	"sandyard/providers/docker"
)

// smallYard is a yard on an engine of its own with so much room, which holds the tests' image.
func smallYard(t *testing.T, mb int) (y *yard, dataDir string) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("an engine of one's own needs root")
	}
	e, err := testenv.StartEngine(testenv.EngineOptions{DataMB: mb})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Close)
	copied := exec.Command("/bin/sh", "-c", `docker save "$0" | docker -H "$1" load -q`, image, e.Host)
	if out, err := copied.CombinedOutput(); err != nil {
		t.Fatalf("copy the image: %v: %s", err, out)
	}
	return newYardAt(t, e.Host), e.DataDir()
}

func freeMB(t *testing.T, dir string) int64 {
	t.Helper()
	var fs unix.Statfs_t
	if err := unix.Statfs(dir, &fs); err != nil {
		t.Fatal(err)
	}
	return int64(fs.Bavail) * fs.Bsize >> 20
}

// TestTheBuildThatFillsTheDiskEnds, also if what it writes has no name, before the reserve is touched; another that writes little
// goes on.
func TestTheBuildThatFillsTheDiskEnds(t *testing.T) {
	testenv.Long(t, "it takes many seconds")
	t.Parallel()
	const reserve = 400
	y, data := smallYard(t, 2048)
	p := y.openWith(t, docker.Config{Guest: guestFiles(t), DiskReserve: reserve << 20})
	innocent, guilty := y.building(t, "head -c 60000000 /dev/zero >x; echo ready; until [ -e go ]; do sleep 0.1; done"),
		y.building(t, "exec 3>big; rm big; while head -c 10000000 /dev/zero >&3; do sleep 0.05; done; echo full; exit 1")
	guilty.Resources.DiskMB, guilty.Resources.MemoryMB = 16384, 4096 // the engine's files are in memory here
	innocent.Resources.DiskMB, innocent.Resources.MemoryMB = 1024, 1024

	ready, ended := make(chan struct{}), make(chan error, 1)
	go func() {
		ended <- p.Build(t.Context(), innocent, writer(func(text string) {
			if strings.Contains(text, "ready") {
				close(ready)
			}
		}))
	}()
	select {
	case <-ready:
	case err := <-ended:
		t.Fatalf("the innocent build: %v", err)
	}
	var log bytes.Buffer
	if err := p.Build(t.Context(), guilty, &log); classOf(err) != providers.BuildDisk {
		t.Errorf("the guilty build: %v; %s", err, log.String())
	}
	select {
	case err := <-ended:
		t.Fatalf("the innocent build has ended with the guilty one: %v", err)
	default:
	}
	if free := freeMB(t, data); free < 2*reserve {
		t.Errorf("%d MB are free after its end", free)
	}
	step, err := y.api.ContainerExecCreate(t.Context(), "sandyard-"+innocent.ID, container.ExecOptions{User: "0:0", Cmd: []string{"touch", "/opt/go"}})
	if err != nil {
		t.Fatal(err)
	}
	if err := y.api.ContainerExecStart(t.Context(), step.ID, container.ExecStartOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err != nil {
		t.Errorf("the innocent build: %v", err)
	}
}
