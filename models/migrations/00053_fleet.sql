-- +goose Up
-- A database that a worker has used already keeps the name that was the default until now.
INSERT INTO settings (name, value) SELECT 'fleet', 'sandyard' WHERE EXISTS (SELECT 1 FROM nodes) ON CONFLICT DO NOTHING;

-- +goose Down
DELETE FROM settings WHERE name = 'fleet';
