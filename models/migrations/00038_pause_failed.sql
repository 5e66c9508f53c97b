-- +goose Up
-- When a pause last ended without having paused: a due one rests for a while after that.
ALTER TABLE sandboxes ADD COLUMN pause_failed_at timestamptz;

-- A wish that came with a job which did not succeed, and nobody waits for any more, kept its sandbox from ever being due.
UPDATE sandboxes SET desired = CASE state WHEN 'paused' THEN 'paused' ELSE 'running' END
WHERE ended_at IS NULL AND state IN ('creating', 'running', 'paused') AND desired <> 'deleted'
  AND NOT EXISTS (SELECT 1 FROM jobs j WHERE j.sandbox_id = sandboxes.id AND j.state IN ('queued', 'running') AND j.kind IN ('pause', 'resume'));

-- +goose Down
ALTER TABLE sandboxes DROP COLUMN pause_failed_at;
