//go:build chaos

package chaos

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"
)

// op is one submission of a client, and what it knows of it.
type op struct {
	n        int    // unique among all; what the op leaves in the sandbox
	what     string // of the client's repertoire
	key      string // its Idempotency-Key
	box      *box   // nil = of /v1/run
	parallel bool
	file     string // where it appends the line n; empty = nowhere
	reads    string // the file whose content is the job's
	value    string // what a write leaves in its file
	template string // that it builds, or that its sandbox is of
	stdout   string // what a success writes
	exit     int
	callback bool

	job     string // its job's id; empty = refused, or nobody knows
	refused string // the problem's code
	unknown bool   // the client gave up without an answer
	tries   int
	end     jobDoc // read at the end
}

// box is a sandbox as its client sees it.
type box struct {
	id     string
	ops    []*op
	gone   bool // deleted by its client
	forced bool // ... by force
	behind string
	files  []string // in which ops leave lines
	typed  []typed  // into its terminal
}

// client is one user of the system. Its stream of operations follows from the seed.
type client struct {
	*caller
	number int
	rng    *rand.Rand
	hook   string                                // URL of the receiver of callbacks
	work   func(ctx, load context.Context) error // until the load ends; what is begun then is finished under ctx
	boxes  []*box
	ops    []*op
	wakes  []wake
	book   *sync.Mutex // held while ops of all clients are counted
	count  *int
	long   bool   // many commands take longer than a lease, and than a worker is stopped for
	at     string // the provider of its sandboxes; empty = the default
}

func newClients(s *system, seed uint64, hook string, n int) []*client {
	var book sync.Mutex
	var count int
	var all []*client
	for i := range n {
		c := &client{
			caller: newCaller(s), number: i, rng: rand.New(rand.NewPCG(seed, uint64(i)+1)), hook: hook, book: &book, count: &count,
		}
		c.work = c.usual
		all = append(all, c)
	}
	return all
}

// newCrowd is newClients with some who use schedules, terminals, sandboxes that end by themselves or that time pauses, and builds.
func newCrowd(s *system, seed uint64, hook string, n int) []*client {
	all := newClients(s, seed, hook, n+5)
	all[n].work = all[n].clockwork
	all[n+1].work = all[n+1].typist
	all[n+2].work = all[n+2].mortal
	all[n+3].work = all[n+3].sleeper
	all[n+4].work = all[n+4].builder
	if s.provider != onDocker { // no other makes images
		all = all[:n+4]
	}
	return all
}

// usual uses sandboxes, one after the other.
func (c *client) usual(ctx, load context.Context) error {
	for round := 0; load.Err() == nil; round++ {
		b, err := c.create(ctx, round)
		if err != nil {
			return err
		}
		if b == nil {
			continue
		}
		if err := c.use(ctx, load, b); err != nil {
			return err
		}
		if err := c.part(ctx, b, round); err != nil {
			return err
		}
	}
	return nil
}

// use submits bursts without waiting in between, and waits for the end of each.
func (c *client) use(ctx, load context.Context, b *box) error {
	for range 1 + c.rng.IntN(3) {
		var last *op
		for range 8 + c.rng.IntN(20) {
			if load.Err() != nil {
				return nil
			}
			o, err := c.one(ctx, b)
			if err != nil {
				return err
			}
			last = o
		}
		if last.job != "" {
			c.patient(ctx, last.job, 20*time.Second)
		}
	}
	return nil
}

// patient waits for a job's end, but not for ever: the next burst may come before it. It says whether it has seen the end.
func (c *client) patient(ctx context.Context, job string, limit time.Duration) bool {
	for deadline := time.Now().Add(limit); time.Now().Before(deadline); {
		status, text, err := c.try(ctx, answerWait, http.MethodGet, "/v1/jobs/"+job+"?wait=3s", "", nil)
		var j jobDoc
		if err == nil && status == http.StatusOK && json.Unmarshal(text, &j) == nil && j.ended() {
			return true
		}
	}
	return false
}

func (c *client) create(ctx context.Context, round int) (*box, error) {
	wish := object{"memory_mb": 64, "disk_mb": 16, "auto_resume": round%2 == 0, "labels": object{"client": fmt.Sprint(c.number)}}
	if round%3 == 1 {
		wish["key"] = fmt.Sprintf("c%d-%d", c.number, round)
	}
	if c.rng.IntN(4) == 0 {
		wish["env"] = object{"CLIENT": fmt.Sprint(c.number)}
	}
	b, err := c.box(ctx, wish, "log", "plog", "bglog", "edits")
	if err != nil || b == nil {
		return nil, err
	}
	if _, err = c.onJob(ctx, b, &op{what: "write", file: ""}, "write", object{"path": "edits", "content": "END\n"}); err != nil {
		return b, err
	}
	files := []object{{"path": "m0", "content": "0"}, {"path": "m1", "content": "1"}, {"path": "m2", "content": "2"}} // to move and remove
	_, err = c.onJob(ctx, b, &op{what: "write_many"}, "write_many", object{"files": files})
	return b, err
}

// box makes a sandbox, in whose files ops will leave lines. It is nil where there is none.
func (c *client) box(ctx context.Context, wish object, files ...string) (*box, error) {
	b := &box{files: files}
	o := &op{what: "create", box: b}
	answer, err := c.submit(ctx, o, http.MethodPost, "/v1/sandboxes", wish)
	if err != nil || o.job == "" {
		return nil, err
	}
	b.id = answer.Sandbox.ID
	c.boxes = append(c.boxes, b)
	return b, nil
}

// part deletes the sandbox, by force or in order, or leaves it alone to be looked at in the end.
func (c *client) part(ctx context.Context, b *box, round int) error {
	alone := 0
	for _, other := range c.boxes {
		if !other.gone {
			alone++
		}
	}
	switch force := c.rng.IntN(4) == 0; {
	case alone <= 2 && round%2 == 0:
		return nil
	case force:
		b.forced = true
		return c.remove(ctx, b, "?force=true")
	default:
		if err := c.look(ctx, b); err != nil {
			return err
		}
		return c.remove(ctx, b, "")
	}
}

// look reads, in order, all that the sandbox's ops have left.
func (c *client) look(ctx context.Context, b *box) error {
	for _, file := range b.files {
		if _, err := c.onJob(ctx, b, &op{what: "look", reads: file}, "read", object{"path": file}); err != nil {
			return err
		}
	}
	return nil
}

func (c *client) remove(ctx context.Context, b *box, query string) error {
	b.gone = true
	_, err := c.submit(ctx, &op{what: "delete", box: b}, http.MethodDelete, "/v1/sandboxes/"+b.id+query, nil)
	return err
}

// submit makes a submission, again and again until an answer settles it, or now and then not: then it stays unknown.
func (c *client) submit(ctx context.Context, o *op, method, path string, body any) (accepted, error) {
	c.book.Lock()
	if o.n == 0 {
		*c.count++
		o.n = *c.count
	}
	c.book.Unlock()
	o.key = fmt.Sprintf("op-%d-%d", c.number, len(c.ops))
	c.ops = append(c.ops, o)
	if o.box != nil {
		o.box.ops = append(o.box.ops, o)
	}
	var out accepted
	if c.rng.IntN(50) == 0 && o.what != "create" { // a client that does not wait for its answer
		status, text, err := c.try(ctx, time.Duration(1+c.rng.IntN(20))*time.Millisecond, method, path, o.key, body)
		if unclear(status, err) {
			o.unknown = true
			return out, nil
		}
		return out, o.settle(status, text, &out)
	}
	status, text, tries, err := c.insist(ctx, method, path, o.key, body)
	o.tries = tries
	if err != nil {
		o.unknown = true
		return out, err
	}
	return out, o.settle(status, text, &out)
}

func (o *op) settle(status int, text []byte, out *accepted) error {
	if err := json.Unmarshal(text, out); err != nil {
		return fmt.Errorf("%s answers %d %.300q: %w", o.what, status, text, err)
	}
	switch status {
	case http.StatusOK, http.StatusAccepted:
		o.job = out.Job.ID
	case http.StatusNotFound, http.StatusConflict, http.StatusGone:
		o.refused = out.Code
	default:
		return fmt.Errorf("%s is answered %d: %s", o.what, status, text)
	}
	return nil
}

// onJob submits a job of a kind on the sandbox.
func (c *client) onJob(ctx context.Context, b *box, o *op, kind string, args object) (*op, error) {
	o.box = b
	body := object{"sandbox_id": b.id, "kind": kind, "args": args}
	if o.parallel {
		body["parallel"] = true
	}
	if c.hook != "" && c.rng.IntN(12) == 0 {
		o.callback = true
		body["callback_url"] = c.hook
	}
	if o.what == "expires" {
		body["queue_deadline_seconds"] = 0.5
	}
	_, err := c.submit(ctx, o, http.MethodPost, "/v1/jobs", body)
	return o, err
}
