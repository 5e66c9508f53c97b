-- +goose Up
-- With which of the tenant's secrets new sandboxes are made at a provider: {"provider": "name of the secret"}.
ALTER TABLE tenants ADD COLUMN provider_keys jsonb NOT NULL DEFAULT '{}';

-- The secret that a sandbox is made with: '' = the operator's key, null = not decided yet.
ALTER TABLE sandboxes ADD COLUMN provider_key text;
UPDATE sandboxes SET provider_key = '' WHERE provider IN ('e2b', 'daytona') AND ended_at IS NULL;
CREATE INDEX sandboxes_provider_key ON sandboxes (tenant_id, provider_key, ended_at) WHERE provider_key <> '';

-- The tenants' accounts in which sandboxes have been made, and when one was begun there last.
CREATE TABLE provider_accounts (
    provider  text NOT NULL,
    tenant_id text NOT NULL REFERENCES tenants ON DELETE CASCADE,
    secret    text NOT NULL,
    used_at   timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (provider, tenant_id, secret)
);

-- +goose Down
DROP TABLE provider_accounts;
ALTER TABLE sandboxes DROP COLUMN provider_key;
ALTER TABLE tenants DROP COLUMN provider_keys;
