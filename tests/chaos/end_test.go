//go:build chaos

package chaos

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/redis/go-redis/v9"
)

// settling is how long reconciling may take: its grace, its turn, and a busy machine.
const settling = time.Minute

// agree waits until the host has exactly what the rows say.
func (r *run) agree(ctx context.Context, t *trial) {
	err := eventually(ctx, settling, "rows and resources agree", func() (bool, string) {
		h, err := readHistory(ctx, r.sys.postgres.DSN())
		if err != nil {
			return false, err.Error()
		}
		found, err := r.sys.host.sandboxes()
		if err != nil {
			return false, err.Error()
		}
		d := disagreements(h.boxes, found)
		return len(d) == 0, strings.Join(d, "; ")
	})
	if err != nil {
		t.find(checkRows, "%v", err)
	}
}

// disagreements compares sandboxes by their rows with what there is of them.
func disagreements(rows, found map[string]string) []string {
	var all []string
	for id, state := range rows {
		if is := found[id]; (state == "running" || state == "paused") && is != state {
			all = append(all, fmt.Sprintf("%s is %s and its resource %q", id, state, is))
		}
	}
	for id, state := range found {
		switch rows[id] {
		case "running", "paused":
		default:
			all = append(all, fmt.Sprintf("what there is of %s is %s and its row %q", id, state, rows[id]))
		}
	}
	slices.Sort(all)
	return all
}

// tidy deletes every sandbox, ends the processes and looks for what is left.
func (r *run) tidy(ctx context.Context, t *trial) {
	for _, step := range []struct {
		what string
		do   func() error
	}{
		{"all sandboxes are deleted", func() error { return r.removeAll(ctx, t) }},
		{"what was built is removed", func() error { return r.forgetBuilt(ctx, t) }},
		{"dead nodes are old", func() error { return r.age(ctx) }},
		{"Redis has no tasks", func() error { return eventually(ctx, 2*settling, "Redis has no tasks of ours", r.noTasks(ctx)) }},
		{"all processes have ended", r.sys.stopProcesses},
		{"nothing is left of the sandboxes", func() error { return r.clearedHost(ctx) }},
	} {
		if err := step.do(); err != nil {
			t.find(checkLeft, "%s: %v", step.what, err)
			continue
		}
		r.logf("%5.1fs %s", time.Since(r.began).Seconds(), step.what)
	}
	if left := running(r.sys.bin); len(left) > 0 {
		t.find(checkLeft, "processes: %v", left)
	}
}

// clearedHost answers an error if anything is left. The pool of a worker that was killed just before the end is an
// exception: the next worker removes it, when it is sure that nobody is still making it.
func (r *run) clearedHost(ctx context.Context) error {
	strays, err := r.sys.host.strays()
	if err != nil || len(strays) > 0 {
		return fmt.Errorf("%v %w", strays, err)
	}
	left, err := r.sys.host.resources()
	if err != nil || len(left) == 0 {
		return err
	}
	for _, one := range left {
		if !strings.HasPrefix(one, "sandyard-pool-") && !strings.HasPrefix(one, "sandyard-refill-") {
			return fmt.Errorf("%v", left)
		}
	}
	r.logf("a dead worker's pool is left, for the next worker: %v", left)
	next := r.sys.of("worker", 0)
	if err := next.start(); err != nil {
		return err
	}
	err = eventually(ctx, 4*settling, "a worker has removed a dead one's pool", func() (bool, string) {
		now, err := r.sys.host.resources()
		now = slices.DeleteFunc(now, func(one string) bool { return !slices.Contains(names(left), name(one)) })
		return err == nil && len(now) == 0, fmt.Sprint(now, err)
	})
	next.signal(syscall.SIGTERM)
	if err := errors.Join(err, next.await(time.Minute)); err != nil {
		return err
	}
	if left, err = r.sys.host.resources(); len(left) > 0 {
		return fmt.Errorf("%v %w", left, err)
	}
	return err
}

func name(resource string) string {
	before, _, _ := strings.Cut(resource, "=")
	return before
}

func names(resources []string) []string {
	var all []string
	for _, one := range resources {
		all = append(all, name(one))
	}
	return all
}

func (r *run) removeAll(ctx context.Context, t *trial) error {
	h, err := readHistory(ctx, r.sys.postgres.DSN())
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	c := t.clients[0]
	for id, state := range h.boxes {
		if state == "deleted" || state == "failed" || state == "lost" {
			continue
		}
		if _, _, _, err := c.insist(ctx, "DELETE", "/v1/sandboxes/"+id, "", nil); err != nil {
			return err
		}
	}
	return eventually(ctx, time.Minute, "all sandboxes have ended", func() (bool, string) {
		h, err := readHistory(ctx, r.sys.postgres.DSN())
		if err != nil {
			return false, err.Error()
		}
		var live []string
		for id, state := range h.boxes {
			if state != "deleted" && state != "failed" && state != "lost" {
				live = append(live, id+" is "+state)
			}
		}
		return len(live) == 0 && len(h.unfinished()) == 0, fmt.Sprint(live, h.unfinished())
	})
}

// age makes nodes that are dead look as if they had been so for long, so that nobody needs to wait for it.
func (r *run) age(ctx context.Context) error {
	conn, err := pgx.Connect(ctx, r.sys.postgres.DSN())
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	_, err = conn.Exec(ctx, "UPDATE nodes SET lease_until = lease_until - interval '1 hour' WHERE lease_until < now()")
	return err
}

func (r *run) noTasks(ctx context.Context) func() (bool, string) {
	return func() (bool, string) {
		var left []string
		err := r.sys.withRedis(func(c *redis.Client) (err error) {
			left, err = c.Keys(ctx, "asynq:{*}:t:*").Result()
			return err
		})
		left = slices.DeleteFunc(left, func(key string) bool { return strings.Contains(key, "{webhooks}") }) // they wait for their next attempt
		return len(left) == 0 && err == nil, fmt.Sprint(left, err)
	}
}

// running lists the processes whose program lies in dir.
func running(dir string) []string {
	var all []string
	links, _ := filepath.Glob("/proc/[0-9]*/exe") // the pattern is well-formed: no error is possible
	for _, link := range links {
		if target, err := os.Readlink(link); err == nil && strings.HasPrefix(target, dir+"/") {
			all = append(all, link+" → "+target)
		}
	}
	return all
}
