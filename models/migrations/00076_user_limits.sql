-- +goose Up
-- Limits of one user, below those of the tenant; NULL = none.
ALTER TABLE users ADD COLUMN max_sandboxes int, ADD COLUMN max_cpus double precision, ADD COLUMN max_memory_mib bigint,
    ADD COLUMN max_queued int;
-- Whose key, sandbox and schedule it is, where a user's login or key made it.
ALTER TABLE api_keys ADD COLUMN user_id text REFERENCES users (id);
ALTER TABLE sandboxes ADD COLUMN user_id text;
ALTER TABLE schedules ADD COLUMN user_id text;
CREATE INDEX api_keys_user ON api_keys (user_id) WHERE user_id IS NOT NULL;
CREATE INDEX schedules_user ON schedules (user_id) WHERE user_id IS NOT NULL;

-- +goose Down
DROP INDEX schedules_user;
ALTER TABLE schedules DROP COLUMN user_id;
ALTER TABLE sandboxes DROP COLUMN user_id;
ALTER TABLE api_keys DROP COLUMN user_id;
ALTER TABLE users DROP COLUMN max_sandboxes, DROP COLUMN max_cpus, DROP COLUMN max_memory_mib, DROP COLUMN max_queued;
