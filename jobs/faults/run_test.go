package faults_test

import (
	"errors"
	"slices"
	"strings"

	"sandyard/dev/jobsrig"
	"sandyard/jobs"
	"sandyard/jobs/kind"
	"sandyard/models"
	"sandyard/models/pg"
	"sandyard/providers"
)

// run is one script with one fault.
type run struct {
	r          *faultRig
	key        string
	box        string
	goes, over string   // background execs
	jobs       []string // that the script has submitted
	schedule   string
	used       models.Usage // before
	tickets    int          // that let in
}

func (u *run) readyAs(wish jobs.CreateSandbox) {
	var created string
	u.box, created = u.r.Create(wish)
	if j := u.r.Wait(created); j.State != models.Succeeded {
		u.r.T.Fatalf("create without a fault: %s %+v", j.State, j.Error)
	}
}

func (u *run) create(wish jobs.CreateSandbox) {
	u.insist(func(o jobs.Options) (models.Submitted, error) { return u.r.acts.Create(u.r.T.Context(), wish, o) })
}

func (u *run) submit(args kind.Args) {
	u.insist(func(o jobs.Options) (models.Submitted, error) {
		return u.r.acts.Submit(u.r.T.Context(), u.box, args, o)
	})
}

// insist submits as a client that heeds what it is told: the same again, under the same key, until it is accepted. Where
// it was told that nothing was accepted, nothing may stand under the key.
func (u *run) insist(submit func(jobs.Options) (models.Submitted, error)) {
	o := jobsrig.Options()
	o.IdempotencyKey, o.Request = u.key, []byte("request")
	var out models.Submitted
	u.again(func() (err error) {
		out, err = submit(o)
		if err != nil && !errors.Is(err, pg.ErrUncertain) {
			if rows := u.r.count("SELECT count(*) FROM idempotency_keys WHERE key = $1", u.key); rows != 0 {
				u.r.T.Errorf("told that nothing was accepted, and %d keys are taken: %v", rows, err)
			}
		}
		return err
	})
	u.box = out.Sandbox.ID
	for _, j := range out.Jobs {
		u.jobs = append(u.jobs, j.ID)
	}
}

// again repeats do while the database is away.
func (u *run) again(do func() error) {
	u.r.Eventually("the request is accepted", func() bool {
		err := do()
		if err != nil && !pg.IsUnavailable(err) {
			u.r.T.Fatalf("the request is refused: %v", err)
		}
		return err == nil
	})
}

// play runs a script with a fault, lets the system come to rest, and looks for what must hold.
func (r *faultRig) play(s script, f fault, key string) (calls map[layer]int, hit string) {
	u := &run{r: r, key: key}
	if s.ready != nil {
		s.ready(u)
	}
	r.rest()
	r.hurry(f.how == hangs)
	r.board.arm(f, s.loops)
	s.act(u)
	want := s.want
	if want == "" {
		want = models.Succeeded
	}
	for _, id := range u.jobs {
		if j := r.Wait(id); j.State != want {
			r.T.Errorf("%s ended %s at attempt %d: %+v", j.Kind, j.State, j.Attempt, j.Error)
		}
	}
	r.agree(u.box)
	r.rest() // acknowledgements may fail, too
	calls, hit = r.board.disarm()
	if call := r.board.tooSoon(); call != "" && s.loops == nil {
		r.T.Errorf("although the provider had asked for a rest of %v there was a call to %s", limit, call)
	}
	r.hurry(false)
	if s.check != nil {
		s.check(u)
	}
	u.tidyUp()
	return calls, hit
}

// rest waits until what was begun is over, down to its last call.
func (r *faultRig) rest() {
	calls, still := -1, 0
	r.Eventually("all rests", func() bool {
		if now := r.board.made(); now != calls {
			calls, still = now, 0
		}
		still++
		return still > 5
	})
}

// hurry gives jobs that come now so little time that a call which hangs is given up.
func (r *faultRig) hurry(on bool) {
	if on == r.hastes {
		return
	}
	sql := "DROP TRIGGER hurry ON jobs"
	if r.hastes = on; on {
		sql = "CREATE TRIGGER hurry BEFORE INSERT ON jobs FOR EACH ROW EXECUTE FUNCTION hurry()"
	}
	_, err := r.conn.Exec(r.T.Context(), sql)
	r.Must(err)
}

// agree waits until the sandbox's row says what the provider's list says.
func (r *faultRig) agree(box string) {
	r.Eventually("row and provider agree on the sandbox", func() bool {
		row := r.Sandbox(box)
		for _, i := range r.list() {
			if i.ID == box {
				return same(row.State, i.State)
			}
		}
		return row.EndedAt != nil
	})
}

// tidyUp ends the sandbox and looks for what is left of the run.
func (u *run) tidyUp() {
	r := u.r
	if r.Sandbox(u.box).EndedAt == nil {
		out, err := r.Client.Delete(r.T.Context(), u.box, true, jobsrig.Options())
		r.Must(err)
		r.Wait(out.Jobs[0].ID)
	}
	r.Eventually("the sandbox is gone", func() bool {
		return r.Sandbox(u.box).EndedAt != nil && !slices.ContainsFunc(r.list(), func(i providers.Instance) bool { return i.ID == u.box })
	})
	r.Eventually("all jobs have ended", func() bool {
		return r.count("SELECT count(*) FROM jobs WHERE sandbox_id = $1 AND finished_at IS NULL", u.box) == 0
	})
	r.Eventually("Redis holds nothing that does nothing", func() bool { return len(r.leftInRedis()) == 0 })
	all, err := r.Store.Jobs(r.T.Context(), jobsrig.Tenant, models.JobFilter{Sandbox: u.box, Limit: 100})
	r.Must(err)
	for _, j := range all {
		if n := r.count(`SELECT count(*) FROM events WHERE job_id = $1
			AND event IN ('job.succeeded', 'job.failed', 'job.timed_out', 'job.cancelled', 'job.lost', 'job.expired')`, j.ID); n != 1 {
			r.T.Errorf("%s (%s) has %d terminal events", j.Kind, j.State, n)
		}
		if n := r.State.Starts(j.ID); n > 1 || n == 0 && j.Kind == "exec" && j.State == models.Succeeded {
			r.T.Errorf("%s (%s) was started %d times", j.Kind, j.State, n)
		}
	}
}

func (r *faultRig) list() []providers.Instance { return r.State.List() }

// leftInRedis are the tasks that lie in Redis. One that was handed out by an answer that was lost may: Asynq takes it
// back when its lease ends.
func (r *faultRig) leftInRedis() (left []string) {
	ctx := r.T.Context()
	tasks, err := r.RDB.Keys(ctx, "asynq:{*}:t:*").Result()
	r.Must(err)
	for _, k := range tasks {
		queue, id, _ := strings.Cut(k, ":t:")
		leased := r.RDB.ZScore(ctx, queue+":lease", id).Err() == nil
		if state := r.RDB.HGet(ctx, k, "state").Val(); state != "active" || !leased {
			left = append(left, k+" "+state)
		}
	}
	return left
}

// count asks the database, past all faults.
func (r *faultRig) count(sql string, args ...any) (n int) {
	r.Must(r.conn.QueryRow(r.T.Context(), sql, args...).Scan(&n))
	return n
}
