-- +goose Up
-- Work that one process at a time does, whoever holds the lease.
CREATE TABLE leases (
    name        text PRIMARY KEY,
    holder      text        NOT NULL,
    lease_until timestamptz NOT NULL
);

-- +goose Down
DROP TABLE leases;
