package jobs

import (
	"errors"
	"slices"
	"testing"
	"time"

	"sandyard/jobs/kind"
	"sandyard/models"
)

// dues lists the due times of a cron after a moment, on the clock of the zone.
func dues(t *testing.T, text, zone, after string, n int) []string {
	t.Helper()
	times, err := parseCron(text, zone)
	if err != nil {
		t.Fatal(err)
	}
	at, err := time.Parse(time.RFC3339, after)
	if err != nil {
		t.Fatal(err)
	}
	loc, err := time.LoadLocation(zone)
	if err != nil {
		t.Fatal(err)
	}
	var list []string
	for range n {
		next := times.next(at)
		if !next.After(at) {
			t.Fatalf("%s: %v is not after %v", text, next, at)
		}
		at = next
		list = append(list, at.In(loc).Format("01-02T15:04-0700"))
	}
	return list
}

func TestCronGoesByTheWallsClock(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, cron, zone, after string
		want                    []string
	}{
		{
			"every day at three in the zone", "0 3 * * *", "Europe/Berlin", "2026-03-27T12:00:00Z",
			[]string{"03-28T03:00+0100", "03-29T03:00+0200", "03-30T03:00+0200"},
		},
		{
			"a time in the gap is due once, right after it", "30 2 * * *", "Europe/Berlin", "2026-03-27T12:00:00Z",
			[]string{"03-28T02:30+0100", "03-29T03:00+0200", "03-30T02:30+0200"},
		},
		{
			"many times in the gap, and one right after it, are due once", "*/20 2,3 * * *", "Europe/Berlin", "2026-03-29T00:30:00Z",
			[]string{"03-29T03:00+0200", "03-29T03:20+0200", "03-29T03:40+0200", "03-30T02:00+0200"},
		},
		{
			"a time that comes twice is due the first time", "30 2 * * *", "Europe/Berlin", "2026-10-24T12:00:00Z",
			[]string{"10-25T02:30+0200", "10-26T02:30+0100"},
		},
		{
			"times after the repeated hour", "*/30 2,3 * * *", "Europe/Berlin", "2026-10-24T23:00:00Z",
			[]string{"10-25T02:00+0200", "10-25T02:30+0200", "10-25T03:00+0100", "10-25T03:30+0100", "10-26T02:00+0100"},
		},
		{
			"asked within the repeated hour", "15 2 * * *", "Europe/Berlin", "2026-10-25T01:05:00Z",
			[]string{"10-26T02:15+0100"},
		},
		{
			"every hour means every real hour, forward", "30 * * * *", "America/New_York", "2026-03-08T06:00:00Z",
			[]string{"03-08T01:30-0500", "03-08T03:30-0400", "03-08T04:30-0400"},
		},
		{
			"every hour means every real hour, back", "30 * * * *", "America/New_York", "2026-11-01T05:00:00Z",
			[]string{"11-01T01:30-0400", "11-01T01:30-0500", "11-01T02:30-0500"},
		},
		{
			"half an hour of summer", "45 1 * * *", "Australia/Lord_Howe", "2026-04-04T00:00:00Z",
			[]string{"04-05T01:45+1100", "04-06T01:45+1030"},
		},
		{
			"the gap at midnight", "0 0 * * *", "Africa/Cairo", "2026-04-23T00:00:00Z",
			[]string{"04-24T01:00+0300", "04-25T00:00+0300"},
		},
		{
			"day of month or of week", "0 12 13 * 5", "UTC", "2026-03-01T00:00:00Z",
			[]string{"03-06T12:00+0000", "03-13T12:00+0000", "03-20T12:00+0000"},
		},
		{"a leap day", "0 0 29 2 *", "UTC", "2026-03-01T00:00:00Z", []string{"02-29T00:00+0000"}},
		{"a name", "@daily", "Asia/Tokyo", "2026-03-01T00:00:00Z", []string{"03-02T00:00+0900"}},
	} {
		got := dues(t, c.cron, c.zone, c.after, len(c.want))
		for i, want := range c.want {
			if got[i] != want {
				t.Errorf("%s: due at %v, want %v", c.name, got, c.want)
				break
			}
		}
	}
}

func TestTimetablesThatAreRefused(t *testing.T) {
	t.Parallel()
	text := func(s string) *string { return &s }
	ms := func(n int64) *int64 { return &n }
	for what, s := range map[string]models.Schedule{
		"neither":         {},
		"both":            {Cron: text("* * * * *"), IntervalMS: ms(1000)},
		"four fields":     {Cron: text("* * * *"), TimeZone: "UTC"},
		"seconds":         {Cron: text("* * * * * *"), TimeZone: "UTC"},
		"hour 24":         {Cron: text("0 24 * * *"), TimeZone: "UTC"},
		"no such day":     {Cron: text("0 0 30 2 *"), TimeZone: "UTC"},
		"a zone in it":    {Cron: text("TZ=UTC"), TimeZone: "UTC"},
		"an interval":     {Cron: text("@every 5m"), TimeZone: "UTC"},
		"empty":           {Cron: text(""), TimeZone: "UTC"},
		"no such zone":    {Cron: text("* * * * *"), TimeZone: "Mars/Olympus"},
		"a path":          {Cron: text("* * * * *"), TimeZone: "../../etc/passwd"},
		"the local zone":  {Cron: text("* * * * *"), TimeZone: "Local"},
		"too often":       {IntervalMS: ms(999)},
		"hardly ever":     {IntervalMS: ms(1 << 50)},
		"backwards":       {IntervalMS: ms(-5000)},
		"a named nothing": {Cron: text("@reboot"), TimeZone: "UTC"},
	} {
		times, err := timetableOf(s)
		if wrong := (*kind.InvalidError)(nil); !errors.As(err, &wrong) {
			t.Errorf("%s: %v, %v", what, times, err)
		}
	}
}

func TestIntervalsDoNotDrift(t *testing.T) {
	t.Parallel()
	anchor := time.Date(2026, 1, 1, 0, 0, 0, 250e6, time.UTC)
	i := interval{every: 7 * time.Second, anchor: anchor}
	for after, want := range map[time.Duration]time.Duration{
		-time.Hour: 7 * time.Second, 0: 7 * time.Second, 6999 * time.Millisecond: 7 * time.Second,
		7 * time.Second: 14 * time.Second, 100 * time.Second: 105 * time.Second,
	} {
		if got := i.next(anchor.Add(after)).Sub(anchor); got != want {
			t.Errorf("after %v it is due at %v, want %v", after, got, want)
		}
	}
}

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
