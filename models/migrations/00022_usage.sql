-- +goose Up
-- For whom the sandbox's use is counted: its label user, else who asked for it.
ALTER TABLE sandboxes ADD COLUMN usage_user text NOT NULL DEFAULT '';
UPDATE sandboxes s SET usage_user = coalesce(labels->>'user',
    (SELECT actor FROM jobs WHERE sandbox_id = s.id ORDER BY seq LIMIT 1), changed_by);

-- +goose StatementBegin
CREATE FUNCTION usage_of_new_sandboxes() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    NEW.usage_user := coalesce(NEW.labels->>'user', NEW.changed_by);
    RETURN NEW;
END $$;
-- +goose StatementEnd
CREATE TRIGGER usage_insert BEFORE INSERT ON sandboxes FOR EACH ROW EXECUTE FUNCTION usage_of_new_sandboxes();

-- What has been used, by the hour. It is only ever added to, by the scheduler, and outlives all that it was counted from.
CREATE TABLE usage_hours (
    tenant_id   text        NOT NULL,
    hour        timestamptz NOT NULL,
    user_id     text        NOT NULL,
    template    text        NOT NULL,
    provider    text        NOT NULL,
    kind        text        NOT NULL, -- of the jobs that it counts; empty = the sandboxes' own
    outcome     text        NOT NULL,
    running_ms  float8      NOT NULL DEFAULT 0, -- of sandboxes
    paused_ms   float8      NOT NULL DEFAULT 0,
    cpu_ms      float8      NOT NULL DEFAULT 0, -- allocated while running
    memory_mbms float8      NOT NULL DEFAULT 0, -- mebibytes times milliseconds, allocated while running or paused
    sent        bigint      NOT NULL DEFAULT 0, -- bytes to the outside
    received    bigint      NOT NULL DEFAULT 0,
    jobs        bigint      NOT NULL DEFAULT 0,
    run_ms      float8      NOT NULL DEFAULT 0, -- of jobs, from start to end
    exec_ms     float8      NOT NULL DEFAULT 0, -- of commands, inside their sandboxes
    PRIMARY KEY (tenant_id, hour, user_id, template, provider, kind, outcome)
);
CREATE INDEX usage_hours_all ON usage_hours (hour);

-- How long sandboxes have been running or paused, as far as it is not in usage_hours yet. They begin and end with the change of
-- state, in its transaction.
CREATE TABLE usage_spans (
    id         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    tenant_id  text        NOT NULL,
    sandbox_id text        NOT NULL,
    user_id    text        NOT NULL,
    template   text        NOT NULL,
    provider   text        NOT NULL,
    paused     boolean     NOT NULL,
    cpus       float8      NOT NULL,
    memory_mb  float8      NOT NULL,
    started_at timestamptz NOT NULL DEFAULT now(),
    ended_at   timestamptz -- NULL = it lasts
);
CREATE UNIQUE INDEX usage_spans_open ON usage_spans (sandbox_id) WHERE ended_at IS NULL;

-- What else was used and is not in usage_hours yet. Rows are appended, so that nobody waits for anybody.
CREATE TABLE usage_facts (
    tenant_id  text        NOT NULL,
    sandbox_id text        NOT NULL,
    at         timestamptz NOT NULL DEFAULT now(),
    actor      text        NOT NULL DEFAULT '',
    kind       text        NOT NULL DEFAULT '',
    outcome    text        NOT NULL DEFAULT '',
    run_ms     float8      NOT NULL DEFAULT 0,
    exec_ms    float8      NOT NULL DEFAULT 0,
    sent       bigint      NOT NULL DEFAULT 0,
    received   bigint      NOT NULL DEFAULT 0
);

-- +goose StatementBegin
CREATE FUNCTION usage_open_span(s sandboxes) RETURNS void LANGUAGE sql AS $$
    INSERT INTO usage_spans (tenant_id, sandbox_id, user_id, template, provider, paused, cpus, memory_mb)
    VALUES (s.tenant_id, s.id, s.usage_user, coalesce(s.template, ''), s.provider, s.state = 'paused',
        -- A limit that is not given is the standard one.
        coalesce(nullif((s.spec->'resources'->>'CPUs')::float8, 0), 1), coalesce(nullif((s.spec->'resources'->>'MemoryMB')::float8, 0), 512))
$$;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE FUNCTION usage_of_sandbox_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF OLD.state IN ('running', 'paused') THEN
        -- A transaction that waited for the row may have begun before the span did.
        UPDATE usage_spans SET ended_at = greatest(started_at, now()) WHERE sandbox_id = NEW.id AND ended_at IS NULL;
    END IF;
    IF NEW.state IN ('running', 'paused') THEN
        PERFORM usage_open_span(NEW);
    END IF;
    RETURN NULL;
END $$;
-- +goose StatementEnd
CREATE TRIGGER usage_update AFTER UPDATE ON sandboxes FOR EACH ROW
    WHEN (NEW.state IS DISTINCT FROM OLD.state) EXECUTE FUNCTION usage_of_sandbox_change();

-- +goose StatementBegin
CREATE FUNCTION usage_of_job_end() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO usage_facts (tenant_id, sandbox_id, at, actor, kind, outcome, run_ms, exec_ms)
    VALUES (NEW.tenant_id, coalesce(NEW.sandbox_id, ''), NEW.finished_at, NEW.actor, NEW.kind, NEW.state,
        coalesce(extract(epoch FROM NEW.finished_at - NEW.started_at) * 1000, 0),
        CASE WHEN NEW.kind = 'exec' THEN coalesce((NEW.result->>'duration_ms')::bigint, 0) ELSE 0 END);
    RETURN NULL;
END $$;
-- +goose StatementEnd
CREATE TRIGGER usage_update AFTER UPDATE ON jobs FOR EACH ROW
    WHEN (NEW.finished_at IS NOT NULL AND OLD.finished_at IS NULL) EXECUTE FUNCTION usage_of_job_end();
CREATE TRIGGER usage_insert AFTER INSERT ON jobs FOR EACH ROW
    WHEN (NEW.finished_at IS NOT NULL) EXECUTE FUNCTION usage_of_job_end();

-- +goose StatementBegin
CREATE FUNCTION usage_of_egress() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO usage_facts (tenant_id, sandbox_id, sent, received)
    SELECT tenant_id, id, NEW.sent - CASE WHEN TG_OP = 'UPDATE' THEN OLD.sent ELSE 0 END,
        NEW.received - CASE WHEN TG_OP = 'UPDATE' THEN OLD.received ELSE 0 END
    FROM sandboxes WHERE id = NEW.sandbox_id;
    RETURN NULL;
END $$;
-- +goose StatementEnd
CREATE TRIGGER usage_insert AFTER INSERT ON egress_usage FOR EACH ROW EXECUTE FUNCTION usage_of_egress();
CREATE TRIGGER usage_update AFTER UPDATE ON egress_usage FOR EACH ROW
    WHEN (NEW.sent IS DISTINCT FROM OLD.sent OR NEW.received IS DISTINCT FROM OLD.received) EXECUTE FUNCTION usage_of_egress();

-- Counting begins now.
SELECT usage_open_span(s) FROM sandboxes s WHERE state IN ('running', 'paused');

-- A span divided among the hours that it touches, as far as until.
-- +goose StatementBegin
CREATE FUNCTION usage_of_span(s usage_spans, until timestamptz) RETURNS SETOF usage_hours LANGUAGE sql STABLE AS $$
    SELECT s.tenant_id, h, s.user_id, s.template, s.provider, '', '',
        CASE WHEN s.paused THEN 0 ELSE ms END, CASE WHEN s.paused THEN ms ELSE 0 END,
        CASE WHEN s.paused THEN 0 ELSE ms * s.cpus END, ms * s.memory_mb, 0::bigint, 0::bigint, 0::bigint, 0::float8, 0::float8
    FROM generate_series(date_trunc('hour', s.started_at, 'UTC'), until, interval '1 hour') AS h
    CROSS JOIN LATERAL (SELECT (extract(epoch FROM least(until, h + interval '1 hour') - greatest(s.started_at, h)) * 1000)::float8 AS ms) p
    WHERE ms > 0
$$;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE FUNCTION usage_of_fact(f usage_facts) RETURNS SETOF usage_hours LANGUAGE sql STABLE AS $$
    SELECT f.tenant_id, date_trunc('hour', f.at, 'UTC'),
        CASE WHEN f.kind = '' THEN coalesce(s.usage_user, '') ELSE coalesce(s.labels->>'user', f.actor) END,
        coalesce(s.template, ''), coalesce(s.provider, ''), f.kind, f.outcome, 0::float8, 0::float8, 0::float8, 0::float8,
        f.sent, f.received, CASE WHEN f.kind = '' THEN 0 ELSE 1 END::bigint, f.run_ms, f.exec_ms
    FROM (SELECT) one LEFT JOIN sandboxes s ON s.id = f.sandbox_id
$$;
-- +goose StatementEnd

-- All that there is to tell: what is in usage_hours, and what is not yet.
CREATE VIEW usage_parts AS
SELECT * FROM usage_hours
UNION ALL SELECT p.* FROM usage_spans s, usage_of_span(s, coalesce(s.ended_at, now())) p
UNION ALL SELECT p.* FROM usage_facts f, usage_of_fact(f) p;

-- +goose Down
DROP VIEW usage_parts;
DROP TRIGGER usage_update ON egress_usage;
DROP TRIGGER usage_insert ON egress_usage;
DROP TRIGGER usage_update ON jobs;
DROP TRIGGER usage_insert ON jobs;
DROP TRIGGER usage_update ON sandboxes;
DROP TRIGGER usage_insert ON sandboxes;
DROP FUNCTION usage_of_new_sandboxes, usage_open_span, usage_of_sandbox_change, usage_of_job_end, usage_of_egress, usage_of_span, usage_of_fact;
DROP TABLE usage_hours, usage_spans, usage_facts;
ALTER TABLE sandboxes DROP COLUMN usage_user;
