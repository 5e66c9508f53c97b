package models

import (
	"context"
	"encoding/json"
	"time"
)

// Meter is what a sandbox has used since it was made.
type Meter struct {
	SandboxID string
	CPUMS     float64 // milliseconds of processor time
	MemoryMB  float64 // now
	PeakMB    float64

	Sampled bool  // a sample is kept of it
	Memory  int64 // the sample's, like what follows; bytes
	Cache   int64
	Files   int64
}

// Sample is what a sandbox used at one moment.
type Sample struct {
	At         time.Time
	CPUPercent float64 // of the sandbox's share, since the reading before
	Memory     int64   // bytes, like what follows; without what the kernel can take back
	Cache      int64   // what it can
	Files      int64   // that the sandbox has written
}

// Metered returns the sandboxes whose use a node can measure, with no more than their ids, states and their provider's
// ids.
func (s *Store) Metered(ctx context.Context, node string) ([]Sandbox, error) {
	return findAll[Sandbox](s.db.WithContext(ctx).Select("id", "state", "provider_ref").
		Where("node_id = ? AND ended_at IS NULL AND state IN ('running', 'paused')", node).Order("id"))
}

// AddMeters writes readings down, and samples of those that say so, all in one statement. What has come to them since
// the last ones is counted in the hour of now. A reading that is older than the last one changes nothing, and sandboxes
// that are not there any more are left out.
//
// Rows are looked up one by one, so that no plan reads a whole table for the sake of a few of them.
func (s *Store) AddMeters(ctx context.Context, readings []Meter) error {
	if len(readings) == 0 {
		return nil
	}
	return s.db.WithContext(ctx).Exec(`
		WITH r AS MATERIALIZED (SELECT * FROM jsonb_to_recordset(?::jsonb) AS r("SandboxID" text, "CPUMS" float8, "MemoryMB" float8, "PeakMB" float8,
			"Sampled" boolean, "Memory" bigint, "Cache" bigint, "Files" bigint)),
		metered AS (
			INSERT INTO usage_meters AS m (sandbox_id, cpu_ms, memory_mb, memory_peak_mb)
			SELECT "SandboxID", "CPUMS", "MemoryMB", "PeakMB" FROM r WHERE EXISTS (SELECT 1 FROM sandboxes WHERE id = r."SandboxID") ORDER BY 1
			ON CONFLICT (sandbox_id) DO UPDATE SET cpu_ms = excluded.cpu_ms, memory_mb = excluded.memory_mb,
				memory_peak_mb = greatest(m.memory_peak_mb, excluded.memory_peak_mb), measured_at = excluded.measured_at
			WHERE excluded.cpu_ms >= m.cpu_ms AND excluded.measured_at > m.measured_at
			RETURNING sandbox_id, cpu_ms, measured_at)
		INSERT INTO usage_samples (sandbox_id, at, cpu_percent, memory, cache, files)
		SELECT m.sandbox_id, m.measured_at, least(100, greatest(0, coalesce((m.cpu_ms - coalesce(last.cpu_ms, 0)) / 10
				/ nullif(extract(epoch FROM m.measured_at - coalesce(last.measured_at, s.started_at))::float8 * s.share, 0), 0))),
			r."Memory", r."Cache", r."Files"
		FROM metered m JOIN r ON r."SandboxID" = m.sandbox_id AND r."Sampled",
			LATERAL (SELECT started_at, coalesce(nullif(cpus, 0), 1) AS share FROM sandboxes WHERE id = m.sandbox_id LIMIT 1) s
			LEFT JOIN LATERAL (SELECT cpu_ms, measured_at FROM usage_meters WHERE sandbox_id = m.sandbox_id LIMIT 1) last ON true -- as it was before`,
		string(must(json.Marshal(readings)))).Error
}

// Samples returns those of a sandbox between two moments, the oldest first.
func (s *Store) Samples(ctx context.Context, sandboxID string, from, to time.Time) ([]Sample, error) {
	return findAll[Sample](s.db.WithContext(ctx).
		Table("usage_samples").
		Where("sandbox_id = ? AND at BETWEEN ? AND ?", sandboxID, from, to).
		Order("at"))
}

// PruneSamples forgets samples older than age, and says how many.
func (s *Store) PruneSamples(ctx context.Context, age time.Duration, limit int) (int, error) {
	return s.pruneOld(ctx, "usage_samples", "at", age, limit)
}
