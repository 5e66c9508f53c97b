package models_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"sandyard/dev/testdb"
	"sandyard/models"
)

// TestAJobGivenBackToAnEndedSandboxEnds: its worker gave it back after the sandbox had ended, and died. That holds also when
// the worker's own row is gone, which is forgotten soon after its death.
func TestAJobGivenBackToAnEndedSandboxEnds(t *testing.T) {
	t.Parallel()
	dsn := testdb.New(t)
	s, ctx := openAt(t, dsn, 100), t.Context()
	look, err := pgx.Connect(ctx, dsn)
	must(t, err)
	t.Cleanup(func() { _ = look.Close(context.Background()) })
	sql := func(statement string) {
		t.Helper()
		_, err := look.Exec(ctx, statement)
		must(t, err)
	}
	node := models.Node{ID: "node", Provider: "fake", Engine: "engine"}
	c := runsOn(t, s, node, lease)
	box := c.SandboxID
	if _, err := s.EndStranded(ctx, box); !errors.Is(err, models.ErrNotDue) {
		t.Errorf("jobs of a living sandbox are called stranded: %v", err)
	}
	_, err = s.MarkLost(ctx, box, node, "gone")
	must(t, err)
	must(t, s.Requeue(ctx, models.Requeue{AttemptRef: models.AttemptRef{ID: c.ID, Attempt: c.Attempt}, Reason: "why"}))
	sql("UPDATE sandboxes SET ended_at = ended_at - interval '1 hour'")
	sql("UPDATE jobs SET queued_at = queued_at - interval '1 hour'")

	stranded := func(when string, want bool) {
		t.Helper()
		list, err := s.Stranded(ctx, 10)
		if must(t, err); slices.Contains(list, box) != want {
			t.Errorf("%s the sandbox is among those with stranded jobs: %v, want %v", when, list, want)
		}
	}
	stranded("while its worker lives", false)
	must(t, s.Retire(ctx, node.ID))
	stranded("when its worker is dead", true)
	sql("DELETE FROM nodes")
	stranded("when its worker is forgotten", true)

	f, err := s.EndStranded(ctx, box)
	if j, e := s.Job(ctx, "default", c.ID); err != nil || e != nil || j.State != models.Failed || j.Error.Code != "sandbox_lost" || !slices.Equal(f.Ended, []string{c.ID}) {
		t.Errorf("the job is %s, %+v; ended were %v, %v", j.State, j.Error, f.Ended, errors.Join(err, e))
	}
	stranded("when its jobs have ended", false)
}

// TestWhoEndsTheJobsOfASilentWorker: not the worker.
func TestWhoEndsTheJobsOfASilentWorker(t *testing.T) {
	t.Parallel()
	s, ctx := open(t, 100), t.Context()
	node := models.Node{ID: "node", Provider: "fake", Engine: "engine"}
	exec := runsOn(t, s, node, -time.Second)
	_, err := s.MarkLost(ctx, exec.SandboxID, node, "gone")
	must(t, err)
	list, err := s.Events(ctx, "default", models.EventFilter{Job: exec.ID, Limit: 1})
	if must(t, err); list[0].Event != "job.lost" || list[0].Actor != "platform" || !strings.Contains(string(list[0].Detail), `"node": "node"`) {
		t.Errorf("what is told of the job's end: %+v, %s", list[0], list[0].Detail)
	}
}

// runsOn is a command that the node runs, under such a lease, in a sandbox that it holds.
func runsOn(t *testing.T, s *models.Store, node models.Node, span time.Duration) models.Job {
	t.Helper()
	ctx, box := t.Context(), newSandbox()
	_, err := s.Register(ctx, node, lease)
	must(t, err)
	c, err := s.Claim(ctx, create(t, s, box).Jobs[0].ID, node.ID, lease)
	must(t, err)
	_, err = s.BeginCreate(ctx, c, models.Holder{Node: node.ID, Provider: node.Provider})
	must(t, err)
	_, err = s.Finish(ctx, outcome(c, models.Succeeded, models.SandboxRunning))
	must(t, err)
	exec := newJob("exec", box.ID)
	submit(t, s, box.ID, exec)
	c, err = s.Claim(ctx, exec.ID, node.ID, span)
	must(t, err)
	return c
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
