package providers

import (
	"context"
	"time"
)

// Meter is implemented by providers that know what sandboxes have used of the machine that they are on.
type Meter interface {
	// Measure reads the figures of sandboxes that stand, paused or not. It leaves out those of which nothing is known.
	Measure(ctx context.Context, boxes []Instance) []Used
}

// Used is what a sandbox has used since it was made. The figures are not those of anybody in the sandbox.
type Used struct {
	ID         string
	CPU        time.Duration // of all its processes, also those that have ended
	Memory     int64         // bytes, now, without what the kernel can take back
	MemoryPeak int64         // bytes; where the kernel keeps it, with what it can take back
	Cache      int64         // bytes that the kernel can take back
	Files      int64         // bytes of Memory in files of a tmpfs, as all are that a sandbox writes
}
