-- +goose Up
-- A reference to the tenant locks its row with every job, key and delivery, although tenants are never deleted. Without it a submission
-- locks the tenant only where it counts the tenant's sandboxes.
ALTER TABLE jobs DROP CONSTRAINT IF EXISTS jobs_tenant_id_fkey;
ALTER TABLE idempotency_keys DROP CONSTRAINT IF EXISTS idempotency_keys_tenant_id_fkey;
ALTER TABLE deliveries DROP CONSTRAINT IF EXISTS deliveries_tenant_id_fkey;

-- Tables that change all the time are vacuumed by the number of dead rows, not by a share of what they have kept for weeks: the small
-- partial indexes of the queue are read past every dead entry.
ALTER TABLE jobs SET (autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 1,
    autovacuum_analyze_scale_factor = 0.02, autovacuum_analyze_threshold = 5000, autovacuum_vacuum_insert_scale_factor = 0.05);
ALTER TABLE idempotency_keys SET (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 5000);
ALTER TABLE deliveries SET (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 2000, fillfactor = 80);
ALTER TABLE schedule_runs SET (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 2000);
ALTER TABLE usage_facts SET (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 10000, autovacuum_vacuum_cost_delay = 0,
    autovacuum_vacuum_insert_scale_factor = 0, autovacuum_vacuum_insert_threshold = 100000);
-- Rows that are updated in place need room on their page: an update there touches no index.
ALTER TABLE sandboxes SET (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000,
    autovacuum_vacuum_cost_delay = 1, autovacuum_analyze_scale_factor = 0.05);
ALTER TABLE usage_meters SET (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000);
ALTER TABLE nodes SET (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 200, autovacuum_vacuum_cost_delay = 0);
ALTER TABLE leases SET (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 200, autovacuum_vacuum_cost_delay = 0);
-- Rows are appended and deleted in bulk after weeks; what is frozen early is not read again by a vacuum of the whole table.
ALTER TABLE events SET (autovacuum_vacuum_insert_scale_factor = 0.02, autovacuum_vacuum_insert_threshold = 20000,
    autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 5000);

-- +goose Down
ALTER TABLE events RESET (autovacuum_vacuum_insert_scale_factor, autovacuum_vacuum_insert_threshold, autovacuum_vacuum_scale_factor,
    autovacuum_vacuum_threshold);
ALTER TABLE leases RESET (fillfactor, autovacuum_vacuum_scale_factor, autovacuum_vacuum_threshold, autovacuum_vacuum_cost_delay);
ALTER TABLE nodes RESET (fillfactor, autovacuum_vacuum_scale_factor, autovacuum_vacuum_threshold, autovacuum_vacuum_cost_delay);
ALTER TABLE usage_meters RESET (fillfactor, autovacuum_vacuum_scale_factor, autovacuum_vacuum_threshold);
ALTER TABLE sandboxes RESET (fillfactor, autovacuum_vacuum_scale_factor, autovacuum_vacuum_threshold, autovacuum_vacuum_cost_delay,
    autovacuum_analyze_scale_factor);
ALTER TABLE usage_facts RESET (autovacuum_vacuum_scale_factor, autovacuum_vacuum_threshold, autovacuum_vacuum_cost_delay,
    autovacuum_vacuum_insert_scale_factor, autovacuum_vacuum_insert_threshold);
ALTER TABLE schedule_runs RESET (autovacuum_vacuum_scale_factor, autovacuum_vacuum_threshold);
ALTER TABLE deliveries RESET (autovacuum_vacuum_scale_factor, autovacuum_vacuum_threshold, fillfactor);
ALTER TABLE idempotency_keys RESET (autovacuum_vacuum_scale_factor, autovacuum_vacuum_threshold);
ALTER TABLE jobs RESET (autovacuum_vacuum_scale_factor, autovacuum_vacuum_threshold, autovacuum_vacuum_cost_delay,
    autovacuum_analyze_scale_factor, autovacuum_analyze_threshold, autovacuum_vacuum_insert_scale_factor);
ALTER TABLE deliveries ADD FOREIGN KEY (tenant_id) REFERENCES tenants;
ALTER TABLE idempotency_keys ADD FOREIGN KEY (tenant_id) REFERENCES tenants;
ALTER TABLE jobs ADD FOREIGN KEY (tenant_id) REFERENCES tenants;
