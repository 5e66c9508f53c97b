-- +goose Up
-- Commands stand still while their sandbox is paused, and so does their time, whichever worker waits for them.
ALTER TABLE jobs
    ADD COLUMN paused_ms bigint  NOT NULL DEFAULT 0,     -- for how long the sandbox has been paused since the job started
    ADD COLUMN handovers int     NOT NULL DEFAULT 0,     -- attempts that ended without a failure, as with a worker that was to stop
    ADD COLUMN begun     boolean NOT NULL DEFAULT false; -- what it runs may have been started by an attempt that is over
UPDATE jobs SET begun = true WHERE state = 'queued' AND attempt > 0;

-- +goose Down
ALTER TABLE jobs DROP COLUMN paused_ms, DROP COLUMN handovers, DROP COLUMN begun;
