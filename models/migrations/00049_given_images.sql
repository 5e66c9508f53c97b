-- +goose Up
-- A template has the image that was asked for last, by a build or by name.
ALTER TABLE templates ADD COLUMN image_given_at timestamptz; -- when another image was last named; null = none was since the template was made

-- +goose Down
ALTER TABLE templates DROP COLUMN image_given_at;
