//go:build chaosproof

package models

// lacking is the safety that a build does without: see make chaos-proof.
var lacking string

var fence, fenceHeld = fenced("attempt = ?"), fenced("h.attempt = j.attempt")

func fenced(condition string) string {
	if lacking == "fence" {
		return "(" + condition + " OR true)"
	}
	return condition
}
