-- +goose Up
ALTER TABLE nodes
    ADD COLUMN host          text             NOT NULL DEFAULT '', -- for people
    ADD COLUMN max_sandboxes int              NOT NULL DEFAULT 0,  -- what it may hold; 0 = no limit, as of the next two
    ADD COLUMN max_cpus      double precision NOT NULL DEFAULT 0,
    ADD COLUMN max_memory_mb bigint           NOT NULL DEFAULT 0,
    ADD COLUMN draining_at   timestamptz,                          -- it is given no new sandboxes
    ADD COLUMN leaving       boolean          NOT NULL DEFAULT false; -- its process is to end
-- What a sandbox takes of its node's room, from when it is placed.
ALTER TABLE sandboxes
    ADD COLUMN cpus      double precision NOT NULL DEFAULT 0,
    ADD COLUMN memory_mb bigint           NOT NULL DEFAULT 0;

-- +goose Down
ALTER TABLE sandboxes DROP COLUMN cpus, DROP COLUMN memory_mb;
ALTER TABLE nodes DROP COLUMN host, DROP COLUMN max_sandboxes, DROP COLUMN max_cpus, DROP COLUMN max_memory_mb, DROP COLUMN draining_at, DROP COLUMN leaving;
