package models_test

import (
	"log/slog"
	"os"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"sandyard/dev/testenv"
	"sandyard/models"
)

// TestKeysOfOneNameAreMigrated: the migration runs on rows that it would refuse from then on.
func TestKeysOfOneNameAreMigrated(t *testing.T) {
	t.Parallel()
	dsn := testenv.Database(t)
	s, err := models.Open(t.Context(), dsn, 4, models.Limits{Window: 64})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if err := s.Migrate(t.Context(), slog.New(slog.DiscardHandler)); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Bootstrap(t.Context()); err != nil {
		t.Fatal(err)
	}
	conn, err := pgx.Connect(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	text, err := os.ReadFile("migrations/00064_key_names.sql")
	if err != nil {
		t.Fatal(err)
	}
	up, down, _ := strings.Cut(string(text), "-- +goose Down")
	const rows = `INSERT INTO api_keys (id, tenant_id, name, hint, hash, scopes)
		SELECT 'key_' || n, 'default', repeat('x', 300), '', n::text::bytea, '[]' FROM generate_series(1, 3) n`
	for _, sql := range []string{down, rows, up} {
		if _, err := conn.Exec(t.Context(), sql); err != nil {
			t.Fatalf("%v: %s", err, sql)
		}
	}
	names := map[string]bool{}
	keys, err := s.Keys(t.Context(), "default", 10)
	for _, k := range keys {
		names[k.Name] = true
	}
	if err != nil || len(keys) != 4 || len(names) != 4 {
		t.Errorf("%d keys have %d names, %v", len(keys), len(names), err)
	}
}
