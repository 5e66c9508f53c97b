package models_test

import (
	"testing"
	"time"

	"sandyard/models"
)

// TestAWishEndsWithItsJob: whatever way a pause or a resume ends without success, the sandbox is wished to be what it is.
func TestAWishEndsWithItsJob(t *testing.T) {
	t.Parallel()
	s := open(t, 100)
	for _, kind := range []string{models.KindPause, models.KindResume} {
		for name, end := range map[string]func(*testing.T, *models.Store, models.Job) error{
			"failed":    ended(models.Failed),
			"timed out": ended(models.TimedOut),
			"lost":      ended(models.Lost),
			"cancelled": func(t *testing.T, s *models.Store, j models.Job) error {
				_, _, err := s.Cancel(t.Context(), "default", j.ID, "test")
				return err
			},
			"cancelled while it ran": func(t *testing.T, s *models.Store, j models.Job) error {
				claimed, err := s.Claim(t.Context(), j.ID, "node", -time.Second)
				if err != nil {
					return err
				}
				if _, _, err := s.Cancel(t.Context(), "default", j.ID, "test"); err != nil {
					return err
				}
				_, err = s.Recover(t.Context(), claimed)
				return err
			},
			"expired": func(t *testing.T, s *models.Store, j models.Job) error {
				_, err := s.Expire(t.Context(), j)
				return err
			},
		} {
			t.Run(kind+" "+name, func(t *testing.T) {
				t.Parallel()
				box := standing(t, s, kind)
				want := models.DesiredRunning
				if kind == models.KindResume {
					want = models.DesiredPaused
				}
				job, past := newJob(kind, box), time.Now().Add(-time.Hour)
				job.QueueDeadline = &past
				if got := submit(t, s, box, job).Sandbox.Desired; got == want {
					t.Fatalf("submitted, and the wish is %s", got)
				}
				if err := end(t, s, job); err != nil {
					t.Fatal(err)
				}
				b, err := s.Sandbox(t.Context(), "default", box)
				if err != nil || !state(t, s, job.ID).Terminal() || b.Desired != want {
					t.Errorf("the job is %s, the sandbox %s, desired %s: %v", state(t, s, job.ID), b.State, b.Desired, err)
				}
			})
		}
	}
}

// ended ends a job in the way that an attempt tells of.
func ended(how models.JobState) func(*testing.T, *models.Store, models.Job) error {
	return func(t *testing.T, s *models.Store, j models.Job) error {
		claimed, err := s.Claim(t.Context(), j.ID, "node", lease)
		if err != nil {
			return err
		}
		_, err = s.Finish(t.Context(), outcome(claimed, how, ""))
		return err
	}
}

// standing is a sandbox that may be paused, or one that may be resumed.
func standing(t *testing.T, s *models.Store, kind string) string {
	t.Helper()
	out := create(t, s, newSandbox())
	finish(t, s, out.Dispatch[0], models.SandboxRunning)
	if kind == models.KindResume {
		finish(t, s, submit(t, s, out.Sandbox.ID, newJob(models.KindPause, out.Sandbox.ID)).Dispatch[0], models.SandboxPaused)
	}
	return out.Sandbox.ID
}

func submit(t *testing.T, s *models.Store, box string, job models.Job) models.Submitted {
	t.Helper()
	out, err := s.Submit(t.Context(), models.Submission{TenantID: "default", SandboxID: box, Jobs: []models.Job{job}})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// TestTheNewestOpenJobIsTheWish: what ends takes no wish along that came after it.
func TestTheNewestOpenJobIsTheWish(t *testing.T) {
	t.Parallel()
	s := open(t, 100)
	box := standing(t, s, models.KindPause)
	pause, resume := newJob(models.KindPause, box), newJob(models.KindResume, box)
	first, second := newJob(models.KindDelete, box), newJob(models.KindDelete, box)
	for _, j := range []models.Job{pause, resume, first, second} {
		submit(t, s, box, j)
	}
	for _, c := range []struct {
		cancel models.Job
		want   string
	}{{second, models.DesiredDeleted}, {first, models.DesiredRunning}, {resume, models.DesiredPaused}, {pause, models.DesiredRunning}} {
		if _, _, err := s.Cancel(t.Context(), "default", c.cancel.ID, "test"); err != nil {
			t.Fatal(err)
		}
		b, err := s.Sandbox(t.Context(), "default", box)
		if err != nil || b.Desired != c.want {
			t.Errorf("without its %s the sandbox is desired %s, want %s: %v", c.cancel.Kind, b.Desired, c.want, err)
		}
	}
}
