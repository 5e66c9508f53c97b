package models_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"sandyard/models"
)

// TestNobodysDeliveriesKeepOthersWaiting: each look takes some of each tenant and host, the oldest first, and no more while
// these are under way.
func TestNobodysDeliveriesKeepOthersWaiting(t *testing.T) {
	t.Parallel()
	s, db := openBeside(t)
	conn, err := db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, statement := range []string{
		"SET session_replication_role = replica",
		`INSERT INTO deliveries (id, tenant_id, job_id, event, url, endpoint, state, next_attempt_at)
			SELECT 'a' || lpad(i::text, 4, '0'), 'a', 'job' || i, 'e', 'http://slow', 1, 'pending', now() - interval '1 h' + i * interval '1 s' FROM generate_series(1, 600) i`,
		`INSERT INTO deliveries (id, tenant_id, job_id, event, url, endpoint, state) VALUES ('a-quick', 'a', 'q', 'e', 'http://quick', 2, 'pending'),
			('b1', 'b', 'b1', 'e', 'http://slow', 1, 'pending'), ('b2', 'b', 'b2', 'e', 'http://slow', 1, 'pending')`,
	} {
		if _, err := conn.ExecContext(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	if err := conn.Close(); err != nil {
		t.Fatal(err)
	}
	look := func(tenant string) []string {
		t.Helper()
		tasks, err := s.DispatchDeliveries(t.Context(), tenant, 100)
		if err != nil {
			t.Fatal(err)
		}
		ids := make([]string, len(tasks))
		for i, d := range tasks {
			ids[i] = d.ID
		}
		slices.Sort(ids)
		return ids
	}
	if got := strings.Join(look(""), " "); got != "a-quick a0001 a0002 a0003 a0004 a0005 a0006 b1 b2" {
		t.Errorf("the first look hands over %s", got)
	}
	if got := look("a"); len(got) > 0 {
		t.Errorf("while all of these are handed over, a second look hands over %v", got)
	}
	d, err := s.ClaimDelivery(t.Context(), models.DeliveryTask{ID: "a0001", Attempt: 1}, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	if got := look(""); len(got) > 0 {
		t.Errorf("while one is under way, a look hands over %v", got)
	}
	if err := s.FinishDelivery(t.Context(), d, models.DeliveryResult{Status: 204}); err != nil {
		t.Fatal(err)
	}
	if got := look("b"); len(got) > 0 {
		t.Errorf("a look at another tenant's hands over %v", got)
	}
	if got := strings.Join(look("a"), " "); got != "a0007" {
		t.Errorf("when one is delivered, a look hands over %s", got)
	}
	if err := s.PutBackDelivery(t.Context(), models.DeliveryTask{ID: "a0003", Attempt: 1}); err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(look(""), " "); got != "a0003" {
		t.Errorf("when one is put back, a look hands over %s", got)
	}
}
