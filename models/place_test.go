package models_test

import (
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"testing"

	"sandyard/dev/testdb"
	"sandyard/models"
)

// TestPlacingReadsTheSameInEveryFleet: what a create reads does not grow with the nodes and the jobs of the fleet.
func TestPlacingReadsTheSameInEveryFleet(t *testing.T) {
	t.Parallel()
	const nodes, boxes, jobs = 100, 50, 64 // per node: sandboxes, running jobs
	dsn := testdb.New(t)
	s := openAt(t, dsn+"&application_name=looking", 100)
	db := database(t, dsn)
	fill, err := sql.Open("pgx", dsn+"&application_name=looking")
	must(t, err)
	conn, err := fill.Conn(t.Context())
	must(t, err)
	for _, statement := range []string{
		"SET session_replication_role = replica",
		fmt.Sprintf(`INSERT INTO nodes (id, provider, engine, slots, lease_until, beat_at, max_sandboxes)
			SELECT 'n' || i, 'fake', 'e' || i, 64, now() + interval '1 hour', now(), 1000 FROM generate_series(1, %d) i`, nodes),
		fmt.Sprintf(`INSERT INTO sandboxes (id, tenant_id, provider, image, node_id, state, desired, spec, timeout_ms, on_timeout, idle_timeout_ms, expires_at)
			SELECT 'sb' || i, 'default', 'fake', 'i', 'n' || 1 + i %% %d, 'running', 'running', '{}', 1, 'delete', 0, now() FROM generate_series(1, %d) i`, nodes, nodes*boxes),
		fmt.Sprintf(`INSERT INTO jobs (id, tenant_id, sandbox_id, kind, state, seq, actor, args, timeout_ms, max_attempts, node_id)
			SELECT 'job' || i, 'default', 'sb' || 1 + i %% %d, 'exec', 'running', 1, 'test', '{}', 1, 1, 'n' || 1 + i %% %d FROM generate_series(1, %d) i`, nodes*boxes, nodes, nodes*jobs),
		"ANALYZE", "UPDATE tenants SET max_sandboxes = 1000000",
	} {
		_, err := conn.ExecContext(t.Context(), statement)
		must(t, err)
	}
	c, err := s.Claim(t.Context(), create(t, s, newSandbox()).Jobs[0].ID, "n1", lease)
	must(t, err)
	must(t, errors.Join(conn.Close(), fill.Close(), s.Close())) // PostgreSQL counts late what a connection has read

	before := rowsRead(t, db)
	looking, err := models.Open(t.Context(), dsn+"&application_name=looking", 1, models.Limits{Window: 100})
	must(t, err)
	_, err = looking.BeginCreate(t.Context(), c, models.Holder{Node: "n1", Provider: "fake"})
	must(t, errors.Join(err, looking.Close()))
	// Four nodes' sandboxes, and its own row and job.
	if read := rowsRead(t, db) - before; read < boxes || read > 5*boxes {
		t.Errorf("placing one sandbox read %d rows of %d sandboxes and %d running jobs", read, nodes*boxes, nodes*jobs)
	}
}

// rowsRead is how many rows of sandboxes and jobs connections named looking have read, once they are all gone.
func rowsRead(t *testing.T, db *sql.DB) (n int) {
	t.Helper()
	awaitStatistics(t, db)
	must(t, db.QueryRowContext(t.Context(), `SELECT sum(coalesce(seq_tup_read, 0) + coalesce(idx_tup_fetch, 0))
		FROM pg_stat_user_tables WHERE relname IN ('sandboxes', 'jobs')`).Scan(&n))
	return n
}

// TestPlacingFindsTheLastRoom: a node with room takes the sandbox, however many others are full.
func TestPlacingFindsTheLastRoom(t *testing.T) {
	t.Parallel()
	s, ctx := open(t, 100), t.Context()
	holder := func(n int) models.Holder { return models.Holder{Node: fmt.Sprintf("n%02d", n), Provider: "fake"} }
	const nodes, roomy = 20, 17
	for i := range nodes {
		_, err := s.Register(ctx, models.Node{ID: holder(i).Node, Provider: "fake", Engine: "e", MaxSandboxes: 1}, lease)
		must(t, err)
	}
	begin := func(n int) error { return placeOne(t, s, holder(n)) }
	for i := range nodes {
		if i != roomy {
			must(t, begin(i))
		}
	}
	placed := (*models.PlacedError)(nil)
	if err := begin(0); !errors.As(err, &placed) || placed.Node != holder(roomy).Node {
		t.Fatalf("a full node finds room: %v", err)
	}
	full := (*models.RoomError)(nil)
	if err := begin(3); !errors.As(err, &full) || full.Nodes != nodes {
		t.Fatalf("all are full: %v", err)
	}
}

// placeOne creates a sandbox and has the node begin it.
func placeOne(t *testing.T, s *models.Store, on models.Holder) error {
	t.Helper()
	ctx, job := t.Context(), create(t, s, newSandbox()).Jobs[0].ID
	c, err := s.Claim(ctx, job, on.Node, lease)
	must(t, err)
	_, err = s.BeginCreate(ctx, c, on)
	return err
}

// TestPlacingsAtOnceKeepTheLimit: nodes that hand sandboxes to each other at the same time do not overfill one.
func TestPlacingsAtOnceKeepTheLimit(t *testing.T) {
	t.Parallel()
	s, ctx := open(t, 100), t.Context()
	const nodes, room, creates = 4, 3, 24 // twice as many creates as there is room
	for i := range nodes {
		_, err := s.Register(ctx, models.Node{ID: fmt.Sprint("n", i), Provider: "fake", Engine: "e", MaxSandboxes: room}, lease)
		must(t, err)
	}
	errs := make(chan error, creates)
	for i := range creates {
		node := fmt.Sprint("n", min(i/2, nodes-1)) // most begin on the last node
		c, err := s.Claim(ctx, create(t, s, newSandbox()).Jobs[0].ID, node, lease)
		must(t, err)
		go func() {
			_, err := s.BeginCreate(ctx, c, models.Holder{Node: node, Provider: "fake"})
			errs <- err
		}()
	}
	refused := 0
	for range creates {
		switch err := <-errs; {
		case errors.As(err, new(*models.RoomError)):
			refused++
		case err != nil && !errors.As(err, new(*models.PlacedError)):
			t.Error(err)
		}
	}
	loads, err := s.Nodes(ctx)
	must(t, err)
	if over := slices.IndexFunc(loads, func(l models.NodeLoad) bool { return l.Sandboxes != room }); over >= 0 || refused != creates-nodes*room {
		t.Errorf("%d creates were refused; loads: %+v", refused, loads)
	}
}
