//go:build chaosproof

package jobs

// lacking is the safety that a build does without: see make chaos-proof.
var lacking string

var sweeps, reconciles = lacking != "sweep", lacking != "reconcile"
