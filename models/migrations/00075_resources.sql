-- +goose Up
-- What the live sandboxes of a tenant may take together; NULL = no limit.
ALTER TABLE tenants ADD COLUMN max_cpus double precision, ADD COLUMN max_memory_mib bigint;
-- From now on a sandbox says so when it is submitted, not only when it is placed.
UPDATE sandboxes SET
    cpus = coalesce(nullif((spec->'resources'->>'CPUs')::float8, 0), 1),
    memory_mb = coalesce(nullif((spec->'resources'->>'MemoryMB')::bigint, 0), 512)
WHERE ended_at IS NULL AND cpus = 0;

-- +goose Down
ALTER TABLE tenants DROP COLUMN max_cpus, DROP COLUMN max_memory_mib;
