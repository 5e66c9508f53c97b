package models_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"sync"
	"testing"

	"sandyard/dev/testenv"
	"sandyard/models"
)

// sized is a new sandbox that takes so much.
func sized(cpus float64, memory int64) models.Submission {
	box := newSandbox()
	box.CPUs, box.MemoryMB = cpus, memory
	return models.Submission{TenantID: "default", SandboxID: box.ID, New: box, Jobs: []models.Job{newJob(models.KindCreate, box.ID)}}
}

// database is a pool of plain connections.
func database(t *testing.T, dsn string) *sql.DB {
	t.Helper()
	db, err := sql.Open("pgx", dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return db
}

func ceilings(t *testing.T, text string) (c models.Ceilings) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), &c); err != nil {
		t.Fatal(err)
	}
	return c
}

// atOnce submits many at once, and says how many were let in. The others must meet the limit.
func atOnce(t *testing.T, s *models.Store, n int, limit string, sub func() models.Submission) (made int) {
	t.Helper()
	var mu sync.Mutex
	var all sync.WaitGroup
	for range n {
		all.Go(func() {
			_, err := s.Submit(context.Background(), sub())
			met := (*models.LimitError)(nil)
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err == nil:
				made++
			case !errors.As(err, &met) || met.Limit != limit || met.Used > met.Max:
				t.Errorf("%v, want the limit %s", err, limit)
			}
		})
	}
	all.Wait()
	return made
}

func TestResourcesOfLiveSandboxesAreLimited(t *testing.T) {
	t.Parallel()
	dsn := testenv.Database(t)
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	s, db := openAt(t, dsn, 1000), database(t, dsn)
	other, err := models.Open(t.Context(), dsn, 8, models.Limits{Window: 1000}) // another process
	check(err)
	t.Cleanup(func() { _ = other.Close() })
	check(s.SetTenantCeilings(t.Context(), "default", ceilings(t, `{"max_cpus": 2.3, "max_memory_mib": null}`)))
	var elsewhere int
	var both sync.WaitGroup
	both.Go(func() {
		elsewhere = atOnce(t, other, 30, "max_cpus", func() models.Submission { return sized(0.1, 100) })
	})
	here := atOnce(t, s, 30, "max_cpus", func() models.Submission { return sized(0.1, 100) })
	both.Wait()
	if here+elsewhere != 23 {
		t.Fatalf("%d + %d sandboxes of 0.1 cores in 2.3", here, elsewhere)
	}
	check(s.SetTenantCeilings(t.Context(), "default", ceilings(t, `{"max_cpus": null, "max_memory_mib": 3000}`)))
	if made := atOnce(t, s, 20, "max_memory_mib", func() models.Submission { return sized(1, 100) }); made != 7 {
		t.Fatalf("%d more sandboxes of 100 MiB beside 23 in 3000", made)
	}
	// A limit below what stands ends nothing and lets nothing in.
	check(s.SetTenantCeilings(t.Context(), "default", ceilings(t, `{"max_memory_mib": 100}`)))
	_, err = s.Submit(t.Context(), sized(1, 100))
	if met := (*models.LimitError)(nil); !errors.As(err, &met) || *met != (models.LimitError{Limit: "max_memory_mib", Used: 3000, Max: 100, Asked: 100}) {
		t.Fatalf("below what stands: %v", err)
	}
	live, err := s.Sandboxes(t.Context(), "default", models.SandboxFilter{Live: true, Limit: 100})
	check(err)
	if len(live) != 30 {
		t.Fatalf("%d sandboxes stand", len(live))
	}
	// A paused one keeps its memory, one that has ended nothing.
	exec(t, db, "UPDATE sandboxes SET state = 'paused' WHERE id = '"+live[0].ID+"'")
	exec(t, db, "UPDATE sandboxes SET ended_at = now() WHERE id <> '"+live[0].ID+"'")
	if made := atOnce(t, s, 2, "max_memory_mib", func() models.Submission { return sized(1, 50) }); made != 0 {
		t.Fatalf("%d sandboxes beside a paused one that takes all", made)
	}
	exec(t, db, "UPDATE sandboxes SET ended_at = now()")
	if made := atOnce(t, s, 3, "max_memory_mib", func() models.Submission { return sized(1, 50) }); made != 2 {
		t.Fatalf("%d sandboxes of 50 MiB in 100", made)
	}
	for _, bad := range []string{`{"max_cpus": -1}`, `{"name": 1}`, `{"max_cpus": 1e300}`} {
		if err := s.SetTenantCeilings(t.Context(), "default", ceilings(t, bad)); !errors.Is(err, models.ErrCeiling) {
			t.Errorf("%s: %v", bad, err)
		}
	}
	if err := s.SetTenantCeilings(t.Context(), "nobody", ceilings(t, `{"max_cpus": 1}`)); !errors.Is(err, models.ErrNotFound) {
		t.Errorf("a tenant that is not there: %v", err)
	}
}
