-- +goose Up
-- Where the sandbox may connect to; NULL = nowhere.
ALTER TABLE sandboxes ADD COLUMN egress jsonb;
CREATE INDEX sandboxes_egress ON sandboxes (node_id) WHERE ended_at IS NULL AND egress IS NOT NULL;

-- What sandboxes have used of the outside, as their workers report it every few seconds.
CREATE TABLE egress_usage (
    sandbox_id  text PRIMARY KEY REFERENCES sandboxes ON DELETE CASCADE,
    connections bigint      NOT NULL DEFAULT 0,
    denied      bigint      NOT NULL DEFAULT 0,
    sent        bigint      NOT NULL DEFAULT 0, -- bytes, to the outside
    received    bigint      NOT NULL DEFAULT 0,
    updated_at  timestamptz NOT NULL DEFAULT now()
);

-- What they were refused: security events, one row for the same destination and reason.
CREATE TABLE egress_denials (
    sandbox_id text        NOT NULL REFERENCES sandboxes ON DELETE CASCADE,
    target     text        NOT NULL, -- host:port; empty = it could not be read
    reason     text        NOT NULL,
    count      bigint      NOT NULL,
    first_at   timestamptz NOT NULL,
    last_at    timestamptz NOT NULL,
    PRIMARY KEY (sandbox_id, target, reason)
);

-- +goose Down
DROP TABLE egress_denials, egress_usage;
ALTER TABLE sandboxes DROP COLUMN egress;
