-- +goose Up
ALTER TABLE nodes ADD COLUMN health jsonb NOT NULL DEFAULT '{}';

-- +goose Down
ALTER TABLE nodes DROP COLUMN health;
