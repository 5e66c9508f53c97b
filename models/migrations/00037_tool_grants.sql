-- +goose Up
-- A grant without an end lasts as long as its sandbox.
ALTER TABLE port_grants ALTER COLUMN expires_at DROP NOT NULL;

-- Of a sandbox whose template serves tools, their ports are granted from its beginning: each URL opens one port, is
-- listed and can be revoked.
-- +goose StatementBegin
CREATE FUNCTION grant_tools(s sandboxes) RETURNS void LANGUAGE sql AS $$
    INSERT INTO port_grants (id, tenant_id, sandbox_id, port, public, created_at)
    SELECT 'pg' || t.tool || s.id, s.tenant_id, s.id, t.port, false, s.created_at
    FROM (VALUES ('mcp', (s.spec->>'mcp_port')::int), ('vscode', (s.spec->>'vscode_port')::int)) AS t (tool, port)
    WHERE t.port > 0 AND NOT coalesce((s.spec->>'public')::boolean, false)
$$;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE FUNCTION grants_of_new_sandbox() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM grant_tools(NEW);
    RETURN NULL;
END $$;
-- +goose StatementEnd
CREATE TRIGGER grants_insert AFTER INSERT ON sandboxes FOR EACH ROW
    WHEN (NEW.spec->>'mcp_port' IS NOT NULL OR NEW.spec->>'vscode_port' IS NOT NULL) EXECUTE FUNCTION grants_of_new_sandbox();

SELECT grant_tools(s) FROM sandboxes s WHERE ended_at IS NULL;

-- +goose Down
DROP TRIGGER grants_insert ON sandboxes;
DROP FUNCTION grants_of_new_sandbox;
DROP FUNCTION grant_tools;
DELETE FROM port_grants WHERE expires_at IS NULL;
ALTER TABLE port_grants ALTER COLUMN expires_at SET NOT NULL;
