package models

import (
	"context"
	"math"

	"sandyard/models/pg"
)

// userState is what decides, beside the tenant's state, whether a user's new sandboxes are let in.
type userState struct {
	Quota
	Standing

	ID string
}

// userLimit begins the names of limits that one user has.
const userLimit = "user_"

// readUsers reads, behind the locks of their tenants, what the admission of the sandboxes of these users depends on.
func (b *batch) readUsers(users []string) error {
	b.users = map[string]*userState{}
	if len(users) == 0 {
		return nil
	}
	return pg.Enqueue(pg.Build(b.tx).Raw(`SELECT u.id, u.max_sandboxes, u.max_cpus, u.max_memory_mib, s.*
		FROM users u, LATERAL (`+standing+`tenant_id = u.tenant_id AND user_id = u.id) s
		WHERE u.id = ANY (?::text[])`, idArray(users)), pg.Each(func(u userState) { b.users[u.ID] = &u }))
}

// refuseSandbox says which limit of its tenant or its user a new sandbox meets, and counts one that meets none.
func (b *batch) refuseSandbox(t *tenantState, box *Sandbox) error {
	var user *userState
	if box.UserID != nil {
		user = b.users[*box.UserID]
	}
	if err := t.refusal("", t.Standing, box); err != nil {
		return err
	}
	if user == nil {
		return nil
	}
	return user.refusal(userLimit, user.Standing, box)
}

// stand counts a sandbox that was let in.
func (b *batch) stand(t *tenantState, box *Sandbox) {
	t.add(box)
	if box.UserID != nil && b.users[*box.UserID] != nil {
		b.users[*box.UserID].add(box)
	}
}

// actsFor are the actors who act for a user, whom the parameter names: logins, keys and schedules.
const actsFor = `ARRAY(SELECT @user UNION ALL SELECT id FROM api_keys WHERE user_id = @user
	UNION ALL SELECT 'schedule:' || id FROM schedules WHERE user_id = @user)`

// WaitingOf counts a user's queued jobs as Waiting counts a tenant's. A user without a limit is not counted.
func (s *Store) WaitingOf(ctx context.Context, user string) (Waiting, error) {
	w := Waiting{MaxQueued: math.MaxInt, MaxQueuedBytes: math.MaxInt}
	var most struct {
		Rate Rate `gorm:"embedded"`

		MaxQueued *int
	}
	err := s.db.WithContext(ctx).
		Raw("SELECT max_queued, job_rate, job_burst FROM users WHERE id = ?", user).
		Scan(&most).
		Error
	if w.Rate = most.Rate; err != nil || most.MaxQueued == nil {
		return w, err
	}
	w.MaxQueued = *most.MaxQueued
	w.Jobs, err = s.queuedOf(ctx, user)
	return w, err
}

// queuedOf counts a user's queued jobs.
func (s *Store) queuedOf(ctx context.Context, user string) (n int, err error) {
	return scanned[int](s.db.WithContext(ctx).Raw(`SELECT count(*) FROM jobs
		WHERE tenant_id = (SELECT tenant_id FROM users WHERE id = @user) AND state = 'queued'
		AND NOT (ready_at IS NULL AND `+left+`) AND actor = ANY (`+actsFor+`)`, map[string]any{"user": user}))
}
