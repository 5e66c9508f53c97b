package models_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"sandyard/dev/testdb"
	"sandyard/models"
)

// lockRow holds a row of a table locked until the test ends or the function that it returns is called.
func lockRow(t *testing.T, dsn, table, id string) (release func()) {
	t.Helper()
	db, err := sql.Open("pgx", dsn)
	if err != nil {
		t.Fatal(err)
	}
	tx, err := db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	var locked string
	if err := tx.QueryRowContext(t.Context(), "SELECT id FROM "+table+" WHERE id = $1 FOR UPDATE", id).Scan(&locked); err != nil {
		t.Fatal(err)
	}
	release = sync.OnceFunc(func() { _ = tx.Rollback(); _ = db.Close() })
	t.Cleanup(release)
	return release
}

// otherTenant adds a tenant and returns a running sandbox of it.
func otherTenant(t *testing.T, dsn string, s *models.Store, name string) models.Sandbox {
	t.Helper()
	db := database(t, dsn)
	if _, err := db.ExecContext(t.Context(), "INSERT INTO tenants (id, name, webhook_secret) VALUES ($1, $1, '')", name); err != nil {
		t.Fatal(err)
	}
	out, err := s.Submit(t.Context(), createFor(name, newSandbox()))
	if err != nil {
		t.Fatal(err)
	}
	return out.Sandbox
}

func createFor(tenant string, box *models.Sandbox) models.Submission {
	box.TenantID = tenant
	job := newJob(models.KindCreate, box.ID)
	job.TenantID = tenant
	return models.Submission{TenantID: tenant, SandboxID: box.ID, New: box, Timeout: time.Minute, Jobs: []models.Job{job}}
}

func jobOn(box models.Sandbox) models.Submission {
	job := newJob("exec", box.ID)
	job.TenantID = box.TenantID
	return models.Submission{TenantID: box.TenantID, SandboxID: box.ID, Jobs: []models.Job{job}}
}

// submitting submits in the background.
func submitting(s *models.Store, sub models.Submission) <-chan error {
	done := make(chan error, 1)
	go func() {
		_, err := s.Submit(context.Background(), sub)
		done <- err
	}()
	return done
}

func mustNotEnd(t *testing.T, what string, done <-chan error) {
	t.Helper()
	select {
	case err := <-done:
		t.Fatalf("%s ended with %v although its row is locked", what, err)
	default:
	}
}

func mustEnd(t *testing.T, what string, done <-chan error) {
	t.Helper()
	select {
	case err := <-done:
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
	case <-time.After(time.Minute): // the lock would be held for ever
		t.Fatalf("%s waits for a row that is none of its own", what)
	}
}

// TestALockedRowDelaysItsOwnSandboxAlone holds the rows of a sandbox and a tenant. All others go on.
func TestALockedRowDelaysItsOwnSandboxAlone(t *testing.T) {
	t.Parallel()
	dsn := testdb.New(t)
	s := openAt(t, dsn, 1000)
	box, next := create(t, s, newSandbox()).Sandbox, create(t, s, newSandbox()).Sandbox
	other := otherTenant(t, dsn, s, "other")

	free := lockRow(t, dsn, "sandboxes", box.ID)
	waiting := submitting(s, jobOn(box))
	for range 20 {
		mustEnd(t, "a job of another tenant", submitting(s, jobOn(other)))
		mustEnd(t, "a job on another sandbox of the tenant", submitting(s, jobOn(next)))
		mustEnd(t, "a new sandbox of the tenant", submitting(s, createFor("default", newSandbox())))
	}
	mustNotEnd(t, "the job on the locked sandbox", waiting)
	free()
	mustEnd(t, "the job on the sandbox that was locked", waiting)

	free = lockRow(t, dsn, "tenants", "default")
	waiting = submitting(s, createFor("default", newSandbox()))
	for range 20 {
		mustEnd(t, "a job of another tenant", submitting(s, jobOn(other)))
		mustEnd(t, "a new sandbox of another tenant", submitting(s, createFor("other", newSandbox())))
		mustEnd(t, "a job of the locked tenant, which counts no sandboxes", submitting(s, jobOn(next)))
	}
	mustNotEnd(t, "the sandbox of the locked tenant", waiting)
	free()
	mustEnd(t, "the sandbox of the tenant that was locked", waiting)
}

// TestALockedKeyDelaysItsOwnSubmissionAlone: another process has written an idempotency key and hangs before its commit.
func TestALockedKeyDelaysItsOwnSubmissionAlone(t *testing.T) {
	t.Parallel()
	dsn := testdb.New(t)
	s := openAt(t, dsn, 1000)
	box, other := create(t, s, newSandbox()).Sandbox, otherTenant(t, dsn, s, "other")
	db := database(t, dsn)
	tx, err := db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.ExecContext(t.Context(), "INSERT INTO idempotency_keys VALUES ('default', 'k', '', 'elsewhere')"); err != nil {
		t.Fatal(err)
	}
	sub := jobOn(box)
	sub.IdempotencyKey, sub.Request = "k", []byte("r")
	waiting := submitting(s, sub)
	for range 20 {
		mustEnd(t, "a job of another tenant", submitting(s, jobOn(other)))
	}
	mustNotEnd(t, "the job with the key", waiting)
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
	mustEnd(t, "the job with the key", waiting)
}

// TestLargeSubmissionsAreCommittedInParts: together they would be more than PostgreSQL takes in one message, and each is sent apart from
// what is small.
func TestLargeSubmissionsAreCommittedInParts(t *testing.T) {
	t.Parallel()
	dsn := testdb.New(t)
	openAt(t, dsn, 1000)
	var inserts atomic.Int32
	s, err := models.Open(t.Context(), dsn, 8, models.Limits{Window: 1000}, func(_ context.Context, statement string, do func() error) error {
		if strings.Contains(statement, "INSERT INTO jobs") {
			inserts.Add(1)
		}
		return do()
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	box, other := create(t, s, newSandbox()).Sandbox, otherTenant(t, dsn, s, "other")
	inserts.Store(0)
	var large []<-chan error
	for range 12 {
		sub := jobOn(box)
		sub.Jobs[0].Input = make([]byte, 3<<20)
		large = append(large, submitting(s, sub))
	}
	mustEnd(t, "a small job of another tenant", submitting(s, jobOn(other)))
	for _, done := range large {
		mustEnd(t, "a large submission", done)
	}
	if n := inserts.Load(); n < 12*3/8+1 {
		t.Errorf("12 submissions of 3 MiB took %d statements, which is more than 8 MiB in one", n)
	}
}

// TestSubmitAfterClose is refused, as it may come at a process' end.
func TestSubmitAfterClose(t *testing.T) {
	t.Parallel()
	s, err := models.Open(t.Context(), testdb.New(t), 2, models.Limits{Window: 10})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	sub := models.Submission{TenantID: "default", SandboxID: "sb", Jobs: []models.Job{{ID: "job", Args: json.RawMessage("{}")}}}
	if _, err := s.Submit(t.Context(), sub); !errors.Is(err, models.ErrClosed) {
		t.Fatalf("a submission after the end: %v", err)
	}
}

// TestManySandboxesAreLocked has more of them than there are connections: who meets one takes none from the others for long.
func TestManySandboxesAreLocked(t *testing.T) {
	t.Parallel()
	dsn := testdb.New(t)
	s := openAt(t, dsn, 1000)
	other := otherTenant(t, dsn, s, "other")
	var waiting []<-chan error
	var free []func()
	for range 12 {
		box := create(t, s, newSandbox()).Sandbox
		free = append(free, lockRow(t, dsn, "sandboxes", box.ID))
		waiting = append(waiting, submitting(s, jobOn(box)))
	}
	for range 20 {
		mustEnd(t, "a job of another tenant", submitting(s, jobOn(other)))
	}
	for i := range waiting {
		mustNotEnd(t, fmt.Sprint("job ", i), waiting[i])
		free[i]()
	}
	for i := range waiting {
		mustEnd(t, fmt.Sprint("job ", i), waiting[i])
	}
}
