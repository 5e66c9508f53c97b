//go:build attack

package attack

import (
	"context"
	"strings"
	"time"
)

// backlogs queues thousands of jobs and ends them all with one forced delete.
func backlogs(s *stage) {
	const many = 3000
	box := s.intruder.own(s.t)
	answers := &tally{}
	s.intruder.post("/v1/sandboxes/"+box+"/exec", object{"command": "sleep 60"})
	s.atOnce(16, func(n int) {
		for i := n; i < many; i += 16 {
			answers.add(s.intruder.post("/v1/sandboxes/"+box+"/exec", object{"command": "true"}))
		}
	})
	gone := s.intruder.do(request{method: "DELETE", path: "/v1/sandboxes/" + box + "?force=true&wait=30s", patience: 40 * time.Second})
	if !gone.ok() {
		s.breach("the forced delete behind %d jobs: %v", many, gone)
	}
	s.reached("%d jobs behind a sleep: %v; their forced delete: %d", many, answers, gone.status)
}

// lockedRows has a session hold a sandbox's row while the intruder submits to it, as a process does that was stopped
// inside a transaction.
func lockedRows(s *stage) {
	box := s.intruder.own(s.t)
	ctx := context.Background()
	tx, err := s.db.Begin(ctx)
	must(s.t, err)
	defer tx.Rollback(ctx) //nolint:errcheck // it has ended
	_, err = tx.Exec(ctx, "SELECT 1 FROM sandboxes WHERE id = $1 FOR UPDATE", box)
	must(s.t, err)
	answers := &tally{}
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.atOnce(20, func(int) {
			answers.add(s.intruder.do(request{method: "POST", path: "/v1/sandboxes/" + box + "/exec", body: object{"command": "true"}, patience: 20 * time.Second}))
		})
	}()
	for range 20 {
		r := s.neighbour.do(request{
			method: "POST", path: "/v1/sandboxes/" + s.neighbour.heart + "/exec?wait=4s", body: object{"command": "true"}, patience: 5 * time.Second,
		})
		if !r.ok() {
			s.breach("a submission of the neighbour's waits for a row of the intruder's: %v", r)
			break
		}
	}
	must(s.t, tx.Rollback(ctx))
	<-done
	s.reached("20 submissions to a locked row: %v", answers)
}

// retries goes round the limit of the queue, and has the database keep what was sent once many times.
func retries(s *stage) {
	const limit, most = 25, 100
	s.limit("max_queued", limit)
	defer s.limit("max_queued", 10000)
	box := s.intruder.own(s.t)
	wrote := into[accepted](s.t, s.intruder.post("/v1/sandboxes/"+box+"/files/write?wait=30s", object{"path": "x", "content": randomText(6 << 20)}))
	small := into[accepted](s.t, s.intruder.post("/v1/sandboxes/"+box+"/exec?wait=30s", object{"command": "true"}))
	before := s.databaseSize()
	s.intruder.post("/v1/sandboxes/"+box+"/exec", object{"command": "sleep 60"})
	for what, id := range map[string]string{"a write of 6 MB": wrote.Job.ID, "a command": small.Job.ID} {
		answers := &tally{}
		for range most {
			answers.add(s.intruder.post("/v1/jobs/"+id+"/retry", nil))
		}
		if taken := answers.of("202"); taken > limit {
			s.breach("%d retries of %s are accepted where at most %d jobs may wait", taken, what, limit)
		}
		s.reached("retries of %s, %d jobs may wait: %v", what, limit, answers)
	}
	grown := (s.databaseSize() - before) >> 20
	if grown > 100 {
		s.breach("retries of one write of 6 MB made the database %d MB larger", grown)
	}
	s.reached("the database grew %d MB", grown)
}

// limit sets one of the intruder's, as an operator does.
func (s *stage) limit(column string, to int) {
	_, err := s.db.Exec(context.Background(), "UPDATE tenants SET "+column+" = $1 WHERE id = $2", to, other)
	must(s.t, err)
}

func (s *stage) databaseSize() int {
	return s.count(s.t, "SELECT pg_database_size(current_database())")
}

// stored queues bytes behind a command that runs, more than the tenant may have there.
func stored(s *stage) {
	const most = 100 << 20
	s.limit("max_queued_bytes", most)
	defer s.limit("max_queued_bytes", 1<<30)
	box := s.intruder.own(s.t)
	into[accepted](s.t, s.intruder.post("/v1/sandboxes/"+box+"/exec", object{"command": "sleep 90"}))
	before := s.databaseSize()
	answers := &tally{}
	content := randomText(11 << 20)
	for range 20 {
		answers.add(s.intruder.post("/v1/sandboxes/"+box+"/files/write", object{"path": "x", "content": content}))
	}
	if taken := answers.of("202") * len(content); taken > most {
		s.breach("%d MB wait in one queue, %d MB may", taken>>20, most>>20)
	}
	s.reached("20 writes of 11 MB behind a command, %d MB may wait: %v; the database grew %d MB", most>>20, answers, (s.databaseSize()-before)>>20)
}

// randomText is one that does not shrink.
func randomText(size int) string {
	const letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
	var b strings.Builder
	x := uint64(time.Now().UnixNano())
	for b.Len() < size {
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
		for i := range 10 {
			b.WriteByte(letters[x>>(6*i)&63])
		}
	}
	return b.String()[:size]
}
