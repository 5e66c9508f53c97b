-- +goose Up
-- Who has a lost sandbox made again is the one who had it before.
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION usage_of_new_sandboxes() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    NEW.usage_user := coalesce(NEW.labels->>'user', (SELECT usage_user FROM sandboxes WHERE id = NEW.replaces), NEW.changed_by);
    RETURN NEW;
END $$;
-- +goose StatementEnd

-- Whatever the state was, at most one span lasts: counting must never keep a sandbox from changing.
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION usage_of_sandbox_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    -- A transaction that waited for the row may have begun before the span did.
    UPDATE usage_spans SET ended_at = greatest(started_at, now()) WHERE sandbox_id = NEW.id AND ended_at IS NULL;
    IF NEW.state IN ('running', 'paused') THEN
        PERFORM usage_open_span(NEW);
    END IF;
    RETURN NULL;
END $$;
-- +goose StatementEnd

-- +goose Down
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION usage_of_new_sandboxes() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    NEW.usage_user := coalesce(NEW.labels->>'user', NEW.changed_by);
    RETURN NEW;
END $$;
-- +goose StatementEnd
