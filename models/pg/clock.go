package pg

import (
	"context"
	"sync"
	"time"
)

const (
	clockEvery    = time.Minute // how often the database is asked what time it is
	clockPatience = time.Second
	clockPause    = 5 * time.Second // between questions that are not answered
	clockJump     = time.Second     // a machine whose clock was set, or that was asleep, asks at once
)

// clock tells the database's time from its last answer and what has passed since, by this machine's steady clock.
type clock struct {
	mu    sync.Mutex
	here  time.Time // when it answered
	there time.Time // what it said; zero = it never has
	asked time.Time
}

// Now is what time it is in the database. Moments that are written down, or meant for other processes, are told and
// compared by it alone: machines' clocks may differ by any amount. Where the database has never said, it is this
// machine's time.
func (d *DB) Now(ctx context.Context) time.Time {
	if d.clock.due(time.Now()) {
		d.setClock(ctx)
	}
	return d.clock.now(time.Now())
}

// Ahead is how much later it is in the database than here.
func (d *DB) Ahead(ctx context.Context) time.Duration {
	here := time.Now()
	return d.Now(ctx).Sub(here)
}

// setClock asks the database. An answer is taken for one of the middle of the time that it took.
func (d *DB) setClock(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, clockPatience)
	defer cancel()
	before := time.Now()
	var there time.Time
	if d.gorm.WithContext(ctx).Raw("SELECT now()").Scan(&there).Error == nil {
		d.clock.set(before.Add(time.Since(before)/2), there)
	}
}

func (c *clock) set(here, there time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.here, c.there = here, there.UTC()
}

// due says whether the caller is to ask the database. The others go by its last answer meanwhile.
func (c *clock) due(now time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	steady := now.Sub(c.here)
	jump := (now.Round(0).Sub(c.here.Round(0)) - steady).Abs()
	if now.Sub(c.asked) < clockPause || !c.there.IsZero() && steady < clockEvery && jump < clockJump {
		return false
	}
	c.asked = now
	return true
}

func (c *clock) now(now time.Time) time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.there.IsZero() {
		return now.UTC()
	}
	return c.there.Add(now.Sub(c.here))
}
