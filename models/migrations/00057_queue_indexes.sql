-- +goose NO TRANSACTION
-- +goose Up
-- Jobs of a sandbox that wait or run: whether one of the ordered ones does, and which is the oldest of them, is one look whatever runs
-- beside them. A tenant's queued jobs, for its limit. They are made while writing goes on.
DROP INDEX CONCURRENTLY IF EXISTS jobs_order;
CREATE INDEX CONCURRENTLY jobs_order ON jobs (sandbox_id, parallel, seq) WHERE state IN ('queued', 'running');
DROP INDEX CONCURRENTLY IF EXISTS jobs_chain;
DROP INDEX CONCURRENTLY IF EXISTS jobs_queued;
CREATE INDEX CONCURRENTLY jobs_queued ON jobs (tenant_id) WHERE state = 'queued';

-- +goose Down
DROP INDEX CONCURRENTLY IF EXISTS jobs_queued;
CREATE INDEX CONCURRENTLY IF NOT EXISTS jobs_chain ON jobs (sandbox_id, seq) WHERE state IN ('queued', 'running');
DROP INDEX CONCURRENTLY IF EXISTS jobs_order;
