package jobs

import (
	"cmp"
	"time"

	"sandyard/egress"
	"sandyard/jobs/kind"
	"sandyard/models"
)

// Defaults are what sandboxes and commands get where neither the request nor the template says anything. Zero values
// leave it to the provider and to the constants of this package.
type Defaults struct {
	CPUs        float64
	MemoryMB    int64
	WorkDir     string
	Network     bool          // every public address may be reached
	ExecTimeout time.Duration // of commands and cells
}

// Check says what is wrong with the defaults, as an *InvalidError.
func (d Defaults) Check() error {
	if err := (CreateSandbox{CPUs: d.CPUs, MemoryMB: d.MemoryMB}).check(); err != nil {
		return err
	}
	if _, err := kind.Seconds("timeout_seconds", d.ExecTimeout.Seconds(), kind.DefaultExecTimeout,
		100*time.Millisecond); err != nil {
		return err
	}
	return checkWorkDir(d.WorkDir)
}

// fill completes a sandbox that others have completed before, within its template's maximum.
func (d Defaults) fill(spec *kind.Spec, most models.Bounds) {
	r := &spec.Resources
	r.CPUs = cmp.Or(r.CPUs, atMost(d.CPUs, most.CPUs))
	r.MemoryMB = cmp.Or(r.MemoryMB, atMost(d.MemoryMB, most.MemoryMB))
	spec.WorkDir = cmp.Or(spec.WorkDir, d.WorkDir)
}

func atMost[N int64 | float64](v, most N) N {
	if most > 0 {
		return min(v, most)
	}
	return v
}

// open is the policy of a sandbox of whose network nobody says anything.
func (d Defaults) open(f Foreign) egress.Policy {
	if d.Network && !f.OwnNetwork {
		return egress.Public()
	}
	return f.Egress
}

// complete gives a command or cell its timeout, where the operator's default is not ours.
func (d Defaults) complete(args kind.Args) {
	if d.ExecTimeout == 0 || d.ExecTimeout == kind.DefaultExecTimeout {
		return
	}
	switch a := args.(type) {
	case *kind.Exec:
		if !a.Background {
			a.TimeoutSeconds = cmp.Or(a.TimeoutSeconds, d.ExecTimeout.Seconds())
		}
	case *kind.Code:
		a.TimeoutSeconds = cmp.Or(a.TimeoutSeconds, d.ExecTimeout.Seconds())
	}
}

// outlive lets the sandbox of one command live longer than the command may run.
func (d Defaults) outlive(r *RunOnce) {
	if r.Exec.TimeoutSeconds == 0 && (r.Code == nil || r.Code.TimeoutSeconds == 0) {
		least := min(d.ExecTimeout.Seconds()+600, kind.MaxTimeout.Seconds())
		r.Sandbox.TimeoutSeconds = max(r.Sandbox.TimeoutSeconds, least)
	}
}
