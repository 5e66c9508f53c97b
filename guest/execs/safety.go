//go:build !chaosproof

package execs

// spools says that a command is found by its name, with what it has written. Guests that make chaos-proof builds can be
// without that.
const spools = true
