-- +goose Up
-- Who brought the sandbox's state about, and by which job.
ALTER TABLE sandboxes ADD COLUMN changed_by text NOT NULL DEFAULT 'platform', ADD COLUMN changed_job text;
-- Who asked for the job's end, and why it went back to the queue.
ALTER TABLE jobs ADD COLUMN cancelled_by text, ADD COLUMN requeue_reason text;

-- What happened to sandboxes and their jobs. Rows are written by the triggers below, in the transaction of the change,
-- so no change can forget its event; they are never updated.
CREATE TABLE events (
    id         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at         timestamptz NOT NULL DEFAULT now(),
    tenant_id  text        NOT NULL,
    sandbox_id text        NOT NULL,
    job_id     text, -- the job that it is about, or that brought it about
    event      text        NOT NULL, -- sandbox.running, job.failed and so on
    actor      text        NOT NULL, -- an API key, scheduler, platform or worker:<node>
    reason     text,
    detail     jsonb
);
CREATE INDEX events_of_sandbox ON events (sandbox_id, id DESC);
CREATE INDEX events_of_job ON events (job_id, id DESC) WHERE job_id IS NOT NULL;

-- +goose StatementBegin
CREATE FUNCTION events_refuse_update() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'events are never changed';
END $$;
-- +goose StatementEnd
CREATE TRIGGER events_append_only BEFORE UPDATE ON events FOR EACH ROW EXECUTE FUNCTION events_refuse_update();

-- +goose StatementBegin
CREATE FUNCTION events_of_new_sandboxes() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO events (tenant_id, sandbox_id, event, actor, detail)
    SELECT tenant_id, id, 'sandbox.' || state, changed_by, jsonb_strip_nulls(jsonb_build_object(
        'provider', provider, 'template', template, 'image', image)) FROM new_rows;
    RETURN NULL;
END $$;
-- +goose StatementEnd
CREATE TRIGGER events_insert AFTER INSERT ON sandboxes REFERENCING NEW TABLE AS new_rows
    FOR EACH STATEMENT EXECUTE FUNCTION events_of_new_sandboxes();

-- +goose StatementBegin
CREATE FUNCTION events_of_sandbox_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.state IS DISTINCT FROM OLD.state THEN
        INSERT INTO events (tenant_id, sandbox_id, job_id, event, actor, reason, detail)
        VALUES (NEW.tenant_id, NEW.id, NEW.changed_job, 'sandbox.' || NEW.state,
            CASE WHEN NEW.end_reason IS NULL THEN NEW.changed_by ELSE coalesce(NEW.end_actor, NEW.changed_by) END, NEW.end_reason,
            jsonb_strip_nulls(jsonb_build_object('from', OLD.state, 'node', NEW.node_id)));
    ELSIF NEW.expires_at IS DISTINCT FROM OLD.expires_at THEN
        INSERT INTO events (tenant_id, sandbox_id, event, actor, detail)
        VALUES (NEW.tenant_id, NEW.id, 'sandbox.timeout_set', NEW.changed_by, jsonb_build_object('expires_at', NEW.expires_at));
    END IF;
    IF NEW.node_id IS DISTINCT FROM OLD.node_id THEN
        INSERT INTO events (tenant_id, sandbox_id, event, actor, detail)
        VALUES (NEW.tenant_id, NEW.id,
            CASE WHEN NEW.node_id IS NULL THEN 'sandbox.released' WHEN OLD.node_id IS NULL THEN 'sandbox.placed' ELSE 'sandbox.adopted' END,
            CASE WHEN NEW.node_id IS NULL THEN NEW.changed_by ELSE concat('worker:', NEW.node_id) END,
            jsonb_strip_nulls(jsonb_build_object('from', OLD.node_id, 'node', NEW.node_id)));
    END IF;
    RETURN NULL;
END $$;
-- +goose StatementEnd
CREATE TRIGGER events_update AFTER UPDATE ON sandboxes FOR EACH ROW
    WHEN (NEW.state IS DISTINCT FROM OLD.state OR NEW.node_id IS DISTINCT FROM OLD.node_id OR NEW.expires_at IS DISTINCT FROM OLD.expires_at)
    EXECUTE FUNCTION events_of_sandbox_change();

-- +goose StatementBegin
CREATE FUNCTION events_of_new_jobs() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO events (tenant_id, sandbox_id, job_id, event, actor, reason, detail)
    SELECT tenant_id, sandbox_id, id, 'job.' || state, actor, nullif(args->>'reason', ''), jsonb_strip_nulls(jsonb_build_object(
        'kind', kind, 'retry_of', retry_of)) FROM new_rows ORDER BY seq;
    RETURN NULL;
END $$;
-- +goose StatementEnd
CREATE TRIGGER events_insert AFTER INSERT ON jobs REFERENCING NEW TABLE AS new_rows
    FOR EACH STATEMENT EXECUTE FUNCTION events_of_new_jobs();

-- A job's end is told by the worker that ran it, whose lease the outcome leaves behind with its name.
-- +goose StatementBegin
CREATE FUNCTION events_of_job_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO events (tenant_id, sandbox_id, job_id, event, actor, reason, detail)
    VALUES (NEW.tenant_id, NEW.sandbox_id, NEW.id,
        'job.' || CASE WHEN NEW.state = OLD.state THEN 'cancel_requested' WHEN NEW.state = 'queued' THEN 'requeued' ELSE NEW.state END,
        CASE
            WHEN NEW.state = OLD.state OR NEW.state = 'cancelled' THEN coalesce(NEW.cancelled_by, 'platform')
            WHEN NEW.state = 'queued' AND OLD.lease_until < now() THEN 'scheduler'
            WHEN NEW.state = 'queued' THEN concat('worker:', OLD.node_id)
            WHEN NEW.node_id IS NOT NULL THEN concat('worker:', NEW.node_id)
            ELSE 'platform'
        END,
        CASE WHEN NEW.state = 'queued' THEN NEW.requeue_reason ELSE NEW.error->>'message' END,
        jsonb_strip_nulls(jsonb_build_object('kind', NEW.kind, 'attempt', nullif(NEW.attempt, 0), 'error', NEW.error->>'code',
            'node', coalesce(NEW.node_id, OLD.node_id), 'exit_code', NEW.result->'exit_code')));
    RETURN NULL;
END $$;
-- +goose StatementEnd
CREATE TRIGGER events_update AFTER UPDATE ON jobs FOR EACH ROW
    WHEN (NEW.state IS DISTINCT FROM OLD.state OR NEW.cancel_requested_at IS NOT NULL AND OLD.cancel_requested_at IS NULL)
    EXECUTE FUNCTION events_of_job_change();

-- +goose Down
DROP TRIGGER events_update ON jobs;
DROP TRIGGER events_insert ON jobs;
DROP TRIGGER events_update ON sandboxes;
DROP TRIGGER events_insert ON sandboxes;
DROP TABLE events;
DROP FUNCTION events_refuse_update, events_of_new_sandboxes, events_of_sandbox_change, events_of_new_jobs, events_of_job_change;
ALTER TABLE jobs DROP COLUMN cancelled_by, DROP COLUMN requeue_reason;
ALTER TABLE sandboxes DROP COLUMN changed_by, DROP COLUMN changed_job;
