package runloop

import (
	"math"

	"sandyard/providers"
)

// Limits of a devbox of a custom size.
const (
	maxCPU    = 16
	maxMemory = 64 // GiB
	maxDisk   = 64 // GiB
)

// size is the smallest devbox that has all of what is wished for: Runloop gives half a core, one, or an even number of
// them, one GiB of memory or an even number, two to eight GiB to a core, and an even number of GiB of disk.
func (l *launch) size(r providers.Resources) error {
	if r.CPUs == 0 && r.MemoryMB == 0 && r.DiskMB == 0 {
		return nil // the blueprint's, or Runloop's own
	}
	memory := max(roundMemory(gib(r.MemoryMB)), roundMemory(2*r.CPUs), 1)
	l.CPU = roundCPU(max(r.CPUs, float64(memory)/8))
	l.Memory = max(memory, roundMemory(2*l.CPU))
	l.Disk = int64(2 * math.Ceil(gib(r.DiskMB)/2))
	l.Size = "CUSTOM_SIZE"
	if l.CPU > maxCPU || l.Memory > maxMemory || l.Disk > maxDisk {
		return providers.Invalid.Errorf("a sandbox at Runloop has %d cores, %d GiB of memory and %d GiB of disk at most; "+
			"request fewer resources", maxCPU, maxMemory, maxDisk)
	}
	return nil
}

func gib(mb int64) float64 { return float64(mb) / 1024 }

func roundCPU(cores float64) float64 {
	switch {
	case cores <= 0.5:
		return 0.5
	case cores <= 1:
		return 1
	}
	return 2 * math.Ceil(cores/2)
}

func roundMemory(gib float64) int64 {
	if gib <= 1 {
		return int64(math.Ceil(gib))
	}
	return int64(2 * math.Ceil(gib/2))
}
