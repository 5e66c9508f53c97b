-- +goose NO TRANSACTION
-- +goose Up
-- What a caller asked for who knows no jobs, and from when on the same call finds the job again. A job that ended
-- before its caller gave up leaves the index by itself.
ALTER TABLE jobs ADD COLUMN IF NOT EXISTS call bytea, ADD COLUMN IF NOT EXISTS joinable_at timestamptz;
DROP INDEX CONCURRENTLY IF EXISTS jobs_calls;
CREATE INDEX CONCURRENTLY jobs_calls ON jobs (sandbox_id, call) WHERE call IS NOT NULL AND (finished_at IS NULL OR finished_at >= joinable_at);

-- +goose Down
DROP INDEX CONCURRENTLY IF EXISTS jobs_calls;
ALTER TABLE jobs DROP COLUMN IF EXISTS call, DROP COLUMN IF EXISTS joinable_at;
