-- +goose Up
-- Secrets of tenants, encrypted with a key that is not in the database.
CREATE TABLE secrets (
    tenant_id  text NOT NULL REFERENCES tenants (id),
    name       text NOT NULL,
    sealed     bytea NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    updated_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (tenant_id, name)
);

-- +goose Down
DROP TABLE secrets;
