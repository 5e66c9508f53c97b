-- +goose Up
-- Traffic and jobs that find the sandbox paused resume it.
ALTER TABLE sandboxes ADD COLUMN auto_resume boolean NOT NULL DEFAULT false;

-- Who may reach a port of a sandbox from outside: the bearer of the grant's token or, where it is public, everybody.
CREATE TABLE port_grants (
    id         text PRIMARY KEY,
    tenant_id  text        NOT NULL REFERENCES tenants,
    sandbox_id text        NOT NULL REFERENCES sandboxes ON DELETE CASCADE,
    port       int         NOT NULL,
    public     boolean     NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    expires_at timestamptz NOT NULL,
    revoked_at timestamptz
);
CREATE INDEX port_grants_live ON port_grants (sandbox_id) WHERE revoked_at IS NULL;
CREATE INDEX port_grants_expiry ON port_grants (expires_at);

-- +goose Down
DROP TABLE port_grants;
ALTER TABLE sandboxes DROP COLUMN auto_resume;
