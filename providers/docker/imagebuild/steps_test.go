package imagebuild

import (
	"testing"

	"go.uber.org/goleak"

	"sandyard/providers"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestStepsProcessesThatDidNotEnd: only what the runtime says of an exec that never began may pass by itself.
func TestStepsProcessesThatDidNotEnd(t *testing.T) {
	t.Parallel()
	for says, want := range map[string]providers.Class{
		"OCI runtime exec failed: executing processes for container: failed to load /.sandyard/guest: bad address": providers.Unavailable,
		"process 7 does not end": providers.BuildFailed,
		"":                       providers.BuildFailed,
	} {
		if got := providers.AsError(unended(says)).Class; got != want {
			t.Errorf("%q is %v, want %v", says, got, want)
		}
	}
}
