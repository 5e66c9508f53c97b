-- +goose Up
-- A sandbox whose grant of a tool's port was revoked says so itself, for whoever describes it has its row at hand.
ALTER TABLE sandboxes ADD COLUMN mcp_revoked boolean NOT NULL DEFAULT false, ADD COLUMN vscode_revoked boolean NOT NULL DEFAULT false;

UPDATE sandboxes s SET mcp_revoked = true
FROM port_grants g WHERE g.sandbox_id = s.id AND g.id = 'pgmcp' || s.id AND g.revoked_at IS NOT NULL AND s.ended_at IS NULL;
UPDATE sandboxes s SET vscode_revoked = true
FROM port_grants g WHERE g.sandbox_id = s.id AND g.id = 'pgvscode' || s.id AND g.revoked_at IS NOT NULL AND s.ended_at IS NULL;

-- +goose Down
ALTER TABLE sandboxes DROP COLUMN mcp_revoked, DROP COLUMN vscode_revoked;
