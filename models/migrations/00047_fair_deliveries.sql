-- +goose Up
-- Callbacks of one tenant, or to one of its hosts, must not stand before those of others: what is due is looked for by both.
ALTER TABLE deliveries
    ADD COLUMN endpoint      bigint NOT NULL DEFAULT 0, -- a hash of the URL's host and port
    ADD COLUMN running_until timestamptz;               -- while an attempt is made

-- +goose StatementBegin
CREATE FUNCTION delivery_endpoint(url text) RETURNS bigint LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT hashtextextended(coalesce(lower(substring(url FROM '^[^:]+://(?:[^@/?#]*@)?([^/?#]*)')), ''), 0)
$$;
-- +goose StatementEnd
UPDATE deliveries SET endpoint = delivery_endpoint(url) WHERE state = 'pending';
CREATE INDEX deliveries_waiting ON deliveries (tenant_id, endpoint, next_attempt_at) WHERE state = 'pending';
CREATE INDEX deliveries_busy ON deliveries (tenant_id) WHERE state = 'pending' AND (dispatched_at IS NOT NULL OR running_until IS NOT NULL);

-- +goose Down
DROP INDEX deliveries_waiting, deliveries_busy;
ALTER TABLE deliveries DROP COLUMN endpoint, DROP COLUMN running_until;
DROP FUNCTION delivery_endpoint;
