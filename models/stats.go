package models

import (
	"context"
)

// QueueStat counts jobs of one kind in one state.
type QueueStat struct {
	Kind  string
	State JobState
	Count int
}

// Stats is what the tables say of the load right now.
type Stats struct {
	Jobs          []QueueStat // that have not ended
	OldestReady   float64     // seconds that the oldest job which may run has waited
	Backlog       int         // jobs that may run and wait for room in their tenants' windows
	Sandboxes     map[SandboxState]int
	Nodes         int // alive
	DueDeliveries int
	TimeoutLag    float64 // seconds that the most DueTimeout().cond sandbox has waited for its timeout to be fired
	ScheduleLag   float64 // seconds that the most DueTimeout().cond schedule has waited to be fired
	RefusedUsage  int     // rows of usage that could not be added to the hours
}

// Stats reads the load.
func (s *Store) Stats(ctx context.Context) (Stats, error) {
	var st Stats
	db := s.db.WithContext(ctx)
	err := db.Model(&Job{}).Select("kind, state, count(*) AS count").Where("state IN ('queued', 'running')").
		Group("kind, state").Scan(&st.Jobs).Error
	if err != nil {
		return st, err
	}
	err = db.Raw(`SELECT coalesce(extract(epoch FROM now() - min(ready_at)), 0) AS oldest_ready, count(*) FILTER (WHERE dispatched_at IS NULL) AS backlog
		FROM jobs WHERE state = 'queued' AND ready_at <= now()`).
		Row().
		Scan(&st.OldestReady, &st.Backlog)
	if err != nil {
		return st, err
	}
	if st.Sandboxes, err = s.sandboxStates(ctx); err != nil {
		return st, err
	}
	for _, one := range []struct {
		query string
		into  any
	}{
		{`SELECT count(*) FROM nodes WHERE lease_until > now()`, &st.Nodes},
		{`SELECT coalesce(extract(epoch FROM now() - min(expires_at)), 0) FROM sandboxes
			WHERE ended_at IS NULL AND ` + DueTimeout().cond, &st.TimeoutLag},
		{`SELECT coalesce(extract(epoch FROM now() - min(next_due)), 0) FROM schedules
			WHERE state = 'active' AND next_due <= now()`, &st.ScheduleLag},
		{`SELECT count(*) FROM usage_refused`, &st.RefusedUsage},
		{`SELECT count(*) FROM deliveries WHERE state = 'pending' AND next_attempt_at <= now()`, &st.DueDeliveries},
	} {
		if err := db.Raw(one.query).Scan(one.into).Error; err != nil {
			return st, err
		}
	}
	return st, nil
}

func (s *Store) sandboxStates(ctx context.Context) (map[SandboxState]int, error) {
	var rows []struct {
		State SandboxState
		Count int
	}
	err := s.db.WithContext(ctx).Model(&Sandbox{}).Select("state, count(*) AS count").
		Where("ended_at IS NULL").Group("state").Scan(&rows).Error
	out := map[SandboxState]int{}
	for _, r := range rows {
		out[r.State] = r.Count
	}
	return out, err
}
