package models

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"gorm.io/gorm"

	"sandyard/models/pg"
)

// SetLabels replaces the labels of a tenant's live sandbox.
func (s *Store) SetLabels(ctx context.Context, tenantID, sandboxID string, labels map[string]string) error {
	return s.set(ctx, tenantID, sandboxID, func(b *Sandbox) []any {
		b.Labels = labels
		return []any{"labels"}
	})
}

// SetStopping says what becomes of a tenant's live sandbox at its timeout, delete or pause, and after how many
// milliseconds of a pause it is deleted; 0 = never.
func (s *Store) SetStopping(ctx context.Context, tenantID, sandboxID, onTimeout string, pausedMS int64) error {
	return s.set(ctx, tenantID, sandboxID, func(b *Sandbox) []any {
		b.OnTimeout, b.PausedTimeoutMS = onTimeout, pausedMS
		return []any{"on_timeout", "paused_timeout_ms"}
	})
}

// SetLife ends a tenant's live sandbox, whatever its state then, so long from now on; 0 = never. It lives no longer
// than most from its start; 0 = that is not limited.
func (s *Store) SetLife(ctx context.Context, tenantID, sandboxID string, left, most time.Duration) error {
	now := s.Now(ctx)
	return s.set(ctx, tenantID, sandboxID, func(b *Sandbox) []any {
		b.MaxLifetimeMS = left.Milliseconds()
		if left > 0 && b.StartedAt != nil {
			b.MaxLifetimeMS += max(0, now.Sub(*b.StartedAt).Milliseconds())
		}
		if most > 0 && (left == 0 || b.MaxLifetimeMS > most.Milliseconds()) {
			b.MaxLifetimeMS = most.Milliseconds()
		}
		return []any{"max_lifetime_ms"}
	})
}

// set changes columns of a live sandbox's row, under its lock.
func (s *Store) set(ctx context.Context, tenantID, sandboxID string, change func(*Sandbox) (columns []any)) error {
	return s.db.Tx(ctx, func(tx *gorm.DB) error {
		box, err := locked(tx, sandboxID, lockSandbox)
		switch {
		case err != nil:
			return err
		case box.TenantID != tenantID:
			return ErrNotFound
		case box.Ended():
			return box.EndedError()
		}
		columns := change(&box)
		return tx.Model(&box).Select(columns[0], columns[1:]...).Updates(&box).Error
	})
}

// EnvChange is what becomes of the variables that later commands of a sandbox get.
type EnvChange struct {
	Set     map[string]*string // nil removes a variable
	Replace bool               // all others are removed
	// MostNames and MostBytes bound what there is afterwards; bytes are those of names and values.
	MostNames, MostBytes int
}

// EnvTooLargeError is a change beyond the bounds, of which nothing was written.
type EnvTooLargeError struct{ Names, Bytes int }

func (e *EnvTooLargeError) Error() string {
	return fmt.Sprintf("the environment would have %d variables and %d bytes", e.Names, e.Bytes)
}

// ChangeEnv changes the variables if the attempt still owns the job.
func (s *Store) ChangeEnv(ctx context.Context, j Job, c EnvChange) error {
	_, err := s.begin(ctx, j, nil, func(tx *gorm.DB, box *Sandbox) error {
		if box.Ended() {
			return box.EndedError()
		}
		return c.write(tx, box.ID)
	})
	return err
}

// write runs under the sandbox's lock.
func (c EnvChange) write(tx *gorm.DB, sandboxID string) error {
	names := slices.Sorted(maps.Keys(c.Set))
	values := make([]*string, len(names))
	for i, name := range names {
		values[i] = c.Set[name]
	}
	var now struct{ Names, Bytes int }
	// Past GORM, which would spread the slices.
	err := pg.EnqueueRaw(tx, "DELETE FROM sandbox_env WHERE sandbox_id = $1 AND ($2 OR name = ANY ($3::text[]))",
		[]any{sandboxID, c.Replace, names}, nil)
	if err == nil {
		err = pg.EnqueueRaw(tx, `INSERT INTO sandbox_env (sandbox_id, name, value)
			SELECT $1, v.name, v.value FROM unnest($2::text[], $3::text[]) AS v (name, value) WHERE v.value IS NOT NULL`,
			[]any{sandboxID, names, values}, nil)
	}
	if err == nil {
		err = pg.Enqueue(pg.Build(tx).Raw(`SELECT count(*) AS names, coalesce(sum(octet_length(name) + octet_length(value)), 0) AS bytes
			FROM sandbox_env WHERE sandbox_id = ?`, sandboxID), pg.Into(&now))
	}
	if err == nil {
		err = pg.Flush(tx)
	}
	if err == nil && (now.Names > c.MostNames || now.Bytes > c.MostBytes) {
		return &EnvTooLargeError{now.Names, now.Bytes}
	}
	return err
}

// Env returns the variables that later commands of a sandbox get, beside those that it was made with.
func (s *Store) Env(ctx context.Context, sandboxID string) (map[string]string, error) {
	var rows []struct{ Name, Value string }
	err := s.db.WithContext(ctx).
		Table("sandbox_env").
		Select("name", "value").
		Where("sandbox_id = ?", sandboxID).
		Find(&rows).
		Error
	env := make(map[string]string, len(rows))
	for _, r := range rows {
		env[r.Name] = r.Value
	}
	return env, err
}

// AppendSetupLog adds to the log of what prepares a new sandbox, as long as the attempt owns its job.
func (s *Store) AppendSetupLog(ctx context.Context, h AttemptRef, sandboxID, step string, data []byte) error {
	return s.db.WithContext(ctx).Exec(`INSERT INTO setup_logs (sandbox_id, step, data) SELECT ?, ?, ?
		WHERE EXISTS (SELECT 1 FROM jobs WHERE id = ? AND attempt = ? AND state = 'running')`,
		sandboxID, step, data, h.ID, h.Attempt).Error
}

// SetupLogged is how many bytes of a step's output are in the log.
func (s *Store) SetupLogged(ctx context.Context, sandboxID, step string) (n int64, err error) {
	return scanned[int64](s.db.WithContext(ctx).
		Raw("SELECT coalesce(sum(length(data)), 0) FROM setup_logs WHERE sandbox_id = ? AND step = ?",
			sandboxID, step))
}

// SetupLog returns the log of what prepared a sandbox, after a piece of it.
func (s *Store) SetupLog(ctx context.Context, sandboxID string, after int64) ([]LogChunk, error) {
	return findAll[LogChunk](s.db.WithContext(ctx).
		Table("setup_logs").
		Where("sandbox_id = ? AND seq > ?", sandboxID, after).
		Order("seq"))
}
