-- +goose Up
ALTER TABLE tenants ADD COLUMN max_schedules int NOT NULL DEFAULT 100;

-- What tenants want done again and again. A tick is a row of schedule_runs, written together with the next due time.
CREATE TABLE schedules (
    id                   text PRIMARY KEY,
    tenant_id            text        NOT NULL REFERENCES tenants,
    name                 text,
    state                text        NOT NULL, -- active, paused, disabled
    reason               text,                 -- why it was disabled
    cron                 text,
    time_zone            text        NOT NULL,
    interval_ms          bigint,               -- where there is no cron
    anchor               timestamptz NOT NULL, -- from where intervals count
    overlap              text        NOT NULL, -- skip, queue, cancel_running
    missed               text        NOT NULL, -- skip, run_once, run_all
    max_catch_up         int         NOT NULL,
    kind                 text        NOT NULL, -- run, create or the kind of the job
    sandbox_id           text,                 -- where the job goes
    action               json        NOT NULL, -- json keeps \u0000, jsonb refuses it
    options              jsonb       NOT NULL,
    next_due             timestamptz,          -- NULL = it is not active
    last_due             timestamptz,
    consecutive_failures int         NOT NULL DEFAULT 0,
    created_by           text        NOT NULL,
    changed_by           text        NOT NULL,
    created_at           timestamptz NOT NULL DEFAULT now(),
    updated_at           timestamptz NOT NULL DEFAULT now()
);
CREATE UNIQUE INDEX schedules_name ON schedules (tenant_id, name) WHERE name IS NOT NULL;
CREATE INDEX schedules_list ON schedules (tenant_id, id DESC);
CREATE INDEX schedules_due ON schedules (next_due) WHERE state = 'active';

CREATE TABLE schedule_runs (
    id          text PRIMARY KEY,
    tenant_id   text        NOT NULL, -- no reference, which would lock the tenant out of the order of locks
    schedule_id text        NOT NULL REFERENCES schedules ON DELETE CASCADE,
    due_at      timestamptz NOT NULL,
    manual      boolean     NOT NULL DEFAULT false, -- asked for, beside the due times
    state       text        NOT NULL, -- pending, submitted, skipped, failed, then as the job has ended
    reason      text,
    ticks       int         NOT NULL DEFAULT 1, -- due times that a skipped run stands for
    job_id      text,
    sandbox_id  text,
    exit_code   int,
    attempts    int         NOT NULL DEFAULT 0, -- to submit it
    retry_at    timestamptz NOT NULL DEFAULT now(),
    created_at  timestamptz NOT NULL DEFAULT now(),
    ended_at    timestamptz
);
-- No due time fires twice, whoever fires it.
CREATE UNIQUE INDEX schedule_runs_due ON schedule_runs (schedule_id, due_at) WHERE NOT manual;
CREATE INDEX schedule_runs_list ON schedule_runs (schedule_id, id DESC);
CREATE INDEX schedule_runs_open ON schedule_runs (schedule_id, due_at) WHERE state IN ('pending', 'submitted');
CREATE INDEX schedule_runs_ended ON schedule_runs (ended_at) WHERE ended_at IS NOT NULL;

-- Events of a schedule carry the sandbox that it works on, or none.
ALTER TABLE events ADD COLUMN schedule_id text;
CREATE INDEX events_of_schedule ON events (schedule_id, id DESC) WHERE schedule_id IS NOT NULL;

-- +goose StatementBegin
CREATE FUNCTION events_of_schedules() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    s schedules := CASE WHEN TG_OP = 'DELETE' THEN OLD ELSE NEW END;
    what text;
BEGIN
    IF TG_OP = 'INSERT' THEN what := 'created';
    ELSIF TG_OP = 'DELETE' THEN what := 'deleted';
    ELSIF NEW.state = OLD.state THEN what := 'changed';
    ELSIF NEW.state = 'active' THEN what := 'resumed';
    ELSE what := NEW.state;
    END IF;
    INSERT INTO events (tenant_id, sandbox_id, schedule_id, event, actor, reason, detail)
    VALUES (s.tenant_id, coalesce(s.sandbox_id, ''), s.id, 'schedule.' || what, s.changed_by,
        CASE WHEN what = 'disabled' THEN s.reason END, jsonb_build_object('kind', s.kind));
    RETURN NULL;
END $$;
-- +goose StatementEnd
CREATE TRIGGER events_insert AFTER INSERT OR DELETE ON schedules FOR EACH ROW EXECUTE FUNCTION events_of_schedules();
CREATE TRIGGER events_update AFTER UPDATE ON schedules FOR EACH ROW
    WHEN (NEW.state IS DISTINCT FROM OLD.state OR NEW.updated_at IS DISTINCT FROM OLD.updated_at)
    EXECUTE FUNCTION events_of_schedules();

-- +goose Down
DROP TABLE schedule_runs, schedules;
DROP FUNCTION events_of_schedules;
ALTER TABLE events DROP COLUMN schedule_id;
ALTER TABLE tenants DROP COLUMN max_schedules;
