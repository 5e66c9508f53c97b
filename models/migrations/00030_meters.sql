-- +goose Up
-- What sandboxes have really used, as their workers read it again and again and at their ends. Readings only grow: one
-- that comes late, or twice, or from another worker, changes nothing.
CREATE TABLE usage_meters (
    sandbox_id     text PRIMARY KEY REFERENCES sandboxes ON DELETE CASCADE,
    cpu_ms         float8      NOT NULL, -- since the sandbox was made
    memory_mb      float8      NOT NULL, -- at that moment
    memory_peak_mb float8      NOT NULL,
    measured_at    timestamptz NOT NULL DEFAULT now()
);

ALTER TABLE usage_facts
    ADD COLUMN cpu_used_ms      float8 NOT NULL DEFAULT 0,
    ADD COLUMN memory_used_mbms float8 NOT NULL DEFAULT 0,
    ADD COLUMN memory_peak_mb   float8 NOT NULL DEFAULT 0;
ALTER TABLE usage_hours
    ADD COLUMN cpu_used_ms      float8 NOT NULL DEFAULT 0,
    ADD COLUMN memory_used_mbms float8 NOT NULL DEFAULT 0, -- mebibytes times milliseconds
    ADD COLUMN memory_peak_mb   float8 NOT NULL DEFAULT 0; -- of any one sandbox

-- What has come to a reading since the one before. Memory is taken for the mean of the two meanwhile.
-- +goose StatementBegin
CREATE FUNCTION usage_of_meter() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'INSERT' THEN
        INSERT INTO usage_facts (tenant_id, sandbox_id, cpu_used_ms, memory_used_mbms, memory_peak_mb)
        SELECT tenant_id, id, NEW.cpu_ms, NEW.memory_mb * greatest(0, extract(epoch FROM NEW.measured_at - coalesce(started_at, NEW.measured_at)) * 1000),
            NEW.memory_peak_mb FROM sandboxes WHERE id = NEW.sandbox_id;
    ELSE
        INSERT INTO usage_facts (tenant_id, sandbox_id, cpu_used_ms, memory_used_mbms, memory_peak_mb)
        SELECT tenant_id, id, NEW.cpu_ms - OLD.cpu_ms, (NEW.memory_mb + OLD.memory_mb) / 2 * extract(epoch FROM NEW.measured_at - OLD.measured_at) * 1000,
            NEW.memory_peak_mb FROM sandboxes WHERE id = NEW.sandbox_id;
    END IF;
    RETURN NULL;
END $$;
-- +goose StatementEnd
CREATE TRIGGER usage_insert AFTER INSERT ON usage_meters FOR EACH ROW EXECUTE FUNCTION usage_of_meter();
CREATE TRIGGER usage_update AFTER UPDATE ON usage_meters FOR EACH ROW EXECUTE FUNCTION usage_of_meter();

-- Cells of code are programs, too.
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION usage_of_job_end() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO usage_facts (tenant_id, sandbox_id, at, actor, kind, outcome, run_ms, exec_ms)
    VALUES (NEW.tenant_id, coalesce(NEW.sandbox_id, ''), NEW.finished_at, NEW.actor, NEW.kind, NEW.state,
        coalesce(extract(epoch FROM NEW.finished_at - NEW.started_at) * 1000, 0),
        CASE WHEN NEW.kind IN ('exec', 'code') THEN coalesce((NEW.result->>'duration_ms')::bigint, 0) ELSE 0 END);
    RETURN NULL;
END $$;
-- +goose StatementEnd

DROP VIEW usage_parts;
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION usage_of_span(s usage_spans, until timestamptz) RETURNS SETOF usage_hours LANGUAGE sql STABLE AS $$
    SELECT s.tenant_id, h, s.user_id, s.template, s.provider, '', '',
        CASE WHEN s.paused THEN 0 ELSE ms END, CASE WHEN s.paused THEN ms ELSE 0 END,
        CASE WHEN s.paused THEN 0 ELSE ms * s.cpus END, ms * s.memory_mb, 0::bigint, 0::bigint, 0::bigint, 0::float8, 0::float8,
        0::float8, 0::float8, 0::float8
    FROM generate_series(date_trunc('hour', s.started_at, 'UTC'), until, interval '1 hour') AS h
    CROSS JOIN LATERAL (SELECT (extract(epoch FROM least(until, h + interval '1 hour') - greatest(s.started_at, h)) * 1000)::float8 AS ms) p
    WHERE ms > 0
$$;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION usage_of_fact(f usage_facts) RETURNS SETOF usage_hours LANGUAGE sql STABLE AS $$
    SELECT f.tenant_id, date_trunc('hour', f.at, 'UTC'),
        CASE WHEN f.kind = '' THEN coalesce(s.usage_user, '') ELSE coalesce(s.labels->>'user', f.actor) END,
        coalesce(s.template, ''), coalesce(s.provider, ''), f.kind, f.outcome, 0::float8, 0::float8, 0::float8, 0::float8,
        f.sent, f.received, CASE WHEN f.kind = '' THEN 0 ELSE 1 END::bigint, f.run_ms, f.exec_ms,
        f.cpu_used_ms, f.memory_used_mbms, f.memory_peak_mb
    FROM (SELECT) one LEFT JOIN sandboxes s ON s.id = f.sandbox_id
$$;
-- +goose StatementEnd
CREATE VIEW usage_parts AS
SELECT * FROM usage_hours
UNION ALL SELECT p.* FROM usage_spans s, usage_of_span(s, coalesce(s.ended_at, now())) p
UNION ALL SELECT p.* FROM usage_facts f, usage_of_fact(f) p;

-- +goose Down
DROP VIEW usage_parts;
DROP TABLE usage_meters;
DROP FUNCTION usage_of_meter;
ALTER TABLE usage_facts DROP COLUMN cpu_used_ms, DROP COLUMN memory_used_mbms, DROP COLUMN memory_peak_mb;
ALTER TABLE usage_hours DROP COLUMN cpu_used_ms, DROP COLUMN memory_used_mbms, DROP COLUMN memory_peak_mb;
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION usage_of_job_end() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO usage_facts (tenant_id, sandbox_id, at, actor, kind, outcome, run_ms, exec_ms)
    VALUES (NEW.tenant_id, coalesce(NEW.sandbox_id, ''), NEW.finished_at, NEW.actor, NEW.kind, NEW.state,
        coalesce(extract(epoch FROM NEW.finished_at - NEW.started_at) * 1000, 0),
        CASE WHEN NEW.kind = 'exec' THEN coalesce((NEW.result->>'duration_ms')::bigint, 0) ELSE 0 END);
    RETURN NULL;
END $$;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION usage_of_span(s usage_spans, until timestamptz) RETURNS SETOF usage_hours LANGUAGE sql STABLE AS $$
    SELECT s.tenant_id, h, s.user_id, s.template, s.provider, '', '',
        CASE WHEN s.paused THEN 0 ELSE ms END, CASE WHEN s.paused THEN ms ELSE 0 END,
        CASE WHEN s.paused THEN 0 ELSE ms * s.cpus END, ms * s.memory_mb, 0::bigint, 0::bigint, 0::bigint, 0::float8, 0::float8
    FROM generate_series(date_trunc('hour', s.started_at, 'UTC'), until, interval '1 hour') AS h
    CROSS JOIN LATERAL (SELECT (extract(epoch FROM least(until, h + interval '1 hour') - greatest(s.started_at, h)) * 1000)::float8 AS ms) p
    WHERE ms > 0
$$;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION usage_of_fact(f usage_facts) RETURNS SETOF usage_hours LANGUAGE sql STABLE AS $$
    SELECT f.tenant_id, date_trunc('hour', f.at, 'UTC'),
        CASE WHEN f.kind = '' THEN coalesce(s.usage_user, '') ELSE coalesce(s.labels->>'user', f.actor) END,
        coalesce(s.template, ''), coalesce(s.provider, ''), f.kind, f.outcome, 0::float8, 0::float8, 0::float8, 0::float8,
        f.sent, f.received, CASE WHEN f.kind = '' THEN 0 ELSE 1 END::bigint, f.run_ms, f.exec_ms
    FROM (SELECT) one LEFT JOIN sandboxes s ON s.id = f.sandbox_id
$$;
-- +goose StatementEnd
CREATE VIEW usage_parts AS
SELECT * FROM usage_hours
UNION ALL SELECT p.* FROM usage_spans s, usage_of_span(s, coalesce(s.ended_at, now())) p
UNION ALL SELECT p.* FROM usage_facts f, usage_of_fact(f) p;
