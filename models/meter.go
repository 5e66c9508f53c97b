package models

import (
	"context"
	"encoding/json"
)

// Meter is what a sandbox has used since it was made.
type Meter struct {
	SandboxID string
	CPUMS     float64 // milliseconds of processor time
	MemoryMB  float64 // now
	PeakMB    float64
}

// Metered returns the sandboxes whose use a node can measure, with no more than their ids and their provider's.
func (s *Store) Metered(ctx context.Context, node string) ([]Sandbox, error) {
	var list []Sandbox
	err := s.db.WithContext(ctx).Select("id", "provider_ref").
		Where("node_id = ? AND ended_at IS NULL AND state IN ('running', 'paused')", node).Order("id").Find(&list).Error
	return list, err
}

// AddMeters writes readings down, all in one statement. What has come to them since the last ones is counted in the hour
// of now. A reading that is older than the last one changes nothing, and sandboxes that are not there any more are left out.
func (s *Store) AddMeters(ctx context.Context, readings []Meter) error {
	if len(readings) == 0 {
		return nil
	}
	return s.db.WithContext(ctx).Exec(`INSERT INTO usage_meters AS m (sandbox_id, cpu_ms, memory_mb, memory_peak_mb)
		SELECT r.* FROM jsonb_to_recordset(?::jsonb) AS r("SandboxID" text, "CPUMS" float8, "MemoryMB" float8, "PeakMB" float8)
		WHERE EXISTS (SELECT 1 FROM sandboxes WHERE id = r."SandboxID") ORDER BY 1
		ON CONFLICT (sandbox_id) DO UPDATE SET cpu_ms = excluded.cpu_ms, memory_mb = excluded.memory_mb,
			memory_peak_mb = greatest(m.memory_peak_mb, excluded.memory_peak_mb), measured_at = excluded.measured_at
		WHERE excluded.cpu_ms >= m.cpu_ms AND excluded.measured_at > m.measured_at`,
		string(must(json.Marshal(readings)))).Error
}
