-- +goose Up
-- People who log in with a password. A name is one user's, whatever the tenant.
CREATE TABLE users (
    id            text PRIMARY KEY,
    tenant_id     text NOT NULL REFERENCES tenants (id),
    name          text NOT NULL UNIQUE,
    password_hash text NOT NULL,
    role          text NOT NULL,
    created_at    timestamptz NOT NULL DEFAULT now(),
    -- Tokens from before do not count: of an earlier password, or from before the user was removed.
    tokens_since  timestamptz NOT NULL DEFAULT now(),
    removed_at    timestamptz
);

-- What tokens are signed with, the newest. Older ones are still believed.
CREATE TABLE signing_keys (
    id         text PRIMARY KEY,
    secret     bytea NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now()
);

-- +goose Down
DROP TABLE signing_keys;
DROP TABLE users;
