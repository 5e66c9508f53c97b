-- +goose Up
-- Who changed what, and with which outcome. A row of a job is written in the transaction that accepts the job. The row of any other
-- change is written before the change, without an outcome, and gets it once. Nothing else of a row ever changes.
CREATE TABLE audit_log (
    id         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at         timestamptz NOT NULL DEFAULT now(),
    tenant_id  text NOT NULL,
    user_id    text NOT NULL DEFAULT '', -- the user whose key or login it is
    actor      text NOT NULL,            -- the id of the API key or of the login
    client     text NOT NULL,            -- the address that the request came from
    request_id text NOT NULL,
    action     text NOT NULL,            -- method and route
    target     text NOT NULL DEFAULT '', -- the id or name of what it is about
    job_id     text NOT NULL DEFAULT '', -- the job that it submitted
    status     int,                      -- of the answer; NULL = not known, as after a crash
    code       text NOT NULL DEFAULT '', -- of the error
    times      int  NOT NULL DEFAULT 1   -- refused requests that are alike share a row
);
CREATE INDEX audit_log_list ON audit_log (tenant_id, id DESC);
CREATE INDEX audit_log_target ON audit_log (tenant_id, target, id DESC) WHERE target <> '';

-- +goose StatementBegin
CREATE FUNCTION audit_log_append_only() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    outcome text[] := '{status,code,target}';
BEGIN
    IF TG_OP = 'DELETE' AND current_setting('sandyard.retention', true) = 'on' THEN
        RETURN OLD;
    END IF;
    IF TG_OP = 'UPDATE' AND OLD.status IS NULL AND NEW.status IS NOT NULL AND (OLD.target = '' OR OLD.target = NEW.target)
        AND to_jsonb(OLD) - outcome = to_jsonb(NEW) - outcome THEN
        RETURN NEW;
    END IF;
    RAISE EXCEPTION 'the audit log is append-only';
END $$;
-- +goose StatementEnd
CREATE TRIGGER audit_log_rows BEFORE UPDATE OR DELETE ON audit_log FOR EACH ROW EXECUTE FUNCTION audit_log_append_only();
CREATE TRIGGER audit_log_all BEFORE TRUNCATE ON audit_log FOR EACH STATEMENT EXECUTE FUNCTION audit_log_append_only();

-- +goose Down
DROP TABLE audit_log;
DROP FUNCTION audit_log_append_only;
