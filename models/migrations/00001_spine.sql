-- +goose Up
CREATE TABLE tenants (
    id             text PRIMARY KEY,
    name           text        NOT NULL,
    max_sandboxes  int         NOT NULL DEFAULT 100,   -- live at once
    max_queued     int         NOT NULL DEFAULT 10000, -- jobs waiting at once
    webhook_secret text       NOT NULL, -- whsec_…, signs the tenant's callbacks
    created_at     timestamptz NOT NULL DEFAULT now()
);

CREATE TABLE api_keys (
    id         text PRIMARY KEY,
    tenant_id  text        NOT NULL REFERENCES tenants,
    name       text        NOT NULL,
    hint       text        NOT NULL,        -- first characters, for people
    hash       bytea       NOT NULL UNIQUE, -- SHA-256 of the whole key
    scopes     jsonb       NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    revoked_at timestamptz
);

-- Worker processes. A node whose lease has ended lost its sandboxes to whoever adopts them.
CREATE TABLE nodes (
    id          text PRIMARY KEY,
    provider    text        NOT NULL,
    engine      text        NOT NULL, -- what the node's sandboxes live on; nodes of one engine can adopt from each other
    slots       int         NOT NULL, -- jobs at once
    lease_until timestamptz NOT NULL,
    started_at  timestamptz NOT NULL DEFAULT now()
);

CREATE TABLE sandboxes (
    id              text PRIMARY KEY,
    tenant_id       text        NOT NULL REFERENCES tenants,
    key             text, -- the caller's own name for it, unique among the tenant's live sandboxes
    provider        text        NOT NULL,
    template        text,
    image           text        NOT NULL,
    node_id         text, -- who holds it, where sandboxes live on nodes
    provider_ref    text,
    state           text        NOT NULL,
    desired         text        NOT NULL,
    observed        text,
    observed_at     timestamptz,
    spec            jsonb       NOT NULL,
    labels          jsonb       NOT NULL DEFAULT '{}',
    next_seq        bigint      NOT NULL DEFAULT 0,
    timeout_ms      bigint      NOT NULL,
    on_timeout      text        NOT NULL,
    idle_timeout_ms bigint      NOT NULL, -- 0 = never
    expires_at      timestamptz NOT NULL,
    last_active_at  timestamptz NOT NULL DEFAULT now(),
    end_reason      text,
    end_actor       text,
    created_at      timestamptz NOT NULL DEFAULT now(),
    started_at      timestamptz,
    ended_at        timestamptz
);
CREATE UNIQUE INDEX sandboxes_key ON sandboxes (tenant_id, key) WHERE key IS NOT NULL AND ended_at IS NULL;
CREATE INDEX sandboxes_list ON sandboxes (tenant_id, id DESC);
CREATE INDEX sandboxes_labels ON sandboxes USING gin (labels);
CREATE INDEX sandboxes_live ON sandboxes (tenant_id) WHERE ended_at IS NULL;
CREATE INDEX sandboxes_node ON sandboxes (node_id) WHERE ended_at IS NULL;
CREATE INDEX sandboxes_expiry ON sandboxes (expires_at) WHERE ended_at IS NULL;
-- Not on last_active_at: every job changes that, and an update of no indexed column is cheap.
CREATE INDEX sandboxes_idle ON sandboxes (id) WHERE ended_at IS NULL AND idle_timeout_ms > 0;

CREATE TABLE jobs (
    id                  text PRIMARY KEY,
    tenant_id           text        NOT NULL REFERENCES tenants,
    sandbox_id          text REFERENCES sandboxes,
    kind                text        NOT NULL,
    state               text        NOT NULL,
    seq                 bigint      NOT NULL,               -- submission order in the sandbox
    parallel            boolean     NOT NULL DEFAULT false, -- stands outside that order
    priority            int         NOT NULL DEFAULT 0,
    actor               text        NOT NULL,
    args                jsonb       NOT NULL,
    input               bytea, -- bytes that belong to args: stdin, a file's content
    timeout_ms          bigint      NOT NULL,
    queue_deadline      timestamptz,
    callback_url        text,
    retry_of            text,
    max_attempts        int         NOT NULL,
    ready_at            timestamptz, -- may run from then on; NULL = waits behind another job of its sandbox
    dispatched_at       timestamptz, -- handed to Redis; NULL = waits for room in its tenant's window
    queue               text,
    generation          int         NOT NULL DEFAULT 0, -- of the Redis task
    attempt             int         NOT NULL DEFAULT 0, -- the fence
    node_id             text,
    lease_until         timestamptz,
    cancel_requested_at timestamptz,
    result              jsonb,
    stdout              bytea,
    stderr              bytea,
    content             bytea,
    error               jsonb,
    queued_at           timestamptz NOT NULL DEFAULT now(),
    started_at          timestamptz,
    finished_at         timestamptz,
    provider_ms         bigint
);
ALTER TABLE jobs ALTER COLUMN stdout SET STORAGE EXTERNAL, ALTER COLUMN stderr SET STORAGE EXTERNAL,
    ALTER COLUMN content SET STORAGE EXTERNAL, ALTER COLUMN input SET STORAGE EXTERNAL;
CREATE INDEX jobs_list ON jobs (tenant_id, id DESC);
CREATE INDEX jobs_chain ON jobs (sandbox_id, seq) WHERE state IN ('queued', 'running');
CREATE INDEX jobs_of_sandbox ON jobs (sandbox_id, id DESC);
CREATE INDEX jobs_backlog ON jobs (tenant_id, priority DESC, ready_at, id)
    WHERE state = 'queued' AND ready_at IS NOT NULL AND dispatched_at IS NULL;
CREATE INDEX jobs_in_flight ON jobs (tenant_id) WHERE state IN ('queued', 'running') AND dispatched_at IS NOT NULL;
CREATE INDEX jobs_dispatched ON jobs (dispatched_at) WHERE state = 'queued' AND dispatched_at IS NOT NULL;
CREATE INDEX jobs_lease ON jobs (lease_until) WHERE state = 'running';
CREATE INDEX jobs_deadline ON jobs (queue_deadline) WHERE state = 'queued' AND queue_deadline IS NOT NULL;

CREATE TABLE idempotency_keys (
    tenant_id  text        NOT NULL REFERENCES tenants,
    key        text        NOT NULL,
    request    bytea       NOT NULL, -- SHA-256 of method, path and body
    job_id     text        NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (tenant_id, key)
);

CREATE TABLE deliveries (
    id              text PRIMARY KEY, -- the webhook-id, the same on every attempt
    tenant_id       text        NOT NULL REFERENCES tenants,
    job_id          text        NOT NULL REFERENCES jobs,
    event           text        NOT NULL,
    url             text        NOT NULL,
    state           text        NOT NULL, -- pending, delivered, failed
    attempt         int         NOT NULL DEFAULT 0,
    next_attempt_at timestamptz NOT NULL DEFAULT now(),
    dispatched_at   timestamptz,
    last_status     int,
    last_error      text,
    created_at      timestamptz NOT NULL DEFAULT now(),
    delivered_at    timestamptz,
    UNIQUE (job_id, event)
);
CREATE INDEX deliveries_due ON deliveries (next_attempt_at) WHERE state = 'pending';

-- One row per fact the fleet shares, such as the Redis epoch.
CREATE TABLE settings (
    name  text PRIMARY KEY,
    value text NOT NULL
);

-- +goose Down
DROP TABLE settings, deliveries, idempotency_keys, jobs, sandboxes, nodes, api_keys, tenants;
