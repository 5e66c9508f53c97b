-- +goose Up
-- All kinds of job are written with underscores. The action of a schedule names its kind, too, as JSON that keeps \u0000.
UPDATE jobs SET kind = replace(kind, '-', '_') WHERE kind IN ('write-many', 'read-many');
UPDATE schedules SET kind = replace(kind, '-', '_'), action = replace(replace(action::text,
    '"kind":"write-many"', '"kind":"write_many"'), '"kind":"read-many"', '"kind":"read_many"')::json
WHERE kind IN ('write-many', 'read-many');

UPDATE usage_facts SET kind = replace(kind, '-', '_') WHERE kind IN ('write-many', 'read-many');
UPDATE usage_hours SET kind = replace(kind, '-', '_') WHERE kind IN ('write-many', 'read-many');

-- +goose Down
UPDATE jobs SET kind = replace(kind, '_', '-') WHERE kind IN ('write_many', 'read_many');
UPDATE schedules SET kind = replace(kind, '_', '-'), action = replace(replace(action::text,
    '"kind":"write_many"', '"kind":"write-many"'), '"kind":"read_many"', '"kind":"read-many"')::json
WHERE kind IN ('write_many', 'read_many');
UPDATE usage_facts SET kind = replace(kind, '_', '-') WHERE kind IN ('write_many', 'read_many');
UPDATE usage_hours SET kind = replace(kind, '_', '-') WHERE kind IN ('write_many', 'read_many');
