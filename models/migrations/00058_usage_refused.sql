-- +goose Up
-- The user of a sandbox is a label with any text, and part of the key of the hours: an index takes no more than 2.7 kB.
UPDATE sandboxes SET usage_user = left(usage_user, 128) WHERE length(usage_user) > 128;
UPDATE usage_spans SET user_id = left(user_id, 128), template = left(template, 128)
    WHERE length(user_id) > 128 OR length(template) > 128;

-- Usage that could not be added to the hours, with the reason. It keeps no other row from being added.
CREATE TABLE usage_refused (
    id    bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at    timestamptz NOT NULL DEFAULT now(),
    data  jsonb       NOT NULL, -- the row of usage_facts or usage_spans
    error text        NOT NULL
);

-- The users whose usage is counted apart on a day. Beyond a number of them usage is counted for the user "other".
CREATE TABLE usage_users (
    tenant_id text        NOT NULL,
    day       timestamptz NOT NULL,
    user_id   text        NOT NULL,
    PRIMARY KEY (tenant_id, day, user_id)
);
CREATE INDEX usage_users_age ON usage_users (day);

-- +goose StatementBegin
CREATE OR REPLACE FUNCTION usage_of_new_sandboxes() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    NEW.usage_user := left(coalesce(NEW.labels->>'user', (SELECT usage_user FROM sandboxes WHERE id = NEW.replaces), NEW.changed_by), 128);
    RETURN NEW;
END $$;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE OR REPLACE FUNCTION usage_open_span(s sandboxes) RETURNS void LANGUAGE sql AS $$
    INSERT INTO usage_spans (tenant_id, sandbox_id, user_id, template, provider, paused, cpus, memory_mb)
    VALUES (s.tenant_id, s.id, left(s.usage_user, 128), left(coalesce(s.template, ''), 128), left(s.provider, 128), s.state = 'paused',
        -- A limit that is not given is the standard one.
        coalesce(nullif((s.spec->'resources'->>'CPUs')::float8, 0), 1), coalesce(nullif((s.spec->'resources'->>'MemoryMB')::float8, 0), 512))
$$;
-- +goose StatementEnd

-- What a result says comes from a sandbox: it must not keep the job from its end.
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION usage_of_job_end() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO usage_facts (tenant_id, sandbox_id, at, actor, kind, outcome, run_ms, exec_ms)
    VALUES (NEW.tenant_id, coalesce(NEW.sandbox_id, ''), NEW.finished_at, NEW.actor, NEW.kind, NEW.state,
        coalesce(extract(epoch FROM NEW.finished_at - NEW.started_at) * 1000, 0),
        CASE WHEN NEW.kind IN ('exec', 'code') AND NEW.result->>'duration_ms' ~ '^[0-9]{1,15}$' THEN (NEW.result->>'duration_ms')::bigint ELSE 0 END);
    RETURN NULL;
END $$;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE OR REPLACE FUNCTION usage_of_fact(f usage_facts) RETURNS SETOF usage_hours LANGUAGE sql STABLE AS $$
    SELECT f.tenant_id, date_trunc('hour', f.at, 'UTC'),
        left(CASE WHEN f.kind = '' THEN coalesce(s.usage_user, '') ELSE coalesce(s.labels->>'user', f.actor) END, 128),
        left(coalesce(s.template, ''), 128), left(coalesce(s.provider, ''), 128), f.kind, f.outcome, 0::float8, 0::float8, 0::float8, 0::float8,
        f.sent, f.received, CASE WHEN f.kind = '' THEN 0 ELSE 1 END::bigint, f.run_ms, f.exec_ms,
        f.cpu_used_ms, f.memory_used_mbms, f.memory_peak_mb
    FROM (SELECT) one LEFT JOIN sandboxes s ON s.id = f.sandbox_id
$$;
-- +goose StatementEnd

-- +goose Down
DROP TABLE usage_users, usage_refused;
-- The functions stay: they bound texts, and no table depends on that.
