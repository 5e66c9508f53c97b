-- +goose Up
-- How many bytes the waiting jobs of a tenant may hold in all.
ALTER TABLE tenants ADD COLUMN max_queued_bytes bigint NOT NULL DEFAULT 1073741824;
-- The size of a job's args and input, and whether its input was dropped. After the job's end only a retry reads it, so what is larger than
-- 16 KiB goes then. Inputs of jobs that have ended before this go with their rows.
ALTER TABLE jobs ADD COLUMN bytes bigint NOT NULL DEFAULT 0, ADD COLUMN input_dropped boolean NOT NULL DEFAULT false;
UPDATE jobs SET bytes = octet_length(args::text) + coalesce(octet_length(input), 0) WHERE state = 'queued';

-- +goose StatementBegin
CREATE FUNCTION jobs_drop_input() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    NEW.input := NULL;
    NEW.input_dropped := true;
    RETURN NEW;
END $$;
-- +goose StatementEnd
CREATE TRIGGER jobs_end BEFORE UPDATE ON jobs FOR EACH ROW
    WHEN (NEW.finished_at IS NOT NULL AND octet_length(NEW.input) > 16384) EXECUTE FUNCTION jobs_drop_input();

-- +goose Down
DROP TRIGGER jobs_end ON jobs;
DROP FUNCTION jobs_drop_input;
ALTER TABLE jobs DROP COLUMN bytes, DROP COLUMN input_dropped;
ALTER TABLE tenants DROP COLUMN max_queued_bytes;
