//go:build chaos

package chaos

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

// checkSpools is what guests promise of commands whose ends are written down.
const checkSpools = "no output of ended commands is left in sandboxes"

// emptied waits until guests keep nothing more of commands that have ended: of one at least, also where the faults have left
// no sandbox.
func (r *run) emptied(ctx context.Context, t *trial) error {
	if err := t.clients[0].lastCommand(ctx); err != nil {
		return err
	}
	r.quiet(ctx, t)
	looked := 0
	err := eventually(ctx, 2*settling, "guests have dropped the output of ended commands", func() (bool, string) {
		ended, err := r.endedExecs(ctx)
		if err != nil {
			return false, err.Error()
		}
		var left []string
		if looked, left, err = t.clients[0].keptOf(ctx, ended); err != nil {
			return false, err.Error()
		}
		return len(left) == 0, fmt.Sprintf("%d of %d: %s", len(left), looked, strings.Join(left, " "))
	})
	if err != nil {
		t.find(checkSpools, "%v", err)
	}
	if looked == 0 {
		t.find(checkTried, "no command has ended in a sandbox that still runs")
	}
	r.logf("%5.1fs the guests keep nothing of the %d commands that have ended in sandboxes that run", time.Since(r.began).Seconds(), looked)
	return nil
}

func (c *client) lastCommand(ctx context.Context) error {
	var b *box
	for b == nil { // clients do not insist on every answer
		var err error
		if b, err = c.box(ctx, object{"memory_mb": 64}); err != nil {
			return err
		}
	}
	_, err := c.onJob(ctx, b, &op{what: "exec", stdout: "last\n"}, "exec", object{"command": "echo last"})
	return err
}

// endedExec is a command, of none that runs in the background, whose end is written down.
type endedExec struct{ ID, SandboxID string }

func (r *run) endedExecs(ctx context.Context) ([]endedExec, error) {
	conn, err := pgx.Connect(ctx, r.sys.postgres.DSN())
	if err != nil {
		return nil, err
	}
	defer conn.Close(ctx)
	return rows[endedExec](ctx, conn, `SELECT j.id, j.sandbox_id FROM jobs j JOIN sandboxes s ON s.id = j.sandbox_id
		WHERE s.state = 'running' AND j.kind = 'exec' AND j.finished_at IS NOT NULL AND j.attempt > 0
		AND j.args->'background' IS DISTINCT FROM 'true'::jsonb ORDER BY j.id`)
}

// keptOf asks their guests for the outputs. It returns how many of the commands these know, and the ids of those whose output
// is still there.
func (c *client) keptOf(ctx context.Context, ended []endedExec) (known int, kept []string, err error) {
	for _, e := range ended {
		status, text, _, err := c.insist(ctx, "GET", "/v1/sandboxes/"+e.SandboxID+"/execs/"+e.ID+"/output?max_bytes=16", "", nil)
		if err != nil {
			return 0, nil, err
		}
		var doc struct{ Data string }
		switch {
		case status == http.StatusNotFound: // it had not come to start
			continue
		case status != http.StatusOK || json.Unmarshal(text, &doc) != nil:
			return 0, nil, fmt.Errorf("the output of %s: %d %s", e.ID, status, text)
		case doc.Data != "":
			kept = append(kept, e.ID)
		}
		known++
	}
	return known, kept, nil
}
