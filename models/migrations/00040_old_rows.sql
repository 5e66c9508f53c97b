-- +goose NO TRANSACTION
-- +goose Up
-- For what is asked again and again: which rows are old enough to be forgotten, what else goes with them, whose an image is. Every
-- submission writes to the first table, so they are made while writing goes on; what an attempt that broke off has left would else be
-- taken for the index.
DROP INDEX CONCURRENTLY IF EXISTS idempotency_keys_age;
CREATE INDEX CONCURRENTLY idempotency_keys_age ON idempotency_keys (created_at);
DROP INDEX CONCURRENTLY IF EXISTS builds_age;
CREATE INDEX CONCURRENTLY builds_age ON builds (created_at);
DROP INDEX CONCURRENTLY IF EXISTS builds_image;
CREATE INDEX CONCURRENTLY builds_image ON builds (image);
DROP INDEX CONCURRENTLY IF EXISTS port_grants_sandbox;
CREATE INDEX CONCURRENTLY port_grants_sandbox ON port_grants (sandbox_id);

-- +goose Down
DROP INDEX CONCURRENTLY IF EXISTS port_grants_sandbox;
DROP INDEX CONCURRENTLY IF EXISTS builds_image;
DROP INDEX CONCURRENTLY IF EXISTS builds_age;
DROP INDEX CONCURRENTLY IF EXISTS idempotency_keys_age;
