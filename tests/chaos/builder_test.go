//go:build chaos

package chaos

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
)

// checkBuilds is what builds promise.
const checkBuilds = "templates have what was built last"

// templatesBuilt are the names of the templates that are built.
func templatesBuilt() []string { return []string{"made-0", "made-1"} }

// builder is a user who builds images and makes sandboxes from them.
func (c *client) builder(ctx, load context.Context) error {
	for n := 0; load.Err() == nil; n++ {
		name := templatesBuilt()[c.rng.IntN(len(templatesBuilt()))]
		o, err := c.build(ctx, name)
		if err != nil {
			return err
		}
		if o.job == "" {
			continue
		}
		if c.rng.IntN(6) == 0 {
			_, _, _ = c.try(ctx, answerWait, http.MethodPost, "/v1/jobs/"+o.job+"/cancel", o.key+"-cancel", nil)
		}
		c.patient(ctx, o.job, 20*time.Second)
		_ = pass(load, time.Duration(c.rng.IntN(2000))*time.Millisecond) // the load may end
		if n%2 == 1 {
			if err := c.useBuilt(ctx, name); err != nil {
				return err
			}
		}
	}
	return nil
}

// build submits a small one, which leaves its number in the image, or fails.
func (c *client) build(ctx context.Context, name string) (*op, error) {
	c.book.Lock()
	*c.count++
	o := &op{n: *c.count, what: "build", template: name}
	c.book.Unlock()
	end := ""
	if c.rng.IntN(5) == 0 {
		end = "; exit 3"
	}
	script := fmt.Sprintf("echo %d > /made; sleep %d%s", o.n, c.rng.IntN(2), end)
	_, err := c.submit(ctx, o, http.MethodPost, "/v1/templates/"+name+"/builds", object{
		"script": script, "timeout_seconds": 60, "memory_mb": 128, "disk_mb": 64,
	})
	return o, err
}

// useBuilt makes a sandbox from the template, if there is one by now, and asks it which build it comes from.
func (c *client) useBuilt(ctx context.Context, name string) error {
	status, _, _, err := c.insist(ctx, http.MethodGet, "/v1/templates/"+name, "", nil)
	if err != nil || status != http.StatusOK {
		return err
	}
	b, err := c.box(ctx, object{"memory_mb": 64, "disk_mb": 16, "template": name})
	if err != nil || b == nil {
		return err
	}
	o, err := c.onJob(ctx, b, &op{what: "asked for its build", template: name}, "exec", object{"command": "cat /made", "timeout_seconds": 30})
	if err != nil {
		return err
	}
	if o.job != "" {
		c.patient(ctx, o.job, 20*time.Second)
	}
	return c.remove(ctx, b, "")
}

// buildRow is a build, with how its job has ended.
type buildRow struct {
	ID, Template, Image, JobID, State string
	Finished                          bool
}

// templateRow is a template that was built.
type templateRow struct{ Name, Image, BuildID string }

func readBuilds(ctx context.Context, conn *pgx.Conn, h *history) (err error) {
	h.builds, err = rows[buildRow](ctx, conn, `SELECT b.id, template, image, job_id, state, b.finished_at IS NOT NULL AS finished
		FROM builds b JOIN jobs j ON j.id = job_id ORDER BY b.created_at, b.id`)
	if err != nil {
		return err
	}
	h.templates, err = rows[templateRow](ctx, conn, `SELECT name, image, build_id FROM templates WHERE build_id IS NOT NULL`)
	return err
}

// built compares the templates with the builds that have come to an end.
func (t *trial) built() {
	last := map[string]buildRow{}
	for _, b := range t.h.builds {
		if b.State == "succeeded" && !b.Finished {
			t.find(checkBuilds, "build %s has succeeded, and no template has it: %s", b.ID, t.h.tell(b.JobID))
		}
		if b.Finished {
			last[b.Template] = b
		}
	}
	found := map[string]bool{}
	for _, is := range t.h.templates {
		found[is.Name] = true
		if want := last[is.Name]; is.BuildID != want.ID || is.Image != want.Image {
			t.find(checkBuilds, "template %s has %s of %s, want %s of %s", is.Name, is.Image, is.BuildID, want.Image, want.ID)
		}
	}
	for name := range last {
		if !found[name] {
			t.find(checkBuilds, "there is no template %s, which was built", name)
		}
	}
	t.asked(last)
}

// asked looks at what sandboxes have said of the build that they come from: one of their template's, and the last one
// when all is over.
func (t *trial) asked(last map[string]buildRow) {
	numbers := map[string]map[string]string{} // template → number → job
	t.each(func(o *op) {
		if o.what == "build" && t.jobOf(o) != "" {
			if numbers[o.template] == nil {
				numbers[o.template] = map[string]string{}
			}
			numbers[o.template][fmt.Sprintf("%d\n", o.n)] = t.jobOf(o)
		}
	})
	t.each(func(o *op) {
		if o.template == "" || o.what == "build" || o.end.State != "succeeded" {
			return
		}
		job := numbers[o.template][o.end.Stdout]
		if job == "" || o.what == "asked in the end" && job != last[o.template].JobID {
			t.find(checkBuilds, "a sandbox of %s comes from build %q (%s), and the last one is %+v", o.template, o.end.Stdout, job, last[o.template])
		}
	})
}

// askBuilt makes a sandbox of each template that was built, when all is well again: that must succeed.
func (r *run) askBuilt(ctx context.Context, t *trial) error {
	c := t.clients[0]
	for _, is := range t.h.templates {
		b, err := c.box(ctx, object{"memory_mb": 64, "disk_mb": 16, "template": is.Name})
		if err != nil || b == nil {
			return errors.Join(err, fmt.Errorf("no sandbox of %s", is.Name))
		}
		var o *op
		for o == nil || o.unknown { // the client may be one that does not wait for its answer
			if o, err = c.onJob(ctx, b, &op{what: "asked in the end", template: is.Name}, "exec", object{"command": "cat /made"}); err != nil {
				return err
			}
		}
		c.patient(ctx, o.job, time.Minute)
		if j, err := c.job(ctx, o.job, ""); err != nil || j.State != "succeeded" {
			t.find(checkBuilds, "no command runs in a sandbox of %s with the image %s: %v %v", is.Name, is.Image, j, err)
		}
	}
	return nil
}

// forgetBuilt deletes the templates, after which nobody needs their images any more, and waits until these are gone.
func (r *run) forgetBuilt(ctx context.Context, t *trial) error {
	if len(t.h.builds) == 0 {
		return nil
	}
	for _, is := range t.h.templates {
		status, text, _, err := t.clients[0].insist(ctx, http.MethodDelete, "/v1/templates/"+is.Name, "", nil)
		if err != nil || status >= 300 && status != http.StatusNotFound {
			return fmt.Errorf("delete template %s: status %d: %s %w", is.Name, status, text, err)
		}
	}
	err := eventually(ctx, settling, "nothing is made from what was built", func() (bool, string) {
		n, err := r.sys.host.users()
		return err == nil && n == 0, fmt.Sprint(n, err)
	})
	if err != nil {
		return err
	}
	// A worker looks for images of old builds when it starts, and then every minute.
	p := r.sys.of("worker", 0)
	p.signal(syscall.SIGTERM)
	if err := errors.Join(p.await(time.Minute), p.start(), r.sys.awaitReady(ctx)); err != nil {
		return err
	}
	return eventually(ctx, 2*settling, "images of old builds are removed", func() (bool, string) {
		left, err := r.sys.host.images()
		return err == nil && len(left) == 0, strings.Join(left, " ") + fmt.Sprint(err)
	})
}
