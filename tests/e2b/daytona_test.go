//go:build e2b

package e2b

import "testing"

// TestDaytona runs Daytona's official Python client against an installation in Daytona's place.
func TestDaytona(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	s.hold(daytonas(), daytonaDocument)
	s.drive("daytona/bin/python", "daytona_suite.py", "python/daytona.py")
}

// TestDaytonaInTypeScript runs Daytona's official TypeScript client.
func TestDaytonaInTypeScript(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	s.hold(daytonas(), daytonaDocument)
	s.drive("node", "daytona.mjs", "js/daytona.mjs")
}
