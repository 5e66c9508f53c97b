//go:build e2b

package e2b

import "testing"

// TestMCP runs the official Python client of the Model Context Protocol against the tools.
func TestMCP(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	s.drive("venv/bin/python", "tools.py", "python/tools.py")
}

// TestMCPInTypeScript runs the official TypeScript client over every tool, and the CLI of the protocol's inspector.
func TestMCPInTypeScript(t *testing.T) {
	t.Parallel()
	newStack(t).drive("node", "tools.mjs", "js/tools.mjs")
}
