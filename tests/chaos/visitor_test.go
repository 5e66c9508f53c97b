//go:build chaos

package chaos

import (
	"context"
	"fmt"
	"time"
)

// calm is the pause of a steady user between two jobs: the machine is for the others, too.
const calm = 60 * time.Millisecond

// pressed is how long the others wait for an end before they go on.
const pressed = 4 * time.Second

// steady is a user of a provider that works: one job after the other, each of which must succeed.
func (c *client) steady(ctx, load context.Context) error {
	return c.visits(ctx, load, c.leave, []string{"log", "edits"}, func(b *box) error {
		for range 20 {
			if load.Err() != nil {
				return nil
			}
			o, err := c.errand(ctx, b, c.rng.IntN(80))
			if err != nil {
				return err
			}
			if o.job != "" {
				c.patient(ctx, o.job, settling)
			}
			_ = pass(load, calm) // the load may end
		}
		return nil
	})
}

// pressing is a user of a provider that may be away: bursts, whether the last one has ended or not.
func (c *client) pressing(ctx, load context.Context) error {
	return c.visits(ctx, load, c.part, []string{"log", "plog", "edits"}, func(b *box) error {
		for range 2 + c.rng.IntN(3) {
			var last *op
			for range 3 + c.rng.IntN(5) {
				if load.Err() != nil {
					return nil
				}
				o, err := c.errand(ctx, b, c.rng.IntN(100))
				if err != nil {
					return err
				}
				last = o
			}
			if last.job != "" {
				c.patient(ctx, last.job, pressed)
			}
		}
		return nil
	})
}

// visits uses sandboxes of the client's provider, one after the other. Ops leave lines in their files.
func (c *client) visits(
	ctx, load context.Context, part func(context.Context, *box, int) error, files []string, use func(*box) error,
) error {
	for round := 0; load.Err() == nil; round++ {
		b, err := c.box(ctx, object{"provider": c.at, "memory_mb": 64, "disk_mb": 16}, files...)
		if err != nil {
			return err
		}
		if b == nil {
			continue
		}
		if _, err := c.onJob(ctx, b, &op{what: "write"}, "write", object{"path": "edits", "content": "END\n"}); err != nil {
			return err
		}
		if _, err := c.errand(ctx, b, 0); err != nil { // so that there is a log
			return err
		}
		for i := range notes {
			if _, err := c.note(ctx, b, c.another(), i); err != nil {
				return err
			}
		}
		if err := use(b); err != nil {
			return err
		}
		if err := part(ctx, b, round); err != nil {
			return err
		}
	}
	return nil
}

// leave is part without force, which ends jobs that have not ended.
func (c *client) leave(ctx context.Context, b *box, round int) error {
	if round == 0 { // to be looked at in the end
		return nil
	}
	if err := c.look(ctx, b); err != nil {
		return err
	}
	return c.remove(ctx, b, "")
}

// notes is how many files a sandbox has that are written over and read.
const notes = 3

func (c *client) note(ctx context.Context, b *box, n, i int) (*op, error) {
	path := fmt.Sprintf("f%d", i)
	return c.onJob(ctx, b, &op{n: n, what: "write", value: path + "=" + fmt.Sprint(n)}, "write", object{"path": path, "content": fmt.Sprint(n)})
}

// errand submits one operation; from 80 on, one that takes its time or stands beside the others.
func (c *client) errand(ctx context.Context, b *box, which int) (*op, error) {
	n := c.another()
	o := &op{n: n, what: "exec", file: "log", stdout: fmt.Sprintf("out %d\n", n)}
	middle := ""
	switch {
	case which < 30:
	case which < 35:
		o.what, o.exit, o.stdout = "exec that fails", 3, ""
		return c.onJob(ctx, b, o, "exec", object{"command": fmt.Sprintf("echo %d >> log; exit 3", n)})
	case which < 45:
		return c.note(ctx, b, n, c.rng.IntN(notes))
	case which < 57:
		path := fmt.Sprintf("f%d", c.rng.IntN(notes))
		return c.onJob(ctx, b, &op{n: n, what: "read", reads: path}, "read", object{"path": path})
	case which < 65:
		edits := []object{{"old_string": "END", "new_string": fmt.Sprintf("%d\nEND", n)}}
		return c.onJob(ctx, b, &op{n: n, what: "edit", file: "edits"}, "edit", object{"path": "edits", "edits": edits})
	case which < 72:
		return c.onJob(ctx, b, &op{n: n, what: "stat"}, "stat", object{"path": "edits"})
	case which < 80:
		if o, err := c.onJob(ctx, b, &op{n: n, what: "pause"}, "pause", object{}); err != nil {
			return o, err
		}
		return c.onJob(ctx, b, &op{what: "resume"}, "resume", object{})
	case which < 90:
		middle = fmt.Sprintf("sleep %d; ", 1+c.rng.IntN(4))
	default:
		o.what, o.parallel, o.file = "exec beside", true, "plog"
	}
	return c.onJob(ctx, b, o, "exec", object{"command": fmt.Sprintf("echo %d >> %s; %secho out %d", n, o.file, middle, n)})
}

// another is the number of the next op of all clients.
func (c *client) another() int {
	c.book.Lock()
	defer c.book.Unlock()
	*c.count++
	return *c.count
}
