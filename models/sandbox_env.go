package models

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"sandyard/models/pg"

	"gorm.io/gorm"
)

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
			return box.endedError()
		}
		return c.write(tx, box.ID)
	})
	return err
}

// write runs under the sandbox's lock.
func (c EnvChange) write(tx *gorm.DB, sandbox string) error {
	names := slices.Sorted(maps.Keys(c.Set))
	values := make([]*string, len(names))
	for i, name := range names {
		values[i] = c.Set[name]
	}
	var now struct{ Names, Bytes int }
	// Past GORM, which would spread the slices.
	err := pg.EnqueueRaw(tx, "DELETE FROM sandbox_env WHERE sandbox_id = $1 AND ($2 OR name = ANY ($3::text[]))",
		[]any{sandbox, c.Replace, names}, nil)
	if err == nil {
		err = pg.EnqueueRaw(tx, `INSERT INTO sandbox_env (sandbox_id, name, value)
			SELECT $1, v.name, v.value FROM unnest($2::text[], $3::text[]) AS v (name, value) WHERE v.value IS NOT NULL`,
			[]any{sandbox, names, values}, nil)
	}
	if err == nil {
		err = pg.Enqueue(pg.Build(tx).Raw(`SELECT count(*) AS names, coalesce(sum(octet_length(name) + octet_length(value)), 0) AS bytes
			FROM sandbox_env WHERE sandbox_id = ?`, sandbox), pg.Into(&now))
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
func (s *Store) Env(ctx context.Context, sandbox string) (map[string]string, error) {
	var rows []struct{ Name, Value string }
	err := s.db.WithContext(ctx).
		Table("sandbox_env").
		Select("name", "value").
		Where("sandbox_id = ?", sandbox).
		Find(&rows).
		Error
	env := make(map[string]string, len(rows))
	for _, r := range rows {
		env[r.Name] = r.Value
	}
	return env, err
}
