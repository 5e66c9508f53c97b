package models_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"sandyard/dev/testdb"
	"sandyard/models"
)

// TestALockedJobCostsNoOtherItsLease: whoever holds a job's row, a heartbeat extends the leases of the others at once.
func TestALockedJobCostsNoOtherItsLease(t *testing.T) {
	t.Parallel()
	dsn := testdb.New(t)
	s := openAt(t, dsn, 100)
	var held []models.AttemptRef
	for range 2 {
		j := submitOn(t, s, running(t, s).ID, "exec").Jobs[0]
		c, err := s.Claim(t.Context(), j.ID, "node", -time.Second)
		if err != nil {
			t.Fatal(err)
		}
		held = append(held, models.AttemptRef{ID: c.ID, Attempt: c.Attempt})
	}
	conn, err := pgx.Connect(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	if _, err := conn.Exec(t.Context(), "BEGIN"); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Exec(t.Context(), "SELECT FROM jobs WHERE id = $1 FOR UPDATE", held[0].ID); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute) // a wait for the lock has no end
	defer cancel()
	_, beats, err := s.Heartbeat(ctx, models.Node{ID: "node"}, held, lease)
	if err != nil || len(beats) != 2 {
		t.Fatalf("the heartbeat learns of %d jobs, want both: %v", len(beats), err)
	}
	expired, err := s.ExpiredLeases(t.Context(), time.Now(), 10)
	if err != nil || len(expired) != 1 || expired[0].ID != held[0].ID {
		t.Fatalf("leases of %+v are over, want that of the locked job alone: %v", expired, err)
	}
}
