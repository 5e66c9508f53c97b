-- +goose Up
-- When the worker was last heard of: one that has started since on the same machine may be it again. Not known of
-- workers that are older than this column.
ALTER TABLE nodes ADD COLUMN beat_at timestamptz;

-- +goose Down
ALTER TABLE nodes DROP COLUMN beat_at;
