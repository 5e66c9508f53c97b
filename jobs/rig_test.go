package jobs_test

import (
	"testing"

	"sandyard/dev/jobsrig"
)

// rig is a whole queue, with what the tests of this package ask of it.
type rig struct{ *jobsrig.Rig }

func newRig(t testing.TB) *rig {
	t.Helper()
	return &rig{jobsrig.New(t)}
}

func newRigOn(t testing.TB, dsn string) *rig {
	t.Helper()
	return &rig{jobsrig.NewOn(t, dsn)}
}
