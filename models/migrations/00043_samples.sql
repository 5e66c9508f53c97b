-- +goose Up
-- What running sandboxes have used at moments of the last day, for who asks how it went. Rows come with readings of usage_meters
-- and refer to no sandbox's row: a reference would lock that with each of them. They go with its meter.
CREATE TABLE usage_samples (
    sandbox_id  text        NOT NULL,
    at          timestamptz NOT NULL DEFAULT now(),
    cpu_percent real        NOT NULL, -- of the sandbox's share, since the reading before
    memory      bigint      NOT NULL, -- bytes, like what follows; without what the kernel can take back
    cache       bigint      NOT NULL, -- what it can
    files       bigint      NOT NULL  -- written by the sandbox
);
CREATE INDEX usage_samples_sandbox ON usage_samples (sandbox_id, at);
CREATE INDEX usage_samples_age ON usage_samples (at);

-- +goose StatementBegin
CREATE FUNCTION samples_of_meter() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM usage_samples WHERE sandbox_id = OLD.sandbox_id;
    RETURN NULL;
END $$;
-- +goose StatementEnd
CREATE TRIGGER samples_delete AFTER DELETE ON usage_meters FOR EACH ROW EXECUTE FUNCTION samples_of_meter();

-- +goose Down
DROP TRIGGER samples_delete ON usage_meters;
DROP FUNCTION samples_of_meter;
DROP TABLE usage_samples;
