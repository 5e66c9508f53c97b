//go:build chaos

package chaos

import (
	"context"
	"time"
)

// checkLastWord is what resumes promise.
const checkLastWord = "of pauses and resumes the last one holds"

// sleeper is a user whose sandboxes time pauses, with a command in them, and who resumes them about then. The last resume
// of each is to stay.
func (c *client) sleeper(ctx, load context.Context) error {
	wish := object{
		"memory_mb": 64, "disk_mb": 16, "timeout_seconds": 2, "on_timeout": "pause", "labels": object{"client": "sleeper"},
		"paused_timeout_seconds": 20, // its last resume may fail, or never have been sent
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
		for range 3 + c.rng.IntN(4) {
			_ = pass(load, time.Duration(1600+c.rng.IntN(800))*time.Millisecond) // the load may end
			if _, err := c.onJob(ctx, b, &op{what: "resume"}, "resume", object{"timeout_seconds": 2}); err != nil {
				return err
			}
		}
		if b.woken, err = c.onJob(ctx, b, &op{what: "resume"}, "resume", object{"timeout_seconds": 3600}); err != nil {
			return err
		}
	}
	return nil
}

// woken looks that no sandbox is paused whose last word was a resume.
func (t *trial) woken() {
	slept, looked := 0, 0
	for _, b := range t.boxes() {
		if b.woken == nil {
			continue
		}
		slept++
		if j := t.h.jobs[t.jobOf(b.woken)]; j.State != "succeeded" {
			continue
		}
		looked++
		if is := t.h.boxes[b.id]; is == "paused" || is == "deleted" {
			t.find(checkLastWord, "%s is %s, after its last resume: %s", b.id, is, t.h.tell(t.jobOf(b.woken)))
		}
	}
	if slept >= 5 && looked == 0 {
		t.find(checkTried, "none of %d last resumes was carried out", slept)
	}
}
