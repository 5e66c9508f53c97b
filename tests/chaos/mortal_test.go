//go:build chaos

package chaos

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

// checkDue is what the timeouts of sandboxes promise.
const checkDue = "sandboxes end when they are due"

// life is how sandboxes end by themselves.
type life struct {
	wish   object
	reason string        // of their end
	least  time.Duration // from their start to it
}

// lives are what sandboxes' labels name.
func lives() map[string]life {
	return map[string]life{
		"timeout":  {object{"timeout_seconds": 4}, "timeout", 4 * time.Second},
		"pause":    {object{"timeout_seconds": 3, "on_timeout": "pause", "paused_timeout_seconds": 3}, "paused_timeout", 6 * time.Second},
		"idle":     {object{"idle_timeout_seconds": 3}, "idle", 3 * time.Second},
		"lifetime": {object{"max_lifetime_seconds": 5}, "max_lifetime", 5 * time.Second},
		"phoenix":  {object{"timeout_seconds": 12, "on_lost": "recreate"}, "timeout", 12 * time.Second},
	}
}

// lateness is how long after its time a sandbox may end: as long as a few faults after each other are felt. Idleness counts only when
// PostgreSQL has been there for four leases.
const lateness = 15 * lease

// mortal is a user whose sandboxes end by themselves.
func (c *client) mortal(ctx, load context.Context) error {
	kinds := []string{"timeout", "pause", "idle", "lifetime", "phoenix"}
	for n := 0; load.Err() == nil; n++ {
		kind := kinds[n%len(kinds)]
		wish := maps.Clone(lives()[kind].wish)
		maps.Copy(wish, object{"memory_mb": 64, "disk_mb": 16, "labels": object{"life": kind}})
		b, err := c.box(ctx, wish)
		if err != nil {
			return err
		}
		if b != nil {
			o := &op{what: "exec", stdout: "alive\n"}
			if _, err := c.onJob(ctx, b, o, "exec", object{"command": "echo alive"}); err != nil {
				return err
			}
		}
		_ = pass(load, time.Second) // the load may end
	}
	return nil
}

// mortalRow is such a sandbox as PostgreSQL has it.
type mortalRow struct {
	ID, Life, State, Reason, ReplacedBy string
	Recreations                         int
	Ran                                 bool // or else it was due before it had been made
	CreatedAt                           time.Time
	StartedAt, EndedAt                  *time.Time
}

func (m mortalRow) String() string {
	text := fmt.Sprintf("%s (%s) is %s because of %q", m.ID, m.Life, m.State, m.Reason)
	for what, at := range map[string]*time.Time{"started": m.StartedAt, "ended": m.EndedAt} {
		if at != nil {
			text += fmt.Sprintf(", %s %s", what, at.UTC().Format("15:04:05.000"))
		}
	}
	return text
}

func readMortals(ctx context.Context, conn *pgx.Conn, h *history) (err error) {
	h.mortals, err = rows[mortalRow](ctx, conn, `SELECT id, labels->>'life' AS life, state, coalesce(end_reason, '') AS reason,
		coalesce(replaced_by, '') AS replaced_by, recreations, created_at, started_at, ended_at,
		EXISTS (SELECT 1 FROM events e WHERE e.sandbox_id = sandboxes.id AND event = 'sandbox.running') AS ran FROM sandboxes WHERE labels->>'life' <> '' ORDER BY id`)
	return err
}

// perish waits until all sandboxes that end by themselves have done so.
func (r *run) perish(ctx context.Context, t *trial) {
	err := eventually(ctx, 2*settling, "sandboxes whose time has come have ended", func() (bool, string) {
		h, err := readHistory(ctx, r.sys.postgres.DSN())
		if err != nil {
			return false, err.Error()
		}
		var left []string
		for _, m := range h.mortals {
			if m.EndedAt == nil {
				left = append(left, m.String())
			}
		}
		return len(left) == 0, strings.Join(left, "; ")
	})
	if err != nil {
		t.find(checkDue, "%v", err)
	}
}

// dues looks at when and why sandboxes have ended.
func (t *trial) dues() {
	ended := map[string]int{}
	for _, m := range t.h.mortals {
		if m.EndedAt == nil {
			continue // found already
		}
		if m.State == "lost" && m.Life == "phoenix" && m.ReplacedBy == "" && m.Recreations < 5 {
			t.find(checkDue, "nothing has taken the place of %v", m)
		}
		if m.State != "deleted" || m.StartedAt == nil {
			continue
		}
		ended[m.Life]++
		like, began := lives()[m.Life], *m.StartedAt
		if s, limited := like.wish["timeout_seconds"].(int); limited && !m.Ran { // what is not made yet cannot be paused
			like.reason, like.least, began = "timeout", time.Duration(s)*time.Second, m.CreatedAt
		}
		switch took := m.EndedAt.Sub(began); {
		case m.Reason != like.reason:
			t.find(checkDue, "%v, which should have been %q", m, like.reason)
		case took < like.least:
			t.find(checkDue, "%v, %v too early", m, like.least-took)
		case took > like.least+lateness:
			t.find(checkDue, "%v, %v after its time", m, took-like.least)
		}
	}
	for kind := range lives() {
		if len(t.h.mortals) >= 3*len(lives()) && ended[kind] == 0 {
			t.find(checkDue, "of %d sandboxes none has ended as %q", len(t.h.mortals), kind)
		}
	}
}
