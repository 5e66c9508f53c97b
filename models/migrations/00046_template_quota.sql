-- +goose Up
-- Of a tenant's own. Each may be as large as its start command, probe and environment.
ALTER TABLE tenants ADD COLUMN max_templates int NOT NULL DEFAULT 100;
-- Those that may want a pool: every worker asks for them every few seconds.
CREATE INDEX templates_pooled ON templates (id) WHERE tenant_id IS NULL OR definition -> 'pool' IS NOT NULL;

-- +goose Down
DROP INDEX templates_pooled;
ALTER TABLE tenants DROP COLUMN max_templates;
