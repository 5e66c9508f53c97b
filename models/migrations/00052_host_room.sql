-- +goose Up
-- What the sandboxes on a node's engine may have of processes, together with those of the engine's other nodes; 0 = no limit.
-- From here on max_cpus and max_memory_mb are the engine's, too.
ALTER TABLE nodes ADD COLUMN max_pids bigint NOT NULL DEFAULT 0;
ALTER TABLE sandboxes ADD COLUMN pids bigint NOT NULL DEFAULT 0;

-- +goose Down
ALTER TABLE sandboxes DROP COLUMN pids;
ALTER TABLE nodes DROP COLUMN max_pids;
