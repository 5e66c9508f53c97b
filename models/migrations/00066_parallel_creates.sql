-- +goose Up
-- A create or build is what starts its sandbox. One that was submitted as parallel waited for that for ever.
UPDATE jobs SET parallel = false, ready_at = coalesce(ready_at, now())
WHERE kind IN ('create', 'build') AND parallel AND state = 'queued';

-- +goose Down
SELECT 1;
