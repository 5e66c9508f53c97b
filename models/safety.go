//go:build !chaosproof

package models

// What is in the condition of everything that an attempt writes of its job: it must still be the last one. Programs
// that make chaos-proof builds can be without it.
const (
	fence     = "attempt = ?"
	fenceHeld = "h.attempt = j.attempt"
)
