-- +goose Up
-- A tenant's window counts what Redis holds and no worker has claimed, per lane; models.LaneOf says the same as job_lane.
-- +goose StatementBegin
CREATE FUNCTION job_lane(kind text) RETURNS text LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT CASE
        WHEN kind IN ('exec', 'exec_wait', 'code', 'code_create', 'build') THEN 'run'
        WHEN kind = 'create' THEN 'create'
        WHEN kind IN ('delete', 'pause', 'resume', 'timeout') THEN 'end'
        ELSE 'call'
    END
$$;
-- +goose StatementEnd
CREATE INDEX jobs_ready ON jobs (tenant_id, job_lane(kind), priority DESC, ready_at, id)
    WHERE state = 'queued' AND ready_at IS NOT NULL AND dispatched_at IS NULL;
CREATE INDEX jobs_unclaimed ON jobs (tenant_id, job_lane(kind))
    WHERE state = 'queued' AND dispatched_at IS NOT NULL;
DROP INDEX jobs_backlog, jobs_in_flight;

-- +goose Down
CREATE INDEX jobs_backlog ON jobs (tenant_id, priority DESC, ready_at, id)
    WHERE state = 'queued' AND ready_at IS NOT NULL AND dispatched_at IS NULL;
CREATE INDEX jobs_in_flight ON jobs (tenant_id) WHERE state IN ('queued', 'running') AND dispatched_at IS NOT NULL;
DROP INDEX jobs_ready, jobs_unclaimed;
DROP FUNCTION job_lane;
