//go:build chaosproof

package execs

// lacking is the safety that a build does without: see make chaos-proof.
var lacking string

var spools = lacking != "spool"
