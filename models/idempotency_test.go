package models_test

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"

	"sandyard/dev/testdb"
	"sandyard/models"
)

// TestKeyThatIsForgottenWhileItIsUsed is taken again: a trigger drops it, as housekeeping may, between the two looks of a submission.
func TestKeyThatIsForgottenWhileItIsUsed(t *testing.T) {
	t.Parallel()
	dsn := testdb.New(t)
	s := openAt(t, dsn, 100)
	look, err := pgx.Connect(t.Context(), dsn)
	must(t, err)
	t.Cleanup(func() { _ = look.Close(context.Background()) })
	box := newSandbox()
	create(t, s, box)
	first, second := newJob("exec", box.ID), newJob("exec", box.ID)
	for _, j := range []models.Job{first, second} {
		sub := models.Submission{TenantID: "default", SandboxID: box.ID, Jobs: []models.Job{j}, IdempotencyKey: "key", Request: []byte("same")}
		out, err := s.Submit(t.Context(), sub)
		must(t, err)
		if out.Replayed || out.Jobs[0].ID != j.ID {
			t.Errorf("the submission is answered with %s, replayed %v", out.Jobs[0].ID, out.Replayed)
		}
		_, err = look.Exec(t.Context(), `CREATE OR REPLACE FUNCTION forget() RETURNS trigger LANGUAGE plpgsql AS
			$$ BEGIN DELETE FROM idempotency_keys WHERE job_id = '`+first.ID+`'; RETURN NULL; END $$;
			CREATE OR REPLACE TRIGGER forget AFTER INSERT ON idempotency_keys EXECUTE FUNCTION forget()`)
		must(t, err)
	}
	if state(t, s, second.ID) != models.Queued {
		t.Errorf("the second job is %s", state(t, s, second.ID))
	}
}
