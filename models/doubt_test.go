package models_test

import (
	"errors"
	"strings"
	"sync/atomic"
	"testing"

	"sandyard/dev/faultproxy"
	"sandyard/dev/testdb"
	"sandyard/dev/testenv"
	"sandyard/models"
	"sandyard/models/pg"
)

// openWired is open over a connection that can be broken.
func openWired(t *testing.T, conns int) (*models.Store, *faultproxy.Proxy) {
	t.Helper()
	proxy, dsn := faultproxy.Postgres(t, testdb.New(t))
	s, err := models.Open(t.Context(), dsn, conns, models.Limits{Window: 100})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		proxy.On(nil)
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	if _, err := s.Bootstrap(t.Context()); err != nil {
		t.Fatal(err)
	}
	return s, proxy
}

// strike makes the next n calls whose text holds what suffer f.
func strike(what string, n int64, f faultproxy.Fault) (decide func(faultproxy.Call) faultproxy.Fault, struck *atomic.Int64) {
	struck = new(atomic.Int64)
	return func(c faultproxy.Call) faultproxy.Fault {
		if strings.Contains(strings.ToLower(c.Text), what) && struck.Add(1) <= n {
			return f
		}
		return faultproxy.None
	}, struck
}

// TestSubmitOutlivesBrokenConnections breaks each step of a submission, COMMIT among them, before and after its effect.
// What is accepted is told as accepted, and once.
func TestSubmitOutlivesBrokenConnections(t *testing.T) {
	testenv.Long(t, "it takes many seconds")
	t.Parallel()
	for _, step := range []string{"begin", "idempotency_keys", "tenants", `insert into "sandboxes"`, "insert into jobs", "dispatched_at", "commit"} {
		for name, f := range map[string]faultproxy.Fault{"before": faultproxy.CutBefore, "after": faultproxy.CutAfter} {
			t.Run(step+" "+name, func(t *testing.T) {
				t.Parallel()
				s, proxy := openWired(t, 4)
				decide, struck := strike(step, 1, f)
				proxy.On(decide)
				box := newSandbox()
				job := newJob(models.KindCreate, box.ID)
				out, err := s.Submit(t.Context(), models.Submission{
					TenantID: "default", SandboxID: box.ID, New: box, Jobs: []models.Job{job}, IdempotencyKey: "k", Request: []byte("r"),
				})
				if err != nil {
					t.Fatalf("a submission over a connection that broke once: %v", err)
				}
				if struck.Load() == 0 {
					t.Fatal("the call never came")
				}
				if out.Replayed || len(out.Dispatch) != 1 || out.Dispatch[0].JobID != job.ID {
					t.Errorf("the answer is not the submission's own: %+v", out)
				}
				jobs, err := s.Jobs(t.Context(), "default", models.JobFilter{Limit: 10})
				if err != nil || len(jobs) != 1 || jobs[0].ID != job.ID || jobs[0].Seq != 1 {
					t.Errorf("written down: %+v, %v", jobs, err)
				}
			})
		}
	}
}

// TestSubmitToASandboxWhoseCommitIsNotAnswered holds also where jobs stand already, and for a group.
func TestSubmitToASandboxWhoseCommitIsNotAnswered(t *testing.T) {
	t.Parallel()
	s, proxy := openWired(t, 4)
	box := create(t, s, newSandbox()).Sandbox
	for i, f := range []faultproxy.Fault{faultproxy.CutAfter, faultproxy.CutBefore, faultproxy.CutAfter} {
		decide, struck := strike("commit", 1, f)
		proxy.On(decide)
		out, err := s.Submit(t.Context(), models.Submission{
			TenantID: "default", SandboxID: box.ID, Jobs: []models.Job{newJob("exec", box.ID)},
		})
		if err != nil || struck.Load() == 0 {
			t.Fatalf("submission %d: %v after %d commits", i, err, struck.Load())
		}
		if out.Jobs[0].Seq != int64(i+2) {
			t.Errorf("job %d has number %d", i, out.Jobs[0].Seq)
		}
	}
	jobs, err := s.Jobs(t.Context(), "default", models.JobFilter{Sandbox: box.ID, Limit: 10})
	if err != nil || len(jobs) != 4 {
		t.Fatalf("%d jobs, %v", len(jobs), err)
	}
}

// TestSubmitTellsWhatItCannotKnow takes the database away together with its answer to COMMIT.
func TestSubmitTellsWhatItCannotKnow(t *testing.T) {
	testenv.Long(t, "it takes many seconds")
	t.Parallel()
	s, proxy := openWired(t, 4)
	cutting := new(atomic.Bool)
	proxy.On(func(c faultproxy.Call) faultproxy.Fault {
		switch {
		case strings.Contains(strings.ToLower(c.Text), "commit"):
			cutting.Store(true)
			return faultproxy.CutAfter
		case cutting.Load():
			return faultproxy.CutBefore
		}
		return faultproxy.None
	})
	submit := func() (models.Submitted, error) {
		box := newSandbox()
		return s.Submit(t.Context(), models.Submission{
			TenantID: "default", SandboxID: box.ID, New: box, Jobs: []models.Job{newJob(models.KindCreate, box.ID)},
			IdempotencyKey: "k", Request: []byte("r"),
		})
	}
	if _, err := submit(); !errors.Is(err, pg.ErrUncertain) {
		t.Fatalf("an answer that nobody can know: %v", err)
	}
	if _, err := submit(); err == nil || errors.Is(err, pg.ErrUncertain) || !pg.IsUnavailable(err) {
		t.Fatalf("a submission without a database: %v", err)
	}
	proxy.On(nil)
	again, err := submit()
	if err != nil || !again.Replayed {
		t.Fatalf("the same key again: %+v, %v", again, err)
	}
}
