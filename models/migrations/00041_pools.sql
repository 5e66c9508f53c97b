-- +goose Up
-- A pool takes memory of the nodes that nobody is charged for. From now on only operators ask for one; who asked for those
-- that stand at tenants' own templates is not known, so these end.
UPDATE templates SET definition = definition - 'pool' WHERE tenant_id IS NOT NULL;

-- +goose Down
SELECT 1;
