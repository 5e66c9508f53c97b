-- +goose Up
-- For forgetting sandboxes that ended long ago.
CREATE INDEX sandboxes_ended ON sandboxes (ended_at) WHERE ended_at IS NOT NULL;

-- +goose Down
DROP INDEX sandboxes_ended;
