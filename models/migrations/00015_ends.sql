-- +goose Up
ALTER TABLE sandboxes
    ADD COLUMN max_lifetime_ms   bigint NOT NULL DEFAULT 0, -- from its start, whatever happens; 0 = no limit
    ADD COLUMN paused_timeout_ms bigint NOT NULL DEFAULT 0, -- 0 = may stay paused for ever
    ADD COLUMN paused_at         timestamptz;
CREATE INDEX sandboxes_lifetime ON sandboxes (id) WHERE ended_at IS NULL AND max_lifetime_ms > 0;
CREATE INDEX sandboxes_paused ON sandboxes (id) WHERE ended_at IS NULL AND paused_timeout_ms > 0;
-- For retention.
CREATE INDEX jobs_finished ON jobs (finished_at) WHERE finished_at IS NOT NULL;
CREATE INDEX jobs_output ON jobs (finished_at) WHERE finished_at IS NOT NULL AND coalesce(stdout, stderr, content) IS NOT NULL;
ALTER TABLE jobs ADD COLUMN output_dropped_at timestamptz;

-- +goose Down
ALTER TABLE jobs DROP COLUMN output_dropped_at;
DROP INDEX jobs_finished, jobs_output;
ALTER TABLE sandboxes DROP COLUMN max_lifetime_ms, DROP COLUMN paused_timeout_ms, DROP COLUMN paused_at;
