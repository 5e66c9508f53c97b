package docker_test

import (
	"testing"

	"sandyard/providers"
	"sandyard/providers/providertest/cells"
	"sandyard/providers/providertest/fixture"
)

func TestCellsOfJavaScript(t *testing.T) {
	t.Parallel()
	testCells(t, "sandyard/node:default", cells.JavaScript)
}

func TestCellsThatDraw(t *testing.T) {
	t.Parallel()
	testCells(t, "sandyard/data-science:default", cells.Drawing)
}

// testCells runs a check in sandboxes of an image that not every machine has.
func testCells(t *testing.T, image string, check func(*testing.T, func(*testing.T) providers.Provider, fixture.Options)) {
	t.Helper()
	y := newYard(t)
	if _, err := y.api.ImageInspect(t.Context(), image); err != nil {
		t.Skipf("skipped: no image %s; images/build.sh makes it: %v", image, err)
	}
	check(t, func(t *testing.T) providers.Provider { t.Helper(); return y.open(t) }, fixture.Options{Image: image, System: true})
}
