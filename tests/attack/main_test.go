//go:build attack

package attack

import (
	"os"
	"testing"

	"go.uber.org/goleak"

	"sandyard/dev/testenv"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m, testenv.Lasting()...) }

// TestAttacks plays every attack, one after the other, on one installation.
func TestAttacks(t *testing.T) {
	r := newRig(t)
	var rows []row
	for _, a := range attacks() {
		t.Run(a.name, func(t *testing.T) { rows = append(rows, r.play(t, a)) })
	}
	if len(rows) == 0 {
		t.Error("no attack was played; is there one of that name?")
	}
	t.Run("traces", r.leftNoTraces)
	t.Logf("what the attacks came to\n\n%s", table(rows, r.idle))
}

// environment is what the programs take from this process.
func environment() []string {
	return []string{"PATH=" + os.Getenv("PATH"), "HOME=" + os.Getenv("HOME"), "DOCKER_HOST=" + os.Getenv("DOCKER_HOST")}
}
