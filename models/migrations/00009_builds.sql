-- +goose Up
-- Images that are made for templates. A build runs as a job in a sandbox of its own, which carries its state.
CREATE TABLE builds (
    id          text PRIMARY KEY,
    tenant_id   text        NOT NULL REFERENCES tenants, -- whose sandbox it runs in
    shared      boolean     NOT NULL,                    -- the template is everybody's
    template    text        NOT NULL,
    sandbox_id  text        NOT NULL,
    job_id      text        NOT NULL,
    recipe      jsonb       NOT NULL,
    files       bytea,                -- what it may copy into the image, as a tar
    image       text        NOT NULL, -- what it makes
    finished_at timestamptz,          -- the template has the image
    created_at  timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX builds_list ON builds (tenant_id, template, id DESC);

CREATE TABLE build_logs (
    build_id text   NOT NULL REFERENCES builds ON DELETE CASCADE,
    seq      bigint GENERATED ALWAYS AS IDENTITY,
    data     bytea  NOT NULL,
    PRIMARY KEY (build_id, seq)
);
CREATE INDEX templates_image ON templates (image);

-- +goose Down
DROP INDEX templates_image;
DROP TABLE build_logs, builds;
