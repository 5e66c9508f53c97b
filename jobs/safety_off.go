//go:build chaosproof

package jobs

import (
	"os"
	"time"
)

// lacking is the safety that a build does without: see make chaos-proof.
var lacking string

var sweeps, reconciles = lacking != "sweep", lacking != "reconcile"

// leak keeps a goroutine and a file of every job that has ended, where flatness is lacking: see make soak-proof.
func leak() {
	if lacking != "flatness" {
		return
	}
	f, err := os.Open(os.DevNull)
	if err != nil {
		return
	}
	go func() {
		for {
			time.Sleep(time.Hour)
			_ = f.Sync() // it is still in use
		}
	}()
}
