package models_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"sandyard/dev/testdb"
	"sandyard/models"
)

// TestAskedAnswersAllOrNothing: an answer that is cut off between two rows names no job, and not an empty one either.
func TestAskedAnswersAllOrNothing(t *testing.T) {
	t.Parallel()
	dsn := testdb.New(t)
	s, ctx := openAt(t, dsn, 100), t.Context()
	box, _ := made(t, s)
	const many = 2000
	_, err := database(t, dsn).ExecContext(ctx, `INSERT INTO jobs (id, tenant_id, sandbox_id, kind, state, seq, actor, args,
			timeout_ms, max_attempts, attempt, cancel_requested_at, lease_until)
		SELECT 'asked' || i, 'default', $1, 'exec', 'running', 1000 + i, 'test', '{}', 1000, 1, 1, now(), now() + interval '1 hour'
		FROM generate_series(1, $2) i`, box, many)
	must(t, err)
	held := make([]models.AttemptRef, many)
	for i := range held {
		held[i] = models.AttemptRef{ID: fmt.Sprint("asked", i+1), Attempt: 1}
	}
	for after := time.Duration(0); ; after += 500 * time.Microsecond {
		within, stop := context.WithTimeout(ctx, after)
		asked, err := s.Asked(within, held)
		stop()
		switch {
		case err == nil && len(asked) == many:
			return
		case err == nil, len(asked) > 0:
			t.Fatalf("cut off after %v: %d of %d jobs, the last is %+v, %v", after, len(asked), many, asked[len(asked)-1], err)
		}
	}
}
