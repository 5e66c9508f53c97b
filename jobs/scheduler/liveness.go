package scheduler

import (
	"context"
	"time"
)

// Nobody is heard of while the database is away, and when its clock is set forth or its machine has slept everybody
// seems to have been silent for long. So silence counts only when the database has been there for a while: whoever
// lives is heard of in it. And it counts as of the moment at which we knew that last.
const (
	// steadyLeases is that while, in the longest lease of a worker, for what cannot be undone. A worker beats three times
	// in one, and may have to connect again.
	steadyLeases = 3
	// steadyLeast is for short leases: traffic to a sandbox is written down within it (web/edge).
	steadyLeast = 15 * time.Second
)

// silence returns a moment of the database's as of which everybody who was not heard of may be taken for gone, or false
// while nobody may.
func (s *Scheduler) silence() (at time.Time, counts bool) {
	return s.silentFor(steadyLeases, steadyLeast)
}

// briefSilence is silence for what costs a living worker little: it has had the time to beat.
func (s *Scheduler) briefSilence() (at time.Time, counts bool) {
	return s.silentFor(1, 0)
}

func (s *Scheduler) silentFor(leases int64, least time.Duration) (at time.Time, counts bool) {
	told := s.leader.Heard()
	enough := max(time.Duration(leases*told.LongestMS)*time.Millisecond, least)
	if s.steady > 0 {
		enough = s.steady
	}
	return told.Now, told.Ours && told.Now.Sub(told.SteadySince) >= enough
}

// tellPatience tells when silence begins to count and when it does not any more.
func (s *Scheduler) tellPatience(ctx context.Context, counts bool) {
	if s.patient != counts {
		return
	}
	if s.patient = !counts; s.patient {
		s.log.WarnContext(ctx, "database outage, clock step or no leader: dead and idle checks suspended")
		return
	}
	s.log.InfoContext(ctx, "dead and idle checks resumed")
}
