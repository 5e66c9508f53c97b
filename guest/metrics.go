package guest

import (
	"net/http"
	"time"
)

// metrics is GET /metrics in envd's form.
type metrics struct {
	Timestamp   int64   `json:"ts"`
	CPUCount    int     `json:"cpu_count"`
	CPUUsed     float64 `json:"cpu_used_pct"`
	MemTotal    int64   `json:"mem_total"`
	MemUsed     int64   `json:"mem_used"`
	MemCache    int64   `json:"mem_cache"`
	MemTotalMiB int64   `json:"mem_total_mib"`
	MemUsedMiB  int64   `json:"mem_used_mib"`
	DiskUsed    int64   `json:"disk_used"`
	DiskTotal   int64   `json:"disk_total"`
}

func (g *Guest) showMetrics(_ http.ResponseWriter, r *http.Request) (any, error) {
	_, dir := g.execs.Defaults()
	u := g.meter.Read(r.Context(), dir)
	return metrics{
		Timestamp: time.Now().Unix(), CPUCount: u.CPUs, CPUUsed: u.CPUPercent,
		MemTotal: u.MemTotal, MemUsed: u.MemUsed, MemCache: u.MemCache,
		MemTotalMiB: u.MemTotal >> 20, MemUsedMiB: u.MemUsed >> 20,
		DiskUsed: u.DiskUsed, DiskTotal: u.DiskTotal,
	}, nil
}
