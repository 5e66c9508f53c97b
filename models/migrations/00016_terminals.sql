-- +goose Up
-- A ticket opens one terminal for somebody who cannot send an API key, such as a page in a browser. It is used up by the
-- first connection that it lets in.
CREATE TABLE terminal_tickets (
    hash       bytea PRIMARY KEY,   -- SHA-256 of the whole ticket
    tenant_id  text        NOT NULL REFERENCES tenants,
    key_id     text        NOT NULL, -- the API key that asked for it; revoked with it
    sandbox_id text        NOT NULL REFERENCES sandboxes ON DELETE CASCADE,
    terminal   text        NOT NULL,
    origin     text        NOT NULL, -- of the page that may use it; empty = one of this server, or none
    created_at timestamptz NOT NULL DEFAULT now(),
    expires_at timestamptz NOT NULL,
    used_at    timestamptz
);
CREATE INDEX terminal_tickets_expiry ON terminal_tickets (expires_at);
CREATE INDEX terminal_tickets_sandbox ON terminal_tickets (sandbox_id);

-- +goose Down
DROP TABLE terminal_tickets;
