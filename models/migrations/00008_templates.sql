-- +goose Up
-- Named environments. What sandboxes take from one is copied into their own rows, so a change holds for new ones only.
CREATE TABLE templates (
    id         text PRIMARY KEY,
    tenant_id  text REFERENCES tenants, -- NULL = every tenant's
    name       text        NOT NULL,
    image      text        NOT NULL,
    definition jsonb       NOT NULL,    -- everything else it gives to sandboxes
    declared   text,                    -- the image SANDBOX_TEMPLATES named last; NULL = it does not name it
    build_id   text,                    -- the build its image came from
    version    int         NOT NULL DEFAULT 1,
    created_at timestamptz NOT NULL DEFAULT now(),
    updated_at timestamptz NOT NULL DEFAULT now()
);
CREATE UNIQUE INDEX templates_name ON templates (coalesce(tenant_id, ''), name);

-- +goose Down
DROP TABLE templates;
