package envd

import (
	"context"
	"net/http"

	"sandyard/guest/protocol"
	"sandyard/providers"
)

// maxGauge bounds the guest's answer, in bytes.
const maxGauge = 4 << 10

// Gauge implements providers.Gauge by envd's GET /metrics.
func (s *Sandbox) Gauge(ctx context.Context) (providers.Gauged, error) {
	var m struct {
		CPUs      int     `json:"cpu_count"`
		CPU       float64 `json:"cpu_used_pct"`
		MemTotal  int64   `json:"mem_total"`
		MemUsed   int64   `json:"mem_used"`
		MemCache  int64   `json:"mem_cache"`
		DiskTotal int64   `json:"disk_total"`
		DiskUsed  int64   `json:"disk_used"`
	}
	if err := s.call(ctx, http.MethodGet, protocol.MetricsPath, nil, &m, maxGauge); err != nil {
		return providers.Gauged{}, err
	}
	return providers.Gauged{
		CPUs: max(m.CPUs, 0), CPUPercent: max(m.CPU, 0), MemTotal: max(m.MemTotal, 0), MemUsed: max(m.MemUsed, 0),
		MemCache: max(m.MemCache, 0), DiskTotal: max(m.DiskTotal, 0), DiskUsed: max(m.DiskUsed, 0),
	}, nil
}
