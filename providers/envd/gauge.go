package envd

import (
	"context"
	"encoding/json"
	"io"
	"net/http"

	"sandyard/providers"
)

// maxGauge bounds the guest's answer, in bytes.
const maxGauge = 4 << 10

// Gauge implements providers.Gauge by envd's GET /metrics.
func (s *Sandbox) Gauge(ctx context.Context) (providers.Gauged, error) {
	answer, err := s.do(ctx, http.MethodGet, "/metrics", nil, nil)
	if err != nil {
		return providers.Gauged{}, err
	}
	defer answer.Body.Close()
	var m struct {
		CPUs      int     `json:"cpu_count"`
		CPU       float64 `json:"cpu_used_pct"`
		MemTotal  int64   `json:"mem_total"`
		MemUsed   int64   `json:"mem_used"`
		MemCache  int64   `json:"mem_cache"`
		DiskTotal int64   `json:"disk_total"`
		DiskUsed  int64   `json:"disk_used"`
	}
	if err := json.NewDecoder(io.LimitReader(answer.Body, maxGauge)).Decode(&m); err != nil {
		return providers.Gauged{}, s.unavailable(err)
	}
	return providers.Gauged{
		CPUs: max(m.CPUs, 0), CPUPercent: max(m.CPU, 0), MemTotal: max(m.MemTotal, 0), MemUsed: max(m.MemUsed, 0),
		MemCache: max(m.MemCache, 0), DiskTotal: max(m.DiskTotal, 0), DiskUsed: max(m.DiskUsed, 0),
	}, nil
}
