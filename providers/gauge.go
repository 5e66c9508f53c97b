package providers

import "context"

// Gauge is implemented by sandboxes that say what they use at this moment. It is what somebody in the sandbox says.
type Gauge interface {
	Gauge(ctx context.Context) (Gauged, error)
}

// Gauged is what a sandbox uses of its limits. Sizes are in bytes, and no figure is negative.
type Gauged struct {
	CPUs       int     `json:"cpus"`        // cores, its share rounded up
	CPUPercent float64 `json:"cpu_percent"` // of that share
	MemTotal   int64   `json:"mem_total"`
	MemUsed    int64   `json:"mem_used"`  // without what the kernel can take back
	MemCache   int64   `json:"mem_cache"` // what it can take back
	DiskTotal  int64   `json:"disk_total"`
	DiskUsed   int64   `json:"disk_used"`
}
