-- +goose Up
-- Where the node's gateway is reached, as a URL; empty = it has none.
ALTER TABLE nodes ADD COLUMN gateway text NOT NULL DEFAULT '';

-- +goose Down
ALTER TABLE nodes DROP COLUMN gateway;
