package models_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"sandyard/dev/testdb"
	"sandyard/dev/testenv"
	"sandyard/models"
)

// crowded are rows that nothing is to be done about: whoever looks for work must pass them by.
const crowded = 30_000

// crowd fills the tables that grow, past triggers and references.
func crowd(t *testing.T, db *sql.DB) {
	t.Helper()
	ctx := t.Context()
	conn, err := db.Conn(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	for _, statement := range []string{
		"SET session_replication_role = replica", "SET synchronous_commit = off",
		`INSERT INTO sandboxes (id, tenant_id, provider, image, node_id, state, desired, spec, timeout_ms, on_timeout, idle_timeout_ms, max_lifetime_ms,
				paused_timeout_ms, expires_at, last_active_at, started_at, ended_at, on_lost, egress)
			SELECT 'sb' || i, 'default', 'fake', 'image' || i, 'n' || i % 10, CASE WHEN i % 2 = 0 THEN 'deleted' ELSE 'lost' END, 'deleted', '{}', 1000, 'delete', 1000, 1000,
				1000, now() - interval '1 hour', now(), now(), now() - interval '2 hours', 'recreate', '{}' FROM generate_series(1, @) i`,
		`INSERT INTO jobs (id, tenant_id, sandbox_id, kind, state, seq, actor, args, timeout_ms, max_attempts, node_id, finished_at, stdout)
			SELECT 'job' || i, 'default', 'sb' || i * 2, 'exec', 'succeeded', 1, 'test', '{}', 1000, 1, 'n' || i % 10, now(), 'x' FROM generate_series(1, @) i`,
		`INSERT INTO jobs (id, tenant_id, sandbox_id, kind, state, seq, actor, args, timeout_ms, max_attempts, ready_at, dispatched_at, queue)
			SELECT 'queued' || i, 'default', 'sb' || i, 'exec', 'queued', 1, 'test', '{}', 1000, 1, now(), now(), 'fake' FROM generate_series(1, 100) i`,
		`INSERT INTO idempotency_keys SELECT 'default', 'key' || i, '', 'job' || i FROM generate_series(1, @) i`,
		`INSERT INTO deliveries (id, tenant_id, job_id, event, url, state) SELECT 'msg' || i, 'default', 'job' || i, 'e', '', 'delivered' FROM generate_series(1, @) i`,
		`INSERT INTO deliveries (id, tenant_id, job_id, event, url, state, endpoint, next_attempt_at) SELECT 'later' || i, 'default', 'later' || i, 'e', '', 'pending', i,
			now() + interval '1 day' FROM generate_series(1, @) i`,
		`INSERT INTO events (tenant_id, sandbox_id, job_id, event, actor) SELECT 'default', 'sb' || i, CASE WHEN i % 2 = 0 THEN 'gone' || i END,
			CASE WHEN i % 2 = 0 THEN 'job.e' WHEN i % 3 = 0 THEN 'schedule.e' ELSE 'sandbox.e' END, 'test' FROM generate_series(1, @) i`,
		`INSERT INTO port_grants (id, tenant_id, sandbox_id, port, public, expires_at, revoked_at)
			SELECT 'g' || i, 'default', 'sb' || i, 1, false, now(), now() FROM generate_series(1, @) i`,
		`INSERT INTO terminal_tickets (hash, tenant_id, key_id, sandbox_id, terminal, origin, expires_at)
			SELECT i::text::bytea, 'default', '', 'sb' || i, '', '', now() FROM generate_series(1, @) i`,
		`INSERT INTO builds (id, tenant_id, shared, template, sandbox_id, job_id, recipe, image)
			SELECT 'b' || i, 'default', false, 't' || i, 'sb' || i, 'gone' || i, '{}', 'image' || i FROM generate_series(1, @) i`,
		`INSERT INTO schedules (id, tenant_id, state, time_zone, interval_ms, anchor, overlap, missed, max_catch_up, kind, action, options, created_by, changed_by)
			SELECT 'sch' || i, 'default', 'paused', 'UTC', 1000, now(), 'skip', 'skip', 1, 'run', '{}', '{}', 'test', 'test' FROM generate_series(1, 1000) i`,
		`INSERT INTO schedule_runs (id, tenant_id, schedule_id, due_at, state, job_id, ended_at)
			SELECT 'run' || i, 'default', 'sch' || i % 1000, now() + i * interval '1 s', 'succeeded', 'job' || i, now() FROM generate_series(1, @) i`,
		`INSERT INTO usage_hours (tenant_id, hour, user_id, template, provider, kind, outcome)
			SELECT 'default', date_trunc('hour', now(), 'UTC') - i * interval '1 hour', '', '', '', '', '' FROM generate_series(1, @) i`,
		`INSERT INTO usage_meters (sandbox_id, cpu_ms, memory_mb, memory_peak_mb) SELECT 'sb' || i, 1, 1, 1 FROM generate_series(1, @) i`,
		`INSERT INTO usage_samples SELECT 'sb' || i / 100, now() - i * interval '1 s', 1, 1, 1, 1 FROM generate_series(1, @) i`,
		`INSERT INTO audit_log (tenant_id, actor, client, request_id, action, status) SELECT 'default', 'key_' || i, '', '', 'POST /', 202 FROM generate_series(1, @) i`,
		`INSERT INTO security_events (tenant_id, kind, minute, times) SELECT 'default', 'limit_reached', now() - i * interval '1 minute', 1 FROM generate_series(1, @) i`,
		`INSERT INTO egress_usage (sandbox_id) SELECT 'sb' || i FROM generate_series(1, @) i`,
		"INSERT INTO nodes (id, provider, engine, slots, lease_until, beat_at) SELECT 'n' || i, 'fake', 'e' || i, 1, now() - interval '1 hour', now() FROM generate_series(0, 9) i",
		"ANALYZE",
	} {
		if _, err := conn.ExecContext(ctx, strings.ReplaceAll(statement, "@", strconv.Itoa(crowded))); err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
	}
}

// readWhole returns how many rows of each large table were read by going through all of it.
func readWhole(t *testing.T, db *sql.DB) map[string]int {
	t.Helper()
	awaitStatistics(t, db)
	rows, err := db.QueryContext(t.Context(), "SELECT s.relname, s.seq_tup_read FROM pg_stat_user_tables s JOIN pg_class c ON c.oid = s.relid WHERE reltuples >= $1", crowded)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	read := map[string]int{}
	for rows.Next() {
		var name string
		var n int
		if err := rows.Scan(&name, &n); err != nil {
			t.Fatal(err)
		}
		read[name] = n
	}
	if err := rows.Err(); err != nil || len(read) < 10 {
		t.Fatalf("%d tables are large, %v", len(read), err)
	}
	return read
}

// awaitStatistics waits for the connections named looking to end: PostgreSQL counts what they did when they go.
func awaitStatistics(t *testing.T, db *sql.DB) {
	t.Helper()
	for n := -1; n != 0; {
		if err := db.QueryRowContext(t.Context(), "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'looking' AND datname = current_database()").Scan(&n); err != nil {
			t.Fatal(err)
		}
	}
}

// TestLoopsReadNoWholeTables: what is asked again and again, with or without work, must not cost more the longer a system has
// been in use.
func TestLoopsReadNoWholeTables(t *testing.T) {
	testenv.Long(t, "it needs many rows")
	t.Parallel()
	dsn := testdb.Fresh(t)
	openAt(t, dsn, 100)
	db := database(t, dsn)
	fill, err := sql.Open("pgx", dsn+"&application_name=looking") // gone, and what it read counted, before the first count
	if err != nil {
		t.Fatal(err)
	}
	crowd(t, fill)
	if err := fill.Close(); err != nil {
		t.Fatal(err)
	}
	before := readWhole(t, db)
	look := func(f ask) (whole []string) {
		t.Helper()
		s, err := models.Open(t.Context(), dsn+"&application_name=looking&plan_cache_mode=auto", 1, models.Limits{Window: 100}) // as in production
		if err != nil {
			t.Fatal(err)
		}
		asked := f(t.Context(), s)
		if err := errors.Join(asked, s.Close()); err != nil {
			t.Fatal(err)
		}
		after := readWhole(t, db)
		for name, n := range after {
			if n != before[name] {
				whole = append(whole, name)
			}
		}
		before = after
		return whole
	}
	if whole := look(func(ctx context.Context, s *models.Store) error {
		_, err := s.Usage(ctx, models.UsageQuery{To: time.Now(), Limit: 1}) // of all time
		return err
	}); !slices.Equal(whole, []string{"usage_hours"}) {
		t.Fatalf("what reads a whole table is seen to read %v, so this shows nothing", whole)
	}
	all := questions()
	if len(look(func(ctx context.Context, s *models.Store) (err error) {
		for name, ask := range all {
			if failed := ask(ctx, s); failed != nil {
				err = errors.Join(err, fmt.Errorf("%s: %w", name, failed))
			}
		}
		return err
	})) == 0 {
		return
	}
	for name, ask := range all { // who was it?
		if whole := look(ask); len(whole) > 0 {
			t.Errorf("%s: reads all of %v", name, whole)
		}
	}
}

// ask asks the store something.
type ask func(context.Context, *models.Store) error

// questions are those of the loops of schedulers and workers, and of whoever reads the metrics.
func questions() map[string]ask {
	all := ofSchedulers()
	maps.Copy(all, ofRetention())
	maps.Copy(all, ofWorkers())
	return all
}

func ofSchedulers() map[string]ask {
	boxes := func(f func(*models.Store, context.Context, int) ([]models.Sandbox, error)) ask {
		return func(ctx context.Context, s *models.Store) error {
			_, err := f(s, ctx, 1000)
			return err
		}
	}
	due := func(rule *models.DueRule) ask {
		return func(ctx context.Context, s *models.Store) error {
			_, err := s.Due(ctx, rule, 1000)
			return err
		}
	}
	return map[string]ask{
		"expired leases": func(ctx context.Context, s *models.Store) error {
			_, err := s.ExpiredLeases(ctx, time.Now(), 1000)
			return err
		},
		"past deadlines": func(ctx context.Context, s *models.Store) error { _, err := s.PastDeadline(ctx, 1000); return err },
		"tasks": func(ctx context.Context, s *models.Store) error {
			_, r, err := s.Dispatched(ctx, models.Round{}, 0, 10)
			if err == nil {
				_, _, err = s.Dispatched(ctx, r, 0, 10)
			}
			return err
		},
		"backlog": func(ctx context.Context, s *models.Store) error { _, err := s.Backlog(ctx); return err },
		"dispatch": func(ctx context.Context, s *models.Store) error {
			_, err := s.DispatchReady(ctx, "default")
			return err
		},
		"timeouts": due(models.DueTimeout()), "idle": due(models.DueIdle(time.Now())), "lifetimes": due(models.DueLifetime()),
		"paused": due(models.DuePaused()), "deletes": due(models.StuckDelete()),
		"recreate": boxes((*models.Store).DueRecreations),
		"deserted": func(ctx context.Context, s *models.Store) error {
			_, err := s.Deserted(ctx, time.Now(), 0, 1000, models.SandboxRunning)
			return err
		},
		"stranded":   func(ctx context.Context, s *models.Store) error { _, err := s.Stranded(ctx, 1000); return err },
		"schedules":  func(ctx context.Context, s *models.Store) error { _, err := s.FireSchedules(ctx, 200, nil); return err },
		"any run":    func(ctx context.Context, s *models.Store) error { _, err := s.AnyPendingRun(ctx); return err },
		"runs":       func(ctx context.Context, s *models.Store) error { _, err := s.PendingRuns(ctx, 1000); return err },
		"in the way": func(ctx context.Context, s *models.Store) error { _, err := s.ReplaceRuns(ctx, 1000); return err },
		"run ends":   func(ctx context.Context, s *models.Store) error { _, err := s.SettleRuns(ctx, 1000); return err },
		"facts":      func(ctx context.Context, s *models.Store) error { _, err := s.FoldFacts(ctx, 1000); return err },
		"spans":      func(ctx context.Context, s *models.Store) error { _, err := s.FoldSpans(ctx, 1000); return err },
		"deliveries": func(ctx context.Context, s *models.Store) error {
			_, err := s.DispatchDeliveries(ctx, "", 100)
			return err
		},
		"dead nodes": func(ctx context.Context, s *models.Store) error {
			_, err := s.DeadNodes(ctx, time.Now(), time.Minute)
			return err
		},
		"old nodes": func(ctx context.Context, s *models.Store) error {
			return s.PruneNodes(ctx, []string{"n5"}, time.Now(), time.Minute)
		},
		"histories": func(ctx context.Context, s *models.Store) error {
			ids, err := s.ScheduleIDs(ctx, "", 500)
			if err == nil {
				_, err = s.PruneHistories(ctx, ids, 50, 1000)
			}
			return err
		},
	}
}

// ofRetention forget a part of what is all too old.
func ofRetention() map[string]ask {
	prune := func(p func(*models.Store, context.Context, time.Duration, int) (int, error)) ask {
		return func(ctx context.Context, s *models.Store) error {
			n, err := p(s, ctx, -48*time.Hour, 1000)
			if err == nil && n == 0 {
				err = errors.New("nothing is forgotten")
			}
			return err
		}
	}
	return map[string]ask{
		"old keys":      prune((*models.Store).PruneKeys),
		"old grants":    prune((*models.Store).PruneGrants),
		"old tickets":   prune((*models.Store).PruneTickets),
		"old runs":      prune((*models.Store).PruneRuns),
		"old outputs":   prune((*models.Store).PruneOutputs),
		"old jobs":      prune((*models.Store).PruneJobs),
		"old sandboxes": prune((*models.Store).PruneSandboxes),
		"old builds":    prune((*models.Store).PruneBuilds),
		"old events": prune(func(s *models.Store, ctx context.Context, age time.Duration, limit int) (int, error) {
			n, last, err := s.PruneEvents(ctx, 0, age, limit)
			if err == nil {
				_, _, err = s.PruneEvents(ctx, last, age, limit)
			}
			return n, err
		}),
		"old samples":         prune((*models.Store).PruneSamples),
		"old audit":           prune((*models.Store).PruneAudit),
		"old security events": prune((*models.Store).PruneSecurityEvents),
	}
}

func ofWorkers() map[string]ask {
	node := models.Node{ID: "n1", Provider: "fake", Engine: "e1"}
	return map[string]ask{
		"beat": func(ctx context.Context, s *models.Store) error {
			_, _, err := s.Heartbeat(ctx, node, []models.AttemptRef{{ID: "queued1", Attempt: 1}}, time.Millisecond)
			return err
		},
		"adopt": func(ctx context.Context, s *models.Store) error { _, _, err := s.Adopt(ctx, node, true); return err },
		"last execs": func(ctx context.Context, s *models.Store) error {
			_, err := s.LastExecs(ctx, []string{"sb1", "sb2"})
			return err
		},
		"on engine": func(ctx context.Context, s *models.Store) error { _, err := s.OnEngine(ctx, node); return err },
		"unwanted": func(ctx context.Context, s *models.Store) error {
			_, err := s.Unwanted(ctx, node, []string{"sb1", "x"})
			return err
		},
		"networked": func(ctx context.Context, s *models.Store) error { _, err := s.Networked(ctx, "n1"); return err },
		"holding": func(ctx context.Context, s *models.Store) error {
			_, err := s.Holding(ctx, node, []string{"sb1"})
			return err
		},
		"metered": func(ctx context.Context, s *models.Store) error { _, err := s.Metered(ctx, "n1"); return err },
		"meters": func(ctx context.Context, s *models.Store) error {
			return s.AddMeters(ctx, []models.Meter{{SandboxID: "sb1", CPUMS: 2, Sampled: true}})
		},
		"samples": func(ctx context.Context, s *models.Store) error {
			_, err := s.Samples(ctx, "sb1", time.Now().Add(-time.Hour), time.Now())
			return err
		},
		"images": func(ctx context.Context, s *models.Store) error {
			_, err := s.UnusedImages(ctx, []string{"image1"})
			return err
		},
		"stats": func(ctx context.Context, s *models.Store) error { _, err := s.Stats(ctx); return err },
		"depth": func(ctx context.Context, s *models.Store) error { _, err := s.Waiting(ctx, "default"); return err },
		"ranks": func(ctx context.Context, s *models.Store) error { _, _, err := s.Rank(ctx, node); return err },
	}
}
