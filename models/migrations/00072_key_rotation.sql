-- +goose Up
-- A key that was rotated is valid for a while beside its successor, which has its name.
ALTER TABLE api_keys ADD COLUMN replaced_by text;
DROP INDEX api_keys_name;
CREATE UNIQUE INDEX api_keys_name ON api_keys (tenant_id, name) WHERE revoked_at IS NULL AND replaced_by IS NULL;

-- +goose Down
UPDATE api_keys SET name = left(name, 60) || ' ' || id WHERE replaced_by IS NOT NULL;
DROP INDEX api_keys_name;
CREATE UNIQUE INDEX api_keys_name ON api_keys (tenant_id, name) WHERE revoked_at IS NULL;
ALTER TABLE api_keys DROP COLUMN replaced_by;
