package models_test

import (
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"

	"sandyard/dev/testenv"
	"sandyard/models"
)

// TestEnvOfAJobThatHasEndedIsNotWritten has the job end while its attempt waits for the sandbox's lock: what is told to
// have ended must not take effect later, over what others have set since.
func TestEnvOfAJobThatHasEndedIsNotWritten(t *testing.T) {
	t.Parallel()
	dsn := testenv.Database(t)
	s := openAt(t, dsn, 100)
	out := create(t, s, newSandbox(), "env")
	job, err := s.Claim(t.Context(), finish(t, s, out.Dispatch[0], models.SandboxRunning).Dispatch[0].JobID, "node", lease)
	if err != nil {
		t.Fatal(err)
	}
	var conns [2]*pgx.Conn
	for i := range conns {
		if conns[i], err = pgx.Connect(t.Context(), dsn); err != nil {
			t.Fatal(err)
		}
		defer conns[i].Close(t.Context())
	}
	holds, looks := conns[0], conns[1]
	run := func(query string, args ...any) {
		t.Helper()
		if _, err := holds.Exec(t.Context(), query, args...); err != nil {
			t.Fatal(err)
		}
	}
	value := "old"
	change := models.EnvChange{Set: map[string]*string{"KEPT": &value}, MostNames: 10, MostBytes: 100}
	run("BEGIN")
	run("SELECT FROM sandboxes WHERE id = $1 FOR NO KEY UPDATE", job.SandboxID)
	changed := make(chan error, 1)
	go func() { changed <- s.ChangeEnv(t.Context(), job, change) }()
	testenv.Eventually(t, "the change waits for the lock", func() bool {
		var waiting int
		err := looks.QueryRow(t.Context(), `SELECT count(*) FROM pg_stat_activity
			WHERE datname = current_database() AND wait_event_type = 'Lock'`).Scan(&waiting)
		return err == nil && waiting == 1
	})
	run("UPDATE jobs SET state = 'cancelled', lease_until = NULL, finished_at = now() WHERE id = $1", job.ID)
	run("COMMIT")
	if err := <-changed; !errors.Is(err, models.ErrStale) {
		t.Errorf("the change of a job that has ended: %v, want %v", err, models.ErrStale)
	}
	if env, err := s.Env(t.Context(), job.SandboxID); err != nil || len(env) != 0 {
		t.Errorf("the sandbox has %v, %v", env, err)
	}
}
