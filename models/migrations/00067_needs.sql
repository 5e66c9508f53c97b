-- +goose Up
-- The job of the same sandbox without whose success this one must not begin.
ALTER TABLE jobs ADD COLUMN needs text;

-- +goose Down
ALTER TABLE jobs DROP COLUMN needs;
