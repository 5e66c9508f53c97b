//go:build attack

package attack

import (
	"context"
	"fmt"
	"time"
)

// hungRedis has Redis answer nobody for a while.
func hungRedis(s *stage) {
	rdb := s.cache()
	defer rdb.Close()
	must(s.t, rdb.Do(context.Background(), "CLIENT", "PAUSE", "4000", "ALL").Err())
	worst := time.Duration(0)
	for range 10 {
		begun := time.Now()
		r := s.neighbour.do(request{method: "POST", path: "/v1/sandboxes/" + s.neighbour.heart + "/exec", body: object{"command": "true"}, patience: 10 * time.Second})
		if !r.ok() {
			s.breach("a submission while Redis hangs: %v", r)
		}
		worst = max(worst, time.Since(begun))
		if time.Since(begun) > 3*time.Second {
			s.breach("a submission waits for Redis to answer again")
			break
		}
	}
	s.reached("submissions while Redis answers nobody: at most %d ms", worst.Milliseconds())
}

// strangers come without a valid key.
func strangers(s *stage) {
	const many = 2000
	queries := func() int {
		_, err := s.db.Exec(s.t.Context(), "SELECT pg_stat_clear_snapshot()")
		must(s.t, err)
		return s.count(s.t, "SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = current_database()")
	}
	before, begun := queries(), time.Now()
	answers := &tally{}
	stranger := &caller{rig: s.rig, http: s.intruder.http}
	s.atOnce(8, func(n int) {
		for i := n; i < many; i += 8 {
			key := fmt.Sprintf("sy_%040x", i)
			path := []string{"/v1/jobs", "/sandboxes", "/metrics", "/monitor/"}[i%4]
			answers.add(stranger.do(request{method: "GET", path: path, header: []string{"Authorization", "Bearer " + key, "X-API-Key", key}}))
		}
	})
	made := queries() - before
	if made > many/2 {
		s.breach("%d requests with unknown keys cost %d transactions", many, made)
	}
	s.reached("%d requests with unknown keys in %.1f s: %v; %d transactions of everybody", many, time.Since(begun).Seconds(), answers, made)
}

// poison leaves a value that the scheduler cannot write where it belongs.
func poison(s *stage) {
	answers := &tally{}
	for _, size := range []int{300, 3000, 8000, 15000} {
		long := randomText(size)
		answers.add(s.intruder.post("/sandboxes", object{"templateID": "python", "timeout": 30, "metadata": object{"user": long}}))
		answers.add(s.intruder.post("/v1/run?wait=10s", object{"command": "true", "labels": object{"user": long}, "memory_mb": 64, "disk_mb": 8}))
	}
	latest := s.moment()
	s.eventuallyBreach(30*time.Second, "usage is not folded any more", func() bool {
		return s.count(s.t, "SELECT count(*) FROM usage_facts WHERE at < $1", latest) == 0
	})
	s.reached("labels user of up to 15 KB: %v", answers)
}

// moment is the database's time.
func (s *stage) moment() time.Time {
	var now time.Time
	must(s.t, s.db.QueryRow(s.t.Context(), "SELECT now()").Scan(&now))
	return now
}

func (s *stage) eventuallyBreach(limit time.Duration, what string, ok func() bool) {
	deadline, tick := time.NewTimer(limit), time.NewTicker(100*time.Millisecond)
	defer deadline.Stop()
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-deadline.C:
			s.breach("%s after %v", what, limit)
			return
		}
	}
}
