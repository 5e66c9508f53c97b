-- +goose Up
-- Logins of users. A token names its login, and counts as long as that does.
CREATE TABLE logins (
    id           text PRIMARY KEY,
    user_id      text NOT NULL REFERENCES users (id),
    refresh_hash bytea NOT NULL UNIQUE,
    -- The refresh token before this one: its answer may have been lost, so it works for a moment longer.
    before_hash  bytea UNIQUE,
    created_at   timestamptz NOT NULL DEFAULT now(),
    refreshed_at timestamptz NOT NULL DEFAULT now(),
    expires_at   timestamptz NOT NULL,
    ended_at     timestamptz
);
CREATE INDEX logins_user ON logins (user_id, created_at);

ALTER TABLE users DROP COLUMN tokens_since;

-- +goose Down
ALTER TABLE users ADD COLUMN tokens_since timestamptz NOT NULL DEFAULT now();
DROP TABLE logins;
