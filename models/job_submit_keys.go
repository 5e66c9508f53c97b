package models

import (
	"cmp"
	"context"
	"errors"
	"slices"

	"sandyard/models/pg"
)

// errKeyGone says that an idempotency key was forgotten for its age in the moment in which it was looked for.
var errKeyGone = errors.New("the idempotency key has just expired")

type idempotencyKey struct {
	TenantID string
	Key      string
	Request  []byte
	JobID    string
}

func (p *submission) key() idempotencyKey {
	return idempotencyKey{p.TenantID, p.IdempotencyKey, p.Request, p.answer()}
}

// ownedKey is what is unique of an idempotency key.
type ownedKey struct{ tenant, key string }

// claimKeys takes the idempotency keys of the group with the first trip, and reads who has them.
func (b *batch) claimKeys() error {
	keys := b.keys()
	if len(keys) == 0 {
		return nil
	}
	args := []any{
		column(keys, func(k idempotencyKey) string { return k.TenantID }),
		column(keys, func(k idempotencyKey) string { return k.Key }),
		column(keys, func(k idempotencyKey) []byte { return k.Request }),
		column(keys, func(k idempotencyKey) string { return k.JobID }),
	}
	err := pg.EnqueueRaw(b.tx, `INSERT INTO idempotency_keys (tenant_id, key, request, job_id)
		SELECT * FROM unnest($1::text[], $2::text[], $3::bytea[], $4::text[]) ON CONFLICT DO NOTHING`, args, nil)
	if err != nil {
		return err
	}
	b.owners = map[ownedKey]idempotencyKey{}
	return pg.EnqueueRaw(
		b.tx,
		`SELECT k.tenant_id, k.key, k.request, k.job_id FROM unnest($1::text[], $2::text[]) AS v (tenant, key)
		JOIN idempotency_keys k ON k.tenant_id = v.tenant AND k.key = v.key`,
		args[:2],
		pg.Each(func(k idempotencyKey) { b.owners[ownedKey{k.TenantID, k.Key}] = k }),
	)
}

// settleKeys makes replays of those whose keys others have.
func (b *batch) settleKeys() {
	for _, p := range b.open() {
		if p.IdempotencyKey == "" {
			continue
		}
		switch owner, found := b.owners[ownedKey{p.TenantID, p.IdempotencyKey}]; {
		case !found:
			p.err = errKeyGone
		case owner.JobID != p.answer():
			p.replay = &owner
		}
	}
}

// keys returns the keys in one order for all groups, so that two of them cannot wait for each other.
func (b *batch) keys() []idempotencyKey {
	var keys []idempotencyKey
	for _, p := range b.group {
		if p.IdempotencyKey != "" {
			keys = append(keys, p.key())
		}
	}
	slices.SortFunc(keys, func(x, y idempotencyKey) int {
		return cmp.Or(cmp.Compare(x.TenantID, y.TenantID), cmp.Compare(x.Key, y.Key))
	})
	return keys
}

// releaseKeys gives back the keys of submissions that were not carried out: the same request may be made again.
func (b *batch) releaseKeys() error {
	for _, p := range b.group {
		if p.IdempotencyKey == "" || p.err == nil && !p.out.Existing {
			continue
		}
		err := pg.Enqueue(
			pg.Build(b.tx).Where("tenant_id = ? AND key = ? AND job_id = ?", p.TenantID, p.IdempotencyKey, p.answer()).
				Delete(&idempotencyKey{}),
			nil,
		)
		if err != nil {
			return err
		}
	}
	return nil
}

// JobOfKey returns the id of the job that was submitted under a tenant's idempotency key, or ErrNotFound.
func (s *Store) JobOfKey(ctx context.Context, tenantID, key string) (string, error) {
	var k idempotencyKey
	err := s.db.WithContext(ctx).Where("tenant_id = ? AND key = ?", tenantID, key).Take(&k).Error
	return k.JobID, notFound(err)
}
