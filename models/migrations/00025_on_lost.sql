-- +goose Up
ALTER TABLE sandboxes
    ADD COLUMN on_lost     text NOT NULL DEFAULT '', -- recreate: another takes its place when it is lost
    ADD COLUMN replaces    text,                     -- the lost sandbox in whose place this one is
    ADD COLUMN replaced_by text,
    ADD COLUMN recreations int  NOT NULL DEFAULT 0;  -- how many in a row were lost soon after their start
CREATE INDEX sandboxes_to_recreate ON sandboxes (ended_at) WHERE state = 'lost' AND on_lost = 'recreate' AND replaced_by IS NULL;

-- +goose Down
ALTER TABLE sandboxes DROP COLUMN on_lost, DROP COLUMN replaces, DROP COLUMN replaced_by, DROP COLUMN recreations;
