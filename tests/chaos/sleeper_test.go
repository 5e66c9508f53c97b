//go:build chaos

package chaos

import (
	"context"
	"encoding/json"
	"net/http"
	"time"
)

// checkLastWord is what resumes promise.
const checkLastWord = "of pauses and resumes the last one holds"

// wake is a resume that was asked for about when the timeout was over, and what the sandbox was once it had ended.
type wake struct {
	box *box
	op  *op
	is  string
}

// sleeper is a user whose sandboxes time pauses, with a command in them, and who resumes them about then, for longer.
func (c *client) sleeper(ctx, load context.Context) error {
	wish := object{
		"memory_mb": 64, "disk_mb": 16, "timeout_seconds": 2, "on_timeout": "pause", "labels": object{"client": "sleeper"},
		"paused_timeout_seconds": 20, // nobody may have heard of its delete
	}
	for load.Err() == nil {
		b, err := c.box(ctx, wish)
		if err != nil {
			return err
		}
		if b == nil {
			continue
		}
		o := &op{what: "exec", stdout: "rested\n"}
		if _, err := c.onJob(ctx, b, o, "exec", object{"command": "sleep 4; echo rested"}); err != nil {
			return err
		}
		for n := 3 + c.rng.IntN(4); n > 0 && load.Err() == nil; n-- {
			if err := c.doze(ctx, load, b); err != nil {
				return err
			}
		}
		b.forced = true
		if err := c.remove(ctx, b, "?force=true"); err != nil {
			return err
		}
	}
	return nil
}

// doze lets a sandbox's timeout end, and resumes it while time is about to pause it.
func (c *client) doze(ctx, load context.Context, b *box) error {
	if _, _, err := c.resume(ctx, b, 2); err != nil {
		return err
	}
	_ = pass(load, 2*time.Second+time.Duration(c.rng.IntN(200))*time.Millisecond) // the load may end
	o, ended, err := c.resume(ctx, b, 3600)
	if err != nil || !ended {
		return err
	}
	status, text, _, err := c.insist(ctx, http.MethodGet, "/v1/sandboxes/"+b.id, "", nil)
	var is struct{ State string }
	if err == nil && status == http.StatusOK {
		err = json.Unmarshal(text, &is)
	}
	c.wakes = append(c.wakes, wake{b, o, is.State})
	return err
}

// resume says whether its job has been seen to end.
func (c *client) resume(ctx context.Context, b *box, seconds int) (o *op, ended bool, err error) {
	o, err = c.onJob(ctx, b, &op{what: "resume"}, "resume", object{"timeout_seconds": seconds})
	return o, err == nil && o.job != "" && c.patient(ctx, o.job, 20*time.Second), err
}

// woken looks that no sandbox stayed paused whose resume had succeeded.
func (t *trial) woken() {
	tried, looked := 0, 0
	for _, c := range t.clients {
		for _, w := range c.wakes {
			tried++
			if t.h.jobs[t.jobOf(w.op)].State != "succeeded" {
				continue
			}
			looked++
			if w.is == "paused" {
				t.find(checkLastWord, "%s is paused, after it was resumed: %s", w.box.id, t.h.tell(t.jobOf(w.op)))
			}
		}
	}
	if tried >= 10 && looked == 0 {
		t.find(checkTried, "none of %d resumes was carried out", tried)
	}
}
