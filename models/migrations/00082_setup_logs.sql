-- +goose Up
-- What the clone and the setup script of a new sandbox wrote.
CREATE TABLE setup_logs (
    sandbox_id text   NOT NULL REFERENCES sandboxes ON DELETE CASCADE,
    seq        bigint GENERATED ALWAYS AS IDENTITY,
    step       text   NOT NULL,
    data       bytea  NOT NULL,
    PRIMARY KEY (sandbox_id, seq)
);

-- +goose Down
DROP TABLE setup_logs;
