-- +goose Up
ALTER TABLE nodes
    ADD COLUMN disk_free_mb bigint  NOT NULL DEFAULT 0,     -- of what its sandboxes and images lie on; 0 = not known
    ADD COLUMN disk_low     boolean NOT NULL DEFAULT false; -- it is given no new sandboxes

-- +goose Down
ALTER TABLE nodes DROP COLUMN disk_free_mb, DROP COLUMN disk_low;
