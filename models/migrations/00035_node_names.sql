-- +goose Up
-- What the worker is called by its operator, so that a drain finds it again where hosts have new names each time, as
-- containers have; empty = by its host.
ALTER TABLE nodes ADD COLUMN name text NOT NULL DEFAULT '';

-- +goose Down
ALTER TABLE nodes DROP COLUMN name;
