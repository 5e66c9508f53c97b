package models_test

import (
	"testing"
	"time"

	"sandyard/models"
)

// TestCancelledProgramsAreStillToBeKilled: when their worker goes silent they are not over. When their sandbox is, they are
// cancelled, by whom it was.
func TestCancelledProgramsAreStillToBeKilled(t *testing.T) {
	t.Parallel()
	node := models.Node{ID: "node", Provider: "fake", Engine: "engine"}
	for name, ends := range map[string]func(*models.Store, string) error{
		"lost by reconciling": func(s *models.Store, box string) error {
			_, err := s.MarkLost(t.Context(), box, node, "gone")
			return err
		},
		"lost by a job": func(s *models.Store, box string) error {
			j := newJob(models.KindExecSignal, box)
			j.Parallel = true
			submit(t, s, box, j)
			c, err := s.Claim(t.Context(), j.ID, node.ID, lease)
			if err != nil {
				return err
			}
			_, err = s.Finish(t.Context(), outcome(c, models.Failed, models.SandboxLost))
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, ctx := open(t, 100), t.Context()
			exec := runsOn(t, s, node, -time.Second)
			_, _, err := s.Cancel(ctx, "default", exec.ID, "somebody")
			must(t, err)
			_, err = s.Recover(ctx, exec)
			must(t, err)
			j, err := s.Job(ctx, "default", exec.ID)
			if must(t, err); j.State != models.Queued || j.CancelRequestedAt == nil || !j.Begun {
				t.Fatalf("recovered, the job is %s, begun %v, asked to stop at %v", j.State, j.Begun, j.CancelRequestedAt)
			}
			must(t, ends(s, exec.SandboxID))
			j, err = s.Job(ctx, "default", exec.ID)
			if must(t, err); j.State != models.Cancelled || value(j.CancelledBy) != "somebody" {
				t.Errorf("with its sandbox it is %s, by %s", j.State, value(j.CancelledBy))
			}
		})
	}
}
