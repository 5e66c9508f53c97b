// Package e2e_test starts the programs as a deployment does, API, worker and scheduler as processes on a real
// PostgreSQL, Redis and Docker engine, and drives them through HTTP only, while the processes and servers are killed
// and started again.
package e2e_test

import (
	"context"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/docker/docker/client"
	"go.uber.org/goleak"

	"sandyard/dev/testenv"
	"sandyard/providers/docker"
)

func TestMain(m *testing.M) {
	code := m.Run()
	programs.remove()
	if code == 0 {
		if err := goleak.Find(); err != nil {
			os.Stderr.WriteString(err.Error() + "\n")
			code = 1
		}
	}
	os.Exit(code)
}

// builder makes the programs once per run of the tests: they prove nothing about binaries that lie around.
type builder struct {
	once sync.Once
	dir  string
	err  error
}

//nolint:gochecknoglobals // the one thing that all tests share, and a build is slow
var programs builder

// remove deletes the programs, and the guest's volume unless somebody else uses it.
func (b *builder) remove() {
	if b.dir == "" {
		return
	}
	defer os.RemoveAll(b.dir)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	p, err := docker.New(ctx, docker.Config{Fleet: "e2e", Guest: os.DirFS(b.dir)})
	if err != nil {
		return
	}
	defer p.Close()
	if api, err := client.NewClientWithOpts(client.FromEnv, client.WithAPIVersionNegotiation()); err == nil {
		_ = api.VolumeRemove(ctx, p.GuestVolume(), false)
		_ = api.Close()
	}
}

// program returns the path of a freshly built program.
func program(t testing.TB, name string) string {
	t.Helper()
	programs.once.Do(programs.build)
	if programs.err != nil {
		t.Fatalf("build the programs: %v", programs.err)
	}
	return filepath.Join(programs.dir, name)
}

func (b *builder) build() {
	if b.dir, b.err = os.MkdirTemp("", "sandyard-e2e-bin-"); b.err != nil {
		return
	}
	b.err = testenv.BuildPrograms(b.dir, "api", "worker", "scheduler", "sandyard", "guest", "sup", "sandbox-shim")
}
