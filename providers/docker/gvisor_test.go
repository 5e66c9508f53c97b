package docker_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/docker/docker/client"

	"sandyard/dev/testenv"
	"sandyard/providers"
)

// gvisor starts the engine that the tests of gVisor share: the one of the machine need not know runsc. Its network and
// platform are those that work anywhere.
//
//nolint:gochecknoglobals // one engine per run of the tests, which TestMain ends
var (
	gvisorStarted atomic.Bool
	gvisor        = sync.OnceValues(func() (*testenv.Engine, error) {
		program, err := exec.LookPath("runsc")
		if err != nil {
			return nil, fmt.Errorf("%w: run scripts/setup.sh test", err)
		}
		e, err := testenv.StartEngine(testenv.EngineOptions{Runtimes: map[string][]string{
			"runsc": {program, "--network=none", "--platform=ptrace"},
		}})
		if err != nil {
			return nil, err
		}
		if err := loadImage(e.Host); err != nil {
			e.Close()
			return nil, err
		}
		gvisorStarted.Store(true)
		return e, nil
	})
)

// loadImage gives the image of the machine's engine to another.
func loadImage(host string) error {
	ctx := context.Background()
	from, err := client.NewClientWithOpts(client.FromEnv, client.WithAPIVersionNegotiation())
	if err != nil {
		return err
	}
	defer from.Close()
	to, err := client.NewClientWithOpts(client.WithHost(host), client.WithAPIVersionNegotiation())
	if err != nil {
		return err
	}
	defer to.Close()
	saved, err := from.ImageSave(ctx, []string{image})
	if err != nil {
		return fmt.Errorf("save %s: %w", image, err)
	}
	defer saved.Close()
	loaded, err := to.ImageLoad(ctx, saved, client.ImageLoadWithQuiet(true))
	if err != nil {
		return fmt.Errorf("load %s: %w", image, err)
	}
	_, err = io.Copy(io.Discard, loaded.Body)
	return errors.Join(err, loaded.Body.Close())
}

// newGVisorYard is a yard on an engine that knows runsc.
func newGVisorYard(t testing.TB) *yard {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("skipped: an engine of one's own takes root")
	}
	e, err := gvisor()
	if err != nil {
		t.Fatalf("start an engine with gVisor: %v", err)
	}
	return newYardAt(t, e.Host)
}

func TestRuntime(t *testing.T) {
	t.Parallel()
	y := newGVisorYard(t)
	p := y.open(t)
	id := newID()
	if _, err := p.Create(t.Context(), providers.Spec{ID: id, Image: image, Runtime: "runsc"}); err != nil {
		t.Fatal(err)
	}
	const kernel = "cat /proc/version"
	if got, host := shell(t, open(t, p, id), kernel), readHost(t, "/proc/version"); got == host {
		t.Errorf("the sandbox has the kernel of the machine: %s", got)
	}
	_, plain := create(t, p)
	if got, host := shell(t, plain, kernel), readHost(t, "/proc/version"); got != host {
		t.Errorf("a sandbox without a runtime has the kernel %q, the machine %q", got, host)
	}
}

func readHost(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(text))
}
