package models_test

import (
	"context"
	"strings"
	"sync"
	"testing"

	"sandyard/dev/testdb"
	"sandyard/models"
	"sandyard/models/pg"
)

// trips is a tap that notes the calls to the database.
type trips struct {
	mu   sync.Mutex
	made []string
}

func (c *trips) tap(_ context.Context, statement string, do func() error) error {
	if !strings.Contains(statement, "max_queued") { // how much waits is counted once a second
		c.mu.Lock()
		c.made = append(c.made, statement)
		c.mu.Unlock()
	}
	return do()
}

// of returns the calls that f makes.
func (c *trips) of(f func()) []string {
	c.mu.Lock()
	c.made = nil
	c.mu.Unlock()
	f()
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.made
}

func openCounted(t *testing.T) (*models.Store, *trips) {
	t.Helper()
	dsn := testdb.New(t)
	openAt(t, dsn, 100) // brings the schema
	c := &trips{}
	s, err := models.Open(t.Context(), dsn, 4, models.Limits{Window: 100}, c.tap)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s, c
}

// TestAJobIsFewTrips counts how often the database is asked on the way of a create, a command and a delete.
func TestAJobIsFewTrips(t *testing.T) {
	t.Parallel()
	s, c := openCounted(t)
	box, entry, nobody := newSandbox(), &models.AuditEntry{Actor: "key"}, "usr_x"
	box.UserID = &nobody // whose limits are looked up
	holder := models.Holder{Node: "node", Provider: "fake"}
	if _, err := s.Register(t.Context(), models.Node{ID: "node", Provider: "fake", Slots: 1}, lease); err != nil {
		t.Fatal(err)
	}
	var job models.Job
	var out models.Submitted
	other, name := newSandbox(), "name"
	other.Key = &name
	for _, step := range []struct {
		name string
		most int
		do   func() error
	}{
		{"submit a create", 2, func() (err error) {
			out, err = s.Submit(t.Context(), models.Submission{
				TenantID: "default", SandboxID: box.ID, New: box, Audit: entry, Jobs: []models.Job{newJob(models.KindCreate, box.ID)},
			})
			return err
		}},
		{"claim it", 1, func() (err error) { job, err = s.Claim(t.Context(), out.Jobs[0].ID, "node", lease); return err }},
		{"begin it", 2, func() error { _, err := s.BeginCreate(t.Context(), job, holder); return err }},
		{"finish it", 2, func() error {
			_, err := s.Finish(t.Context(), outcome(job, models.Succeeded, models.SandboxRunning))
			return err
		}},
		{"submit a command", 2, func() (err error) {
			out, err = s.Submit(t.Context(), models.Submission{
				TenantID: "default", SandboxID: box.ID, Audit: entry, Jobs: []models.Job{newJob("exec", box.ID)},
			})
			return err
		}},
		{"claim it", 1, func() (err error) { job, err = s.Claim(t.Context(), out.Jobs[0].ID, "node", lease); return err }},
		{"finish it", 2, func() error { _, err := s.Finish(t.Context(), outcome(job, models.Succeeded, "")); return err }},
		{"submit a delete", 2, func() (err error) {
			out, err = s.Submit(t.Context(), models.Submission{TenantID: "default", SandboxID: box.ID, Jobs: []models.Job{newJob(models.KindDelete, box.ID)}})
			return err
		}},
		{"claim it", 1, func() (err error) { job, err = s.Claim(t.Context(), out.Jobs[0].ID, "node", lease); return err }},
		{"begin it", 3, func() error {
			_, err := s.BeginDelete(t.Context(), job, models.End{Reason: "deleted", Actor: "test"})
			return err
		}},
		{"finish it", 3, func() error {
			_, err := s.Finish(t.Context(), outcome(job, models.Succeeded, models.SandboxDeleted))
			return err
		}},
		{"submit a create with a key, for a sandbox with a name", 2, func() (err error) {
			_, err = s.Submit(t.Context(), models.Submission{
				TenantID: "default", SandboxID: other.ID, New: other, Jobs: []models.Job{newJob(models.KindCreate, other.ID)},
				IdempotencyKey: "a", Request: []byte("r"),
			})
			return err
		}},
		{"submit a command with a key", 2, func() (err error) {
			_, err = s.Submit(t.Context(), models.Submission{
				TenantID: "default", SandboxID: other.ID, Jobs: []models.Job{newJob("exec", other.ID)}, IdempotencyKey: "b", Request: []byte("r"),
			})
			return err
		}},
	} {
		made := c.of(func() {
			if err := step.do(); err != nil {
				t.Fatalf("%s: %v", step.name, err)
			}
		})
		if len(made) > step.most {
			t.Errorf("to %s the database is asked %d times, not %d:\n%s", step.name, len(made), step.most, strings.Join(made, "\n"))
		}
	}
	if got, err := s.Sandbox(t.Context(), "default", box.ID); err != nil || got.State != models.SandboxDeleted || got.EndedAt == nil || *got.NodeID != "node" {
		t.Errorf("the sandbox is %+v, %v", got, err)
	}
}

// TestWhatFailsWithTheCommitIsUndone has the last trip of an outcome refused by the server: a statement that goes along with
// COMMIT, and behind it COMMIT.
func TestWhatFailsWithTheCommitIsUndone(t *testing.T) {
	t.Parallel()
	s, c := openCounted(t)
	out := create(t, s, newSandbox())
	job, err := s.Claim(t.Context(), out.Jobs[0].ID, "node", lease)
	if err != nil {
		t.Fatal(err)
	}
	o := outcome(job, models.Succeeded, models.SandboxRunning)
	o.Sandbox.Ref = "\x00" // no text for PostgreSQL
	last := c.of(func() { _, err = s.Finish(t.Context(), o) })
	if !pg.IsRefused(err) || !strings.HasSuffix(last[len(last)-1], "COMMIT") {
		t.Fatalf("refused with %v, after\n%s", err, strings.Join(last, "\n"))
	}
	if got := state(t, s, job.ID); got != models.Running {
		t.Errorf("the job is %s all the same", got)
	}
	o.Sandbox.Ref = "ref"
	if _, err := s.Finish(t.Context(), o); err != nil {
		t.Errorf("on the same connections: %v", err)
	}
}

// TestAMigrationUnderARunningStore adds columns while connections hold statements that were prepared before.
func TestAMigrationUnderARunningStore(t *testing.T) {
	t.Parallel()
	dsn := testdb.New(t)
	s := openAt(t, dsn, 100)
	db := database(t, dsn)
	use := func() {
		t.Helper()
		out := create(t, s, newSandbox())
		finish(t, s, out.Dispatch[0], models.SandboxRunning)
		if got := state(t, s, out.Jobs[0].ID); got != models.Succeeded {
			t.Errorf("the job is %s", got)
		}
	}
	for _, table := range []string{"sandboxes", "jobs", "tenants"} {
		use()
		if _, err := db.ExecContext(t.Context(), "ALTER TABLE "+table+" ADD COLUMN later text"); err != nil {
			t.Fatal(err)
		}
		use()
	}
}
