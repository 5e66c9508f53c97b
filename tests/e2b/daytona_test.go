//go:build e2b

package e2b

import "testing"

// TestDaytona runs Daytona's official Python client against an installation in Daytona's place.
func TestDaytona(t *testing.T) {
	t.Parallel()
	newStack(t).drive("daytona/bin/python", "daytona_suite.py", "python/daytona.py")
}
