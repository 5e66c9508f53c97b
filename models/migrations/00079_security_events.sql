-- +goose Up
-- What may be an attack, counted: one row per tenant, kind and minute, however often it happens. The other columns are those of the
-- last time. An empty tenant is that of callers whom nobody knows.
CREATE TABLE security_events (
    id         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    tenant_id  text        NOT NULL,
    kind       text        NOT NULL,
    minute     timestamptz NOT NULL,
    times      bigint      NOT NULL,
    last_at    timestamptz NOT NULL DEFAULT now(),
    client     text        NOT NULL DEFAULT '', -- the address
    actor      text        NOT NULL DEFAULT '', -- an API key, a login or a user
    sandbox_id text        NOT NULL DEFAULT '',
    detail     text        NOT NULL DEFAULT '',
    UNIQUE (tenant_id, kind, minute)
);
CREATE INDEX security_events_list ON security_events (tenant_id, id DESC);
CREATE INDEX security_events_minute ON security_events (minute);

-- +goose Down
DROP TABLE security_events;
