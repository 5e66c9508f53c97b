-- +goose Up
-- A lost sandbox in whose place none may be made for now is left alone until then, and says why.
ALTER TABLE sandboxes ADD COLUMN recreate_at timestamptz, ADD COLUMN recreate_refusal text;

-- +goose StatementBegin
CREATE FUNCTION events_of_refused_recreations() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO events (tenant_id, sandbox_id, event, actor, reason)
    VALUES (NEW.tenant_id, NEW.id, 'sandbox.recreation_refused', 'scheduler', NEW.recreate_refusal);
    RETURN NULL;
END $$;
-- +goose StatementEnd
CREATE TRIGGER events_recreation AFTER UPDATE ON sandboxes FOR EACH ROW
    WHEN (NEW.recreate_refusal IS DISTINCT FROM OLD.recreate_refusal AND NEW.recreate_refusal IS NOT NULL)
    EXECUTE FUNCTION events_of_refused_recreations();

-- +goose Down
DROP TRIGGER events_recreation ON sandboxes;
DROP FUNCTION events_of_refused_recreations;
ALTER TABLE sandboxes DROP COLUMN recreate_at, DROP COLUMN recreate_refusal;
