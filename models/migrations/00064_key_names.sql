-- +goose Up
-- The valid keys of a tenant have different names, so that a name is enough to see which is which. Of equal names the
-- oldest key keeps it.
UPDATE api_keys k SET name = left(k.name, 60) || ' ' || k.id
WHERE k.revoked_at IS NULL AND EXISTS (
    SELECT 1 FROM api_keys o WHERE o.tenant_id = k.tenant_id AND o.name = k.name AND o.revoked_at IS NULL
        AND (o.created_at, o.id) < (k.created_at, k.id));
CREATE UNIQUE INDEX api_keys_name ON api_keys (tenant_id, name) WHERE revoked_at IS NULL;

-- +goose Down
DROP INDEX api_keys_name;
