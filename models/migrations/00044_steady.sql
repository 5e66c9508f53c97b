-- +goose Up
-- Since when the holders of a lease, and a worker, have been heard of without a gap. Whoever was not heard of while nobody could be
-- is not dead for that: silence counts from then on.
ALTER TABLE leases ADD COLUMN beat_at timestamptz, ADD COLUMN steady_since timestamptz;
-- A worker that has said farewell need not be waited for.
ALTER TABLE nodes ADD COLUMN steady_since timestamptz NOT NULL DEFAULT now(), ADD COLUMN retired_at timestamptz;

-- +goose Down
ALTER TABLE nodes DROP COLUMN steady_since, DROP COLUMN retired_at;
ALTER TABLE leases DROP COLUMN beat_at, DROP COLUMN steady_since;
