-- +goose Up
-- The ports of a template's tools ask for their token in a sandbox whose other ports are public, too: they run commands.
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION grant_tools(s sandboxes) RETURNS void LANGUAGE sql AS $$
    INSERT INTO port_grants (id, tenant_id, sandbox_id, port, public, created_at)
    SELECT 'pg' || t.tool || s.id, s.tenant_id, s.id, t.port, false, s.created_at
    FROM (VALUES ('mcp', (s.spec->>'mcp_port')::int), ('vscode', (s.spec->>'vscode_port')::int)) AS t (tool, port)
    WHERE t.port > 0
    ON CONFLICT DO NOTHING
$$;
-- +goose StatementEnd

SELECT grant_tools(s) FROM sandboxes s WHERE ended_at IS NULL AND coalesce((s.spec->>'public')::boolean, false);

-- +goose Down
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION grant_tools(s sandboxes) RETURNS void LANGUAGE sql AS $$
    INSERT INTO port_grants (id, tenant_id, sandbox_id, port, public, created_at)
    SELECT 'pg' || t.tool || s.id, s.tenant_id, s.id, t.port, false, s.created_at
    FROM (VALUES ('mcp', (s.spec->>'mcp_port')::int), ('vscode', (s.spec->>'vscode_port')::int)) AS t (tool, port)
    WHERE t.port > 0 AND NOT coalesce((s.spec->>'public')::boolean, false)
$$;
-- +goose StatementEnd
