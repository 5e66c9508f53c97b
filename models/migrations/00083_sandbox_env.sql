-- +goose Up
-- Variables that later commands of a sandbox get, beside those that it was made with.
CREATE TABLE sandbox_env (
    sandbox_id text NOT NULL REFERENCES sandboxes ON DELETE CASCADE,
    name       text NOT NULL,
    value      text NOT NULL,
    PRIMARY KEY (sandbox_id, name)
);

-- +goose Down
DROP TABLE sandbox_env;
