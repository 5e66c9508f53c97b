package scheduler

import (
	"slices"
	"testing"
	"time"

	"sandyard/models"
)

// plan is what becomes of an interval of ten seconds that was due first so long ago.
func plan(s models.Schedule, ago time.Duration) (runs, skipped int, t models.Tick) {
	every := int64(10_000)
	now := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	first := now.Add(-ago)
	s.IntervalMS, s.Anchor, s.NextDue = &every, first.Add(-10*time.Second), &first
	t = planTick(models.DueSchedule{Schedule: s, Now: now})
	for _, r := range t.Runs {
		if r.State == models.RunPending {
			runs++
		} else {
			skipped += r.Ticks
		}
	}
	return runs, skipped, t
}

// TestImmenseOutages: however many times are looked at together, all of them are accounted for, and the newest run.
func TestImmenseOutages(t *testing.T) {
	t.Parallel()
	every := int64(10_000)
	now := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	for missed, want := range map[string]int{models.MissedSkip: 1, models.MissedRunOnce: 1, models.MissedRunAll: 100} {
		for _, times := range []int{9_999, 10_000, 10_001, 10_002, 10_050, 10_100, 10_101, 19_900, 20_000, 30_000, 100_000} {
			first := now.Add(time.Duration(1-times) * 10 * time.Second)
			s := models.Schedule{IntervalMS: &every, Anchor: first.Add(-10 * time.Second), NextDue: &first, Missed: missed, MaxCatchUp: 100}
			runs, skipped, pieces := 0, 0, 0
			var rows []time.Time
			for next := &first; !next.After(now); pieces++ {
				s.NextDue = next
				tick := planTick(models.DueSchedule{Schedule: s, Now: now})
				if !tick.Next.After(tick.Last) || tick.Disable != "" {
					t.Fatalf("%s, %d times: after %v comes %v %s", missed, times, tick.Last, tick.Next, tick.Disable)
				}
				for _, r := range tick.Runs {
					rows = append(rows, r.DueAt)
					if r.State == models.RunPending {
						runs++
					} else {
						skipped += r.Ticks
					}
				}
				next = tick.Next
			}
			ascending := slices.IsSortedFunc(rows, func(a, b time.Time) int {
				if a.Equal(b) {
					return 1 // two rows for one due time
				}
				return a.Compare(b)
			})
			if runs != want || skipped != times-want || !ascending || !rows[len(rows)-1].Equal(now) {
				t.Errorf("%s, %d times: %d run and %d are skipped in %d pieces, the last is %v, in order: %t", missed, times, runs, skipped, pieces, rows[len(rows)-1], ascending)
			}
		}
	}
}

func TestMissedTimes(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		missed        string
		ago           time.Duration
		runs, skipped int
	}{
		{models.MissedSkip, 0, 1, 0},
		{models.MissedSkip, 9 * time.Second, 1, 0},
		{models.MissedSkip, time.Hour, 1, 360},
		{models.MissedRunOnce, time.Hour, 1, 360},
		{models.MissedRunAll, time.Hour, 5, 356},
		{models.MissedRunAll, 30 * time.Second, 4, 0},
		{models.MissedRunAll, 40 * time.Second, 5, 0},
		{models.MissedRunAll, 50 * time.Second, 5, 1},
		{models.MissedRunAll, 10_000 * 10 * time.Second, 0, largestTickBatch - 5}, // the rest in the next piece
	} {
		runs, skipped, tick := plan(models.Schedule{Missed: c.missed, MaxCatchUp: 5, Overlap: models.OverlapSkip}, c.ago)
		if runs != c.runs || skipped != c.skipped {
			t.Errorf("%s, due %v ago: %d run and %d are skipped, want %d and %d", c.missed, c.ago, runs, skipped, c.runs, c.skipped)
		}
		seen := map[time.Time]bool{}
		for _, r := range tick.Runs {
			if seen[r.DueAt] {
				t.Errorf("%s: two rows for %v", c.missed, r.DueAt)
			}
			seen[r.DueAt] = true
		}
	}
	every := int64(86_400_000)
	day := models.Schedule{IntervalMS: &every, Missed: models.MissedSkip, MaxCatchUp: 5}
	now := time.Now()
	for ago, want := range map[time.Duration]string{50 * time.Second: models.RunPending, 70 * time.Second: models.RunSkipped} {
		first := now.Add(-ago)
		day.Anchor, day.NextDue = first.Add(-24*time.Hour), &first
		if got := planTick(models.DueSchedule{Schedule: day, Now: now}).Runs; len(got) != 1 || got[0].State != want {
			t.Errorf("due once, %v ago: %+v, want it %s", ago, got, want)
		}
	}
}
