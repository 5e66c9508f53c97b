-- +goose Up
-- A template has the image that was asked for last, by a build or by name.
ALTER TABLE templates ADD COLUMN image_asked_at timestamptz NOT NULL DEFAULT now();
UPDATE templates SET image_asked_at = coalesce((SELECT b.created_at FROM builds b WHERE b.id = build_id), templates.created_at);

-- +goose Down
ALTER TABLE templates DROP COLUMN image_asked_at;
