//go:build !chaosproof

package jobs

// Safeties that programs which make chaos-proof builds can be without, one at a time.
const (
	sweeps     = true // jobs are taken from workers whose lease has ended
	reconciles = true // engines are compared with the tables
)

// leak keeps nothing of a job that has ended.
func leak() {}
