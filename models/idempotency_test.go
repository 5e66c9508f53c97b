package models_test

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"

	"sandyard/dev/testenv"
	"sandyard/models"
)

// TestKeyThatIsForgottenWhileItIsUsed is taken anew: housekeeping drops it between the two looks of a submission.
func TestKeyThatIsForgottenWhileItIsUsed(t *testing.T) {
	t.Parallel()
	dsn := testenv.Database(t)
	look, err := pgx.Connect(t.Context(), dsn)
	must(t, err)
	t.Cleanup(func() { _ = look.Close(context.Background()) })
	var armed bool
	var once sync.Once
	s, err := models.Open(t.Context(), dsn, 4, models.Limits{Window: 100}, func(ctx context.Context, statement string, do func() error) error {
		if armed && strings.HasPrefix(statement, "SELECT") && strings.Contains(statement, `FROM "idempotency_keys"`) {
			once.Do(func() { _, err = look.Exec(ctx, "DELETE FROM idempotency_keys") })
		}
		return do()
	})
	must(t, err)
	t.Cleanup(func() { must(t, s.Close()) })
	must(t, s.Migrate(t.Context(), slog.New(slog.DiscardHandler)))
	_, err = s.Bootstrap(t.Context())
	must(t, err)
	box := newSandbox()
	create(t, s, box)
	first, second := newJob("exec", box.ID), newJob("exec", box.ID)
	for _, j := range []models.Job{first, second} {
		sub := models.Submission{TenantID: "default", SandboxID: box.ID, Jobs: []models.Job{j}, IdempotencyKey: "key", Request: []byte("same")}
		out, e := s.Submit(t.Context(), sub)
		must(t, e)
		if out.Replayed || out.Jobs[0].ID != j.ID {
			t.Errorf("the submission is answered with %s, replayed %v", out.Jobs[0].ID, out.Replayed)
		}
		armed = true
	}
	if must(t, err); state(t, s, second.ID) != models.Queued {
		t.Errorf("the second job is %s", state(t, s, second.ID))
	}
}
