package mutate

import (
	"os/exec"
	"path/filepath"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestSafetiesAreFound: the code that each safety stands in has not changed, and, unless -short, compiles without it.
func TestSafetiesAreFound(t *testing.T) {
	t.Parallel()
	root, err := filepath.Abs("../../..")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range Names() {
		overlay, err := Overlay(root, t.TempDir(), name)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if testing.Short() { // make verify compiles
			continue
		}
		packages := map[string]bool{}
		for _, c := range safeties()[name] {
			packages["./"+filepath.Dir(c.file)] = true
		}
		for p := range packages {
			build := exec.CommandContext(t.Context(), "go", "build", "-overlay", overlay, p)
			build.Dir = root
			if out, err := build.CombinedOutput(); err != nil {
				t.Errorf("without %s, %s does not compile: %v\n%s", name, p, err, out)
			}
		}
	}
	if _, err := Overlay(root, t.TempDir(), "nothing"); err == nil {
		t.Error("a safety that there is not is left out")
	}
}
