package jobs_test

import (
	"errors"
	"testing"
	"time"

	"sandyard/dev/jobsrig"
	"sandyard/jobs"
	"sandyard/jobs/kind"
	"sandyard/jobs/scheduler"
	"sandyard/models"
)

// bounded is a client of a server whose operator says how long sandboxes may live and stay paused.
func (r *rig) bounded(lifetime, paused jobs.Span) *jobs.Client {
	return jobs.NewClient(r.Store, r.Queue, jobs.Catalog{
		Providers: []string{"fake"}, Images: []string{"*"}, Template: "python", Templates: map[string]string{"python": "fake"}, Lifetime: lifetime, Paused: paused,
	}, r.Log)
}

func TestTheOperatorBoundsLives(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	const m = time.Minute
	for name, c := range map[string]struct {
		is    jobs.Span
		asked float64 // seconds
		want  int64   // ms; -1 = it is refused
	}{
		"nobody says":           {jobs.Span{}, 0, 0},
		"only the wish":         {jobs.Span{}, 60, 60_000},
		"a default":             {jobs.Span{Default: m}, 0, 60_000},
		"more than the default": {jobs.Span{Default: m}, 120, 120_000},
		"a maximum":             {jobs.Span{Most: m}, 0, 60_000},
		"within the maximum":    {jobs.Span{Most: m}, 59, 59_000},
		"above the maximum":     {jobs.Span{Default: m, Most: 2 * m}, 121, -1},
		"both":                  {jobs.Span{Default: m, Most: 2 * m}, 0, 60_000},
	} {
		for field, wish := range map[string]jobs.CreateSandbox{
			"max_lifetime_seconds": {MaxLifetimeSeconds: c.asked}, "paused_timeout_seconds": {PausedTimeoutSeconds: c.asked},
		} {
			life, paused := c.is, jobs.Span{}
			if field != "max_lifetime_seconds" {
				life, paused = paused, life
			}
			out, err := r.bounded(life, paused).Create(t.Context(), wish, jobsrig.Options())
			if refused := (*kind.InvalidError)(nil); c.want < 0 {
				if !errors.As(err, &refused) || refused.Field != field {
					t.Errorf("%s, %s: %v", name, field, err)
				}
				continue
			}
			r.Must(err)
			if b := r.Sandbox(out.Sandbox.ID); b.MaxLifetimeMS+b.PausedTimeoutMS != c.want || field == "max_lifetime_seconds" && b.PausedTimeoutMS != 0 {
				t.Errorf("%s, %s: it lives for %d ms and is paused for %d, want %d", name, field, b.MaxLifetimeMS, b.PausedTimeoutMS, c.want)
			}
		}
	}
}

// TestWhatIsMadeAgainIsBoundedAsWell, by what the operator says now.
func TestWhatIsMadeAgainIsBoundedAsWell(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.Worker(4, reconciling(time.Millisecond))
	r.Scheduler(func(c *scheduler.Config) {
		c.Client = r.bounded(jobs.Span{Most: time.Hour}, jobs.Span{Default: time.Minute, Most: time.Hour})
	})
	box, made := r.Create(jobs.CreateSandbox{OnLost: models.OnLostRecreate, MaxLifetimeSeconds: 7200})
	r.Wait(made)
	if again := r.lose(box); again.MaxLifetimeMS != time.Hour.Milliseconds() || again.PausedTimeoutMS != time.Minute.Milliseconds() {
		t.Errorf("it lives for %d ms and is paused for %d", again.MaxLifetimeMS, again.PausedTimeoutMS)
	}
}

// TestPausedSandboxesEndWhereTheOperatorWantsIt, although nobody has asked for it.
func TestPausedSandboxesEndWhereTheOperatorWantsIt(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.Worker(4)
	r.Scheduler()
	out, err := r.bounded(jobs.Span{}, jobs.Span{Most: time.Second}).Create(t.Context(), jobs.CreateSandbox{OnTimeout: "pause"}, jobsrig.Options())
	r.Must(err)
	r.Wait(out.Jobs[0].ID)
	r.SQL("UPDATE sandboxes SET expires_at = now() WHERE id = $1", out.Sandbox.ID)
	r.Eventually("the sandbox was paused and has ended", func() bool { return r.Sandbox(out.Sandbox.ID).State == models.SandboxDeleted })
	if _, paused := r.happened(out.Sandbox.ID, "sandbox.paused"); !paused {
		t.Error("it was not paused")
	}
	if reason, _ := r.happened(out.Sandbox.ID, "sandbox.deleted"); reason != "paused_timeout" {
		t.Errorf("it ended as %q", reason)
	}
}
