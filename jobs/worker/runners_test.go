package worker

import (
	"maps"
	"slices"
	"testing"

	"sandyard/jobs/kind"
)

// TestEveryKindIsCarriedOut: a kind without a runner would be accepted and never run.
func TestEveryKindIsCarriedOut(t *testing.T) {
	t.Parallel()
	if got := slices.Sorted(maps.Keys(runners())); !slices.Equal(got, kind.Names()) {
		t.Errorf("runners are for %v, kinds are %v", got, kind.Names())
	}
}
