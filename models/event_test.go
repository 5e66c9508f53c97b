package models_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib" // the driver for a look past the store

	"sandyard/dev/testdb"
	"sandyard/models"
)

// story tells a sandbox's events, oldest first, as "event actor reason".
func story(t *testing.T, s *models.Store, sandbox string) []string {
	t.Helper()
	list, err := s.Events(t.Context(), "default", models.EventFilter{Sandbox: sandbox, Limit: 1000})
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for _, e := range list {
		line := e.Event + " " + e.Actor
		if e.Reason != nil {
			line += " " + *e.Reason
		}
		lines = append(lines, line)
	}
	slices.Reverse(lines)
	return lines
}

func wantStory(t *testing.T, got []string, want ...string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("the events are\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestEveryChangeHasItsEvent(t *testing.T) {
	t.Parallel()
	s := open(t, 100)
	box := newSandbox()
	out := create(t, s, box, "exec", models.KindDelete)
	f := finish(t, s, out.Dispatch[0], models.SandboxRunning)
	exec, err := s.Claim(t.Context(), f.Dispatch[0].JobID, "node", lease)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Requeue(t.Context(), models.Requeue{AttemptRef: models.AttemptRef{ID: exec.ID, Attempt: exec.Attempt}, Reason: "away"}); err != nil {
		t.Fatal(err)
	}
	again, err := s.Claim(t.Context(), exec.ID, "other", lease)
	if err != nil {
		t.Fatal(err)
	}
	o := outcome(again, models.Failed, "")
	o.Error = &models.JobError{Code: "no_space", Message: "the disk is full"}
	if f, err = s.Finish(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	gone, err := s.Claim(t.Context(), f.Dispatch[0].JobID, "node", lease)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.BeginDelete(t.Context(), gone, models.End{Reason: "done", Actor: "somebody"}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Finish(t.Context(), outcome(gone, models.Succeeded, models.SandboxDeleted)); err != nil {
		t.Fatal(err)
	}
	wantStory(t, story(t, s, box.ID),
		"sandbox.creating test", "job.queued test", "job.queued test", "job.queued test",
		"job.running worker:node", "job.succeeded worker:node", "sandbox.running test",
		"job.running worker:node", "job.requeued worker:node away", "job.running worker:other", "job.failed worker:other the disk is full",
		"job.running worker:node", "sandbox.deleting somebody done", "job.succeeded worker:node", "sandbox.deleted somebody done")
	history, err := s.Events(t.Context(), "default", models.EventFilter{Job: exec.ID, Limit: 100})
	if err != nil || len(history) != 5 {
		t.Errorf("the exec's history has %d events, %v", len(history), err)
	}
}

func TestEventsSayWhoCancelledAndWhoLostAJob(t *testing.T) {
	t.Parallel()
	s := open(t, 100)
	box := newSandbox()
	out := create(t, s, box, "exec", "exec")
	create, err := s.Claim(t.Context(), out.Dispatch[0].JobID, "node", 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Recover(t.Context(), create); err != nil {
		t.Fatal(err)
	}
	if create, err = s.Claim(t.Context(), create.ID, "other", lease); err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{out.Jobs[2].ID, create.ID} { // one that waits and one that runs
		if _, _, err := s.Cancel(t.Context(), "default", id, "key_7"); err != nil {
			t.Fatal(err)
		}
	}
	o := outcome(create, models.Cancelled, "")
	o.Error = &models.JobError{Code: "cancelled", Message: "cancelled"}
	if _, err := s.Finish(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	wantStory(t, story(t, s, box.ID),
		"sandbox.creating test", "job.queued test", "job.queued test", "job.queued test",
		"job.running worker:node", "job.requeued scheduler its worker stopped sending heartbeats", "job.running worker:other",
		"job.cancelled key_7 the job was cancelled before it started", "job.cancel_requested key_7",
		"job.cancelled key_7 cancelled", "sandbox.failed platform create cancelled",
		"job.failed platform sandbox "+box.ID+" is failed (create cancelled); it accepts no more jobs; create another sandbox")
}

func TestEventsPageAndBelongToTheirTenant(t *testing.T) {
	t.Parallel()
	s := open(t, 100)
	box := newSandbox()
	create(t, s, box, "exec", "exec")
	var ids []int64
	for before := int64(0); ; {
		page, err := s.Events(t.Context(), "default", models.EventFilter{Sandbox: box.ID, Before: before, Limit: 3})
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range page {
			before = e.ID
			ids = append(ids, e.ID)
		}
		if len(page) < 3 {
			break
		}
	}
	if len(ids) != 4 || !slices.IsSortedFunc(ids, func(a, b int64) int { return int(b - a) }) {
		t.Errorf("the pages hold %v", ids)
	}
	if others, err := s.Events(t.Context(), "another", models.EventFilter{Sandbox: box.ID, Limit: 10}); err != nil || len(others) > 0 {
		t.Errorf("another tenant sees %d events, %v", len(others), err)
	}
}

func TestEventsAreNeverChanged(t *testing.T) {
	t.Parallel()
	dsn := testdb.New(t)
	s, err := models.Open(t.Context(), dsn, 4, models.Limits{Window: 10})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if _, err := s.Bootstrap(t.Context()); err != nil {
		t.Fatal(err)
	}
	create(t, s, newSandbox())
	db := database(t, dsn)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if _, err := db.ExecContext(ctx, "UPDATE events SET actor = 'nobody'"); err == nil || !strings.Contains(err.Error(), "never changed") {
		t.Errorf("an event was changed: %v", err)
	}
}
