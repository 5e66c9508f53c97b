package timetable

import (
	"errors"
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
		next := times.Next(at)
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
		times, err := Of(s)
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
		if got := i.Next(anchor.Add(after)).Sub(anchor); got != want {
			t.Errorf("after %v it is due at %v, want %v", after, got, want)
		}
	}
}
