package models_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"sync"
	"testing"

	"sandyard/dev/testdb"
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

// atOnce submits many at once, and says how many were let in. The others must meet the limit; empty = there are none.
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
	dsn := testdb.New(t)
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	s, db := openAt(t, dsn, 1000), database(t, dsn)
	other := openLater(t, dsn)
	check(s.ChangeTenant(t.Context(), "default", ceilings(t, `{"max_cpus": 2.3, "max_memory_mib": null}`)))
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
	check(s.ChangeTenant(t.Context(), "default", ceilings(t, `{"max_cpus": null, "max_memory_mib": 3000}`)))
	if made := atOnce(t, s, 20, "max_memory_mib", func() models.Submission { return sized(1, 100) }); made != 7 {
		t.Fatalf("%d more sandboxes of 100 MiB beside 23 in 3000", made)
	}
	// A limit below what stands ends nothing and lets nothing in.
	check(s.ChangeTenant(t.Context(), "default", ceilings(t, `{"max_memory_mib": 100}`)))
	_, err := s.Submit(t.Context(), sized(1, 100))
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
	for _, bad := range []string{`{"max_cpus": -1}`, `{"name": 1}`, `{"max_cpus": 1e300}`, `{"max_memory_mib": 1.5}`} {
		if err := s.ChangeTenant(t.Context(), "default", ceilings(t, bad)); !errors.Is(err, models.ErrCeiling) {
			t.Errorf("%s: %v", bad, err)
		}
	}
	if err := s.ChangeTenant(t.Context(), "nobody", ceilings(t, `{"max_cpus": 1}`)); !errors.Is(err, models.ErrNotFound) {
		t.Errorf("a tenant that is not there: %v", err)
	}
}

// TestUsersHaveLimitsBelowTheTenants: two users and nobody share a tenant, and submit in the same groups.
func TestUsersHaveLimitsBelowTheTenants(t *testing.T) {
	t.Parallel()
	dsn := testdb.New(t)
	s, db := openAt(t, dsn, 1000), database(t, dsn)
	user := func(name, limits string) string {
		u, err := s.CreateUser(t.Context(), "default", name, "", models.RoleMember)
		if err == nil {
			_, err = s.ChangeUser(t.Context(), "default", u.ID, models.UserChange{Limits: ceilings(t, limits)})
		}
		if err != nil {
			t.Fatal(err)
		}
		return u.ID
	}
	few, small := user("few", `{"max_sandboxes": 5, "max_queued": 1000}`), user("small", `{"max_cpus": 1.5, "max_memory_mib": 10000}`)
	of := func(id string) func() models.Submission {
		return func() models.Submission {
			sub := sized(0.5, 1)
			if sub.User = id; id != "" {
				sub.New.UserID = &id
			}
			return sub
		}
	}
	var made [3]int
	var all sync.WaitGroup
	all.Go(func() { made[0] = atOnce(t, s, 20, "user_max_sandboxes", of(few)) })
	all.Go(func() { made[1] = atOnce(t, s, 20, "user_max_cpus", of(small)) })
	all.Go(func() { made[2] = atOnce(t, s, 20, "", of("")) })
	all.Wait()
	if made != [3]int{5, 3, 20} {
		t.Errorf("let in %v sandboxes of two users and of nobody", made)
	}
	exec(t, db, "UPDATE tenants SET max_sandboxes = 29")
	if made := atOnce(t, s, 5, "max_sandboxes", of("")); made != 1 {
		t.Errorf("%d sandboxes within what the tenant has left", made)
	}
	if _, err := s.ChangeUser(t.Context(), "other", few, models.UserChange{Limits: ceilings(t, `{"max_cpus": 1}`)}); !errors.Is(err, models.ErrNotFound) {
		t.Errorf("another tenant's user: %v", err)
	}

	box := create(t, openLater(t, dsn), roomy(t, db)).Sandbox
	queued := user("queued", `{"max_queued": 4}`)
	key, err := s.MakeKey(t.Context(), "default", models.NewKey{Name: "theirs", Scopes: []string{models.ScopeSandboxes}, User: queued})
	if err != nil {
		t.Fatal(err)
	}
	k, err := s.Authenticate(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	actors := []string{queued, k.ID}
	n := 0
	var mu sync.Mutex
	as := func() models.Submission {
		mu.Lock()
		defer mu.Unlock()
		n++
		sub := jobOn(box)
		sub.User, sub.Jobs[0].Actor = queued, actors[n%2]
		return sub
	}
	if made := atOnce(t, s, 20, "user_max_queued", as); made != 4 {
		t.Errorf("%d jobs of a user who may have 4 waiting", made)
	}
	if made := atOnce(t, openLater(t, dsn), 2, "user_max_queued", as); made != 0 { // another process counts all of them
		t.Errorf("%d more", made)
	}
	if made := atOnce(t, s, 2, "", func() models.Submission { return jobOn(box) }); made != 2 {
		t.Errorf("%d jobs of nobody", made)
	}
	if _, err := s.RemoveUser(t.Context(), "default", queued); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Authenticate(t.Context(), key); !errors.Is(err, models.ErrRevoked) {
		t.Errorf("the key of a user who was removed: %v", err)
	}
}

// roomy is a new sandbox that the tenant has room for.
func roomy(t *testing.T, db *sql.DB) *models.Sandbox {
	t.Helper()
	exec(t, db, "UPDATE tenants SET max_sandboxes = 1000")
	return newSandbox()
}

// openLater is another process on a database that is set up.
func openLater(t *testing.T, dsn string) *models.Store {
	t.Helper()
	s, err := models.Open(t.Context(), dsn, 8, models.Limits{Window: 1000})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}
