-- +goose Up
-- How many jobs may be submitted a second, and at once; NULL = no limit, and a burst of one second.
ALTER TABLE tenants ADD COLUMN job_rate double precision, ADD COLUMN job_burst int;
ALTER TABLE users ADD COLUMN job_rate double precision, ADD COLUMN job_burst int;

-- +goose Down
ALTER TABLE users DROP COLUMN job_rate, DROP COLUMN job_burst;
ALTER TABLE tenants DROP COLUMN job_rate, DROP COLUMN job_burst;
