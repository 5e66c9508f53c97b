// Package timetable says when schedules are due: by cron, on the clock of a time zone, or by intervals.
package timetable

import (
	"fmt"
	"strings"
	"time"
	_ "time/tzdata" // zones are the same on every machine, also where the system has none

	"github.com/robfig/cron/v3"

	"sandyard/jobs/kind"
	"sandyard/models"
)

// Timetable says when a schedule is due.
type Timetable interface {
	// Next is the first due time after t; zero = there is none.
	Next(t time.Time) time.Time
}

// longestInterval is the longest time between two due times.
const longestInterval = 365 * 24 * time.Hour

// minInterval is the shortest time between two due times.
const minInterval = time.Second

// Of reads a schedule's, or says as an *InvalidError what is wrong with it.
func Of(s models.Schedule) (Timetable, error) {
	switch {
	case (s.Cron == nil) == (s.IntervalMS == nil):
		return nil, kind.Invalid("cron", "give either cron or interval_seconds")
	case s.Cron == nil:
		every := time.Duration(*s.IntervalMS) * time.Millisecond
		if every < minInterval || every > longestInterval {
			return nil, kind.Invalid(
				"interval_seconds",
				"must be between %s and %s, not %s",
				kind.Plain(minInterval.Seconds()),
				kind.Plain(longestInterval.Seconds()),
				kind.Plain(every.Seconds()),
			)
		}
		return interval{every: every, anchor: s.Anchor}, nil
	}
	return parseCron(*s.Cron, s.TimeZone)
}

// interval is due every so often after its anchor, without drift.
type interval struct {
	every  time.Duration
	anchor time.Time
}

func (i interval) Next(t time.Time) time.Time {
	if t.Before(i.anchor) {
		return i.anchor.Add(i.every)
	}
	return i.anchor.Add((t.Sub(i.anchor)/i.every + 1) * i.every)
}

// cronTimes is due as five fields say of the clock on the wall of a zone.
//
// The parser's own idea of due times is asked only in UTC, which knows no gaps. Where the clock is set forward, times
// that do not exist are due once, right after the gap; where it is set back, times that come twice are due the first
// time. A cron with * as its hour means every real hour instead, so it is due again in the repeated one and not for the
// gap.
type cronTimes struct {
	fields   cron.Schedule
	zone     *time.Location
	allHours bool
}

func parseCron(text, zone string) (Timetable, error) {
	if zone == "" || zone == "Local" {
		return nil, kind.Invalid("time_zone", "is missing")
	}
	loc, err := time.LoadLocation(zone)
	if err != nil {
		return nil, kind.Invalid("time_zone", "%q is not an IANA time zone; use a name such as Europe/Berlin", zone)
	}
	const every = "@every"
	if strings.Contains(text, "=") || strings.HasPrefix(text, every) || len(text) > 256 {
		return nil, kind.Invalid(
			"cron",
			"must be five fields such as 30 3 * * 1-5, or @hourly, @daily, @weekly, @monthly, @yearly; set the zone in "+
				"time_zone, an interval in interval_seconds",
		)
	}
	parsed, err := cron.NewParser(
		cron.Minute | cron.Hour | cron.Dom | cron.Month | cron.Dow | cron.Descriptor,
	).Parse(
		strings.TrimSpace(text),
	)
	if err != nil {
		return nil, kind.Invalid("cron", "%v; use five fields: minute, hour, day of month, month, day of week", err)
	}
	fields, ok := parsed.(*cron.SpecSchedule)
	if !ok {
		return nil, fmt.Errorf("unexpected cron schedule %T", parsed)
	}
	fields.Location = time.UTC
	const star = 1 << 63 // the parser's mark for *
	c := cronTimes{fields: fields, zone: loc, allHours: fields.Hour&star != 0}
	if c.Next(time.Now()).IsZero() {
		return nil, kind.Invalid("cron", "%q is never due", text)
	}
	return c, nil
}

// Next walks from one change of the zone's offset to the next: between two of them the wall's clock runs evenly.
func (c cronTimes) Next(t time.Time) time.Time {
	const changes = 100 // more than any zone has in the years that the parser looks ahead
	at, from := t, t
	for range changes {
		_, end := at.In(c.zone).ZoneBounds()
		shift := c.offset(at)
		wall := c.fields.Next(c.after(at, from.UTC().Add(shift)))
		if wall.IsZero() {
			return time.Time{}
		}
		due := wall.Add(-shift)
		if end.IsZero() || due.Before(end) {
			return due
		}
		if wall.Before(end.UTC().Add(c.offset(end))) && !c.allHours {
			return end.UTC() // in the gap
		}
		at, from = end, end.Add(-1)
	}
	return time.Time{}
}

// after is from where to look on the wall's clock: not into an hour that comes a second time.
func (c cronTimes) after(at, wall time.Time) time.Time {
	start, _ := at.In(c.zone).ZoneBounds()
	if start.IsZero() || c.allHours {
		return wall
	}
	seen := start.UTC().Add(c.offset(start.Add(-1))).Add(-1) // on the wall's clock before it was set
	if seen.After(wall) {
		return seen
	}
	return wall
}

func (c cronTimes) offset(t time.Time) time.Duration {
	_, seconds := t.In(c.zone).Zone()
	return time.Duration(seconds) * time.Second
}
