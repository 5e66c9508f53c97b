-- +goose Up
-- The providers that a tenant's sandboxes are made by, in the order in which they are asked; none = the server's default.
ALTER TABLE tenants ADD COLUMN providers jsonb NOT NULL DEFAULT '[]';

-- +goose StatementBegin
CREATE FUNCTION events_of_moved_sandboxes() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO events (tenant_id, sandbox_id, job_id, event, actor, detail)
    VALUES (NEW.tenant_id, NEW.id, NEW.changed_job, 'sandbox.moved', NEW.changed_by,
        jsonb_build_object('from', OLD.provider, 'provider', NEW.provider));
    RETURN NULL;
END $$;
-- +goose StatementEnd
CREATE TRIGGER events_moved AFTER UPDATE ON sandboxes FOR EACH ROW
    WHEN (NEW.provider IS DISTINCT FROM OLD.provider) EXECUTE FUNCTION events_of_moved_sandboxes();

-- +goose Down
DROP TRIGGER events_moved ON sandboxes;
DROP FUNCTION events_of_moved_sandboxes;
ALTER TABLE tenants DROP COLUMN providers;
