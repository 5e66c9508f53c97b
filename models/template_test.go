package models_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"sandyard/dev/testdb"
	"sandyard/models"
)

// TestPoolsAreToldWhatTheyNeed: of the templates that may want a pool, what tells one from another.
func TestPoolsAreToldWhatTheyNeed(t *testing.T) {
	t.Parallel()
	s := open(t, 100)
	mine, all := models.Owner{Tenant: "default"}, models.Owner{}
	pool := &models.PoolSize{Min: 1, Max: 2}
	full := models.Definition{
		StartCommand: "start", Env: map[string]string{"A": "1"}, Ready: &models.Probe{Command: "probe"},
		WorkDir: "/data", Runtime: "runsc", Resources: models.Bounds{MemoryMB: 256, CPUs: 0.5},
	}
	none := full
	full.Pool = pool
	for name, c := range map[string]struct {
		owner models.Owner
		d     models.Definition
	}{"none": {mine, none}, "pooled": {mine, full}, "shared": {all, models.Definition{}}} {
		if _, err := s.PutTemplate(t.Context(), c.owner, models.Template{Name: name, Image: "image-" + name, Definition: c.d}); err != nil {
			t.Fatal(err)
		}
	}
	list, err := s.PooledTemplates(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]models.Template{}
	for _, x := range list {
		got[x.Name] = x
	}
	x, y := got["pooled"], got["shared"]
	d := x.Definition
	if len(list) != 2 || x.Image != "image-pooled" || x.TenantID == nil || y.Image != "image-shared" || y.TenantID != nil || y.Definition.Pool != nil {
		t.Fatalf("told are %+v", list)
	}
	if d.Pool == nil || *d.Pool != *pool || d.WorkDir != "/data" || d.Runtime != "runsc" || d.Resources != full.Resources {
		t.Errorf("the pool is told %+v", d)
	}
	if d.StartCommand != "" || d.Env != nil || d.Ready != nil {
		t.Errorf("the pool is told what it has no use for: %+v", d)
	}
}

// TestTheQuotaOfTemplatesCannotBeTakenTwice by who makes them at once: all wait for the tenant's lock.
func TestTheQuotaOfTemplatesCannotBeTakenTwice(t *testing.T) {
	t.Parallel()
	dsn := testdb.New(t)
	s := openAt(t, dsn, 100)
	put := func(name string) error {
		_, err := s.PutTemplate(t.Context(), models.Owner{Tenant: "default"}, models.Template{Name: name, Image: "image"})
		return err
	}
	holds, looks := connect(t, dsn), connect(t, dsn) // a transaction is told the same all the time
	for _, query := range []string{"UPDATE tenants SET max_templates = 3", "BEGIN", "SELECT FROM tenants FOR UPDATE"} {
		if _, err := holds.Exec(t.Context(), query); err != nil {
			t.Fatal(err)
		}
	}
	var made, refused atomic.Int32
	var all sync.WaitGroup
	for n := range 6 {
		all.Go(func() {
			limit := (*models.LimitError)(nil)
			switch err := put(fmt.Sprint("new", n)); {
			case err == nil:
				made.Add(1)
			case errors.As(err, &limit) && *limit == models.LimitError{Limit: "max_templates", Used: 3, Max: 3}:
				refused.Add(1)
			default:
				t.Error(err)
			}
		})
	}
	deadline := time.Now().Add(time.Minute)
	for waiting := 0; waiting < 6 && time.Now().Before(deadline); {
		err := looks.QueryRow(t.Context(), `SELECT count(*) FROM pg_stat_activity, pg_sleep(0.02)
			WHERE datname = current_database() AND wait_event_type = 'Lock'`).Scan(&waiting)
		if err != nil {
			t.Fatal(err)
		}
	}
	if _, err := holds.Exec(t.Context(), "COMMIT"); err != nil {
		t.Fatal(err)
	}
	all.Wait()
	if made.Load() != 3 || refused.Load() != 3 {
		t.Errorf("with room for 3, %d were made and %d refused", made.Load(), refused.Load())
	}
}

func connect(t *testing.T, dsn string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}
