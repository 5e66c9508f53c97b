package jobs_test

import (
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"sandyard/jobs"
	"sandyard/models"
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
	u.box, created = u.r.create(wish)
	if j := u.r.wait(created); j.State != models.Succeeded {
		u.r.t.Fatalf("create without a fault: %s %+v", j.State, j.Error)
	}
}

func (u *run) create(wish jobs.CreateSandbox) {
	u.insist(func(o jobs.Options) (models.Submitted, error) { return u.r.acts.Create(u.r.t.Context(), wish, o) })
}

func (u *run) submit(args jobs.Args) {
	u.insist(func(o jobs.Options) (models.Submitted, error) {
		return u.r.acts.Submit(u.r.t.Context(), u.box, args, o)
	})
}

// insist submits as a client that heeds what it is told: the same again, under the same key, until it is accepted. Where
// it was told that nothing was accepted, nothing may stand under the key.
func (u *run) insist(submit func(jobs.Options) (models.Submitted, error)) {
	o := options()
	o.IdempotencyKey, o.Request = u.key, []byte("request")
	var out models.Submitted
	u.again(func() (err error) {
		out, err = submit(o)
		if err != nil && !errors.Is(err, models.ErrUncertain) {
			if rows := u.r.count("SELECT count(*) FROM idempotency_keys WHERE key = $1", u.key); rows != 0 {
				u.r.t.Errorf("told that nothing was accepted, and %d keys are taken: %v", rows, err)
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
	u.r.eventually("the request is accepted", func() bool {
		err := do()
		if err != nil && !models.IsUnavailable(err) {
			u.r.t.Fatalf("the request is refused: %v", err)
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
	r.board.arm(f, s.loops)
	s.act(u)
	want := s.want
	if want == "" {
		want = models.Succeeded
	}
	for _, id := range u.jobs {
		if j := r.wait(id); j.State != want {
			r.t.Errorf("%s ended %s at attempt %d: %+v", j.Kind, j.State, j.Attempt, j.Error)
		}
	}
	r.agree(u.box)
	calls, hit = r.board.disarm()
	if s.check != nil {
		s.check(u)
	}
	u.tidyUp()
	return calls, hit
}

// agree waits until the sandbox's row says what the provider's list says.
func (r *faultRig) agree(box string) {
	r.eventually("row and provider agree on the sandbox", func() bool {
		row := r.sandbox(box)
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
	if r.sandbox(u.box).EndedAt == nil {
		out, err := r.client.Delete(r.t.Context(), u.box, true, options())
		r.must(err)
		r.wait(out.Jobs[0].ID)
	}
	r.eventually("the sandbox is gone", func() bool {
		return r.sandbox(u.box).EndedAt != nil && !slices.ContainsFunc(r.list(), func(i providers.Instance) bool { return i.ID == u.box })
	})
	r.eventually("all jobs have ended", func() bool {
		return r.count("SELECT count(*) FROM jobs WHERE sandbox_id = $1 AND finished_at IS NULL", u.box) == 0
	})
	r.eventually("Redis holds nothing that does nothing", func() bool { return len(r.leftInRedis()) == 0 })
	all, err := r.store.Jobs(r.t.Context(), tenant, models.JobFilter{Sandbox: u.box, Limit: 100})
	r.must(err)
	for _, j := range all {
		if n := r.count(`SELECT count(*) FROM events WHERE job_id = $1
			AND event IN ('job.succeeded', 'job.failed', 'job.timed_out', 'job.cancelled', 'job.lost', 'job.expired')`, j.ID); n != 1 {
			r.t.Errorf("%s (%s) has %d terminal events", j.Kind, j.State, n)
		}
		if n := r.state.Starts(j.ID); n > 1 || n == 0 && j.Kind == "exec" && j.State == models.Succeeded {
			r.t.Errorf("%s (%s) was started %d times", j.Kind, j.State, n)
		}
	}
}

func (r *faultRig) list() []providers.Instance { return r.state.List() }

// leftInRedis are the tasks that lie in Redis. One that was handed out by an answer that was lost may: Asynq takes it
// back when its lease ends.
func (r *faultRig) leftInRedis() (left []string) {
	ctx := r.t.Context()
	tasks, err := r.rdb.Keys(ctx, "asynq:{*}:t:*").Result()
	r.must(err)
	for _, k := range tasks {
		queue, id, _ := strings.Cut(k, ":t:")
		leased := r.rdb.ZScore(ctx, queue+":lease", id).Err() == nil
		if state := r.rdb.HGet(ctx, k, "state").Val(); state != "active" || !leased {
			left = append(left, k+" "+state)
		}
	}
	return left
}

// count asks the database, past all faults.
func (r *faultRig) count(sql string, args ...any) (n int) {
	r.must(r.conn.QueryRow(r.t.Context(), sql, args...).Scan(&n))
	return n
}

//nolint:gochecknoglobals // flags of the test binary
var (
	faultSeed = flag.Uint64("faults.seed", 0, "choose the faults of a sample; 0 = by the clock")
	faultHang = flag.Bool("faults.hang", false, "also connections that fall silent, which takes a quarter of a minute each")
	faultAll  = flag.Bool("faults.all", false, "every call of every kind instead of a sample")
	faultOnly = flag.String("faults.only", "", "the one to play, as a failure names it, such as exec/postgres/7/after, or all that begin so, such as exec or exec/redis")
)

// sampled is how many scripts a sample plays, each without a fault and with one.
const sampled = 14

// TestEveryCallMayFail fails one call after the other of a run of each kind, before and after its effect, and wants the
// system to recover by itself. A sample of the calls is drawn by a seed; make faults plays all of them.
func TestEveryCallMayFail(t *testing.T) {
	t.Parallel()
	seed := *faultSeed
	if seed == 0 {
		seed = uint64(time.Now().UnixNano() % 1e6)
	}
	t.Logf("seed %d; this sample again by: make faults SEED=%d", seed, seed)
	todo := slices.DeleteFunc(scripts(), func(s script) bool {
		return *faultOnly != "" && !strings.HasPrefix(*faultOnly+"/", s.name+"/")
	})
	rng := rand.New(rand.NewPCG(seed, seed))
	slices.SortFunc(todo, func(a, b script) int { return strings.Compare(a.name, b.name) })
	lanes := 2 // a rig each
	if *faultAll {
		lanes = len(todo)
	} else {
		rng.Shuffle(len(todo), func(i, k int) { todo[i], todo[k] = todo[k], todo[i] })
		todo = todo[:min(len(todo), sampled)]
	}
	for i := range lanes {
		draw := rand.New(rand.NewPCG(seed, rng.Uint64()))
		t.Run(fmt.Sprint("lane ", i), func(t *testing.T) {
			t.Parallel()
			r := newFaultRig(t)
			for k := i; k < len(todo); k += lanes {
				r.playAll(todo[k], draw)
			}
		})
	}
}

// playAll plays a script without a fault, which counts its calls, and then with some of them failing, or each.
func (r *faultRig) playAll(s script, draw *rand.Rand) {
	n := 0
	play := func(f fault) (calls map[layer]int) {
		n++
		if only := *faultOnly; only != "" && f.k > 0 && !strings.HasPrefix(fmt.Sprintf("%s/%v/", s.name, f), only+"/") {
			return nil
		}
		began, whole := time.Now(), false
		defer func() {
			if !whole {
				r.t.Logf("broken off; again by: make faults ONLY='%s/%v'", s.name, f)
			}
		}()
		calls, hit := r.play(s, f, fmt.Sprintf("%s-%d", s.name, n))
		if r.t.Failed() {
			r.t.Fatalf("the call was %.200q; again by: make faults ONLY='%s/%v'", hit, s.name, f)
		}
		if whole = true; testing.Verbose() {
			r.t.Logf("%s/%v: %.1fs, %.80q", s.name, f, time.Since(began).Seconds(), hit)
		}
		return calls
	}
	calls := play(fault{})
	for _, f := range chosen(calls, draw) {
		play(f)
	}
}

// chosen are the faults to play, of a run with so many calls.
func chosen(calls map[layer]int, draw *rand.Rand) (faults []fault) {
	for _, l := range layers() {
		for k := 1; k <= calls[l]; k++ {
			faults = append(faults, fault{layer: l, k: k}, fault{layer: l, k: k, after: true})
			if l == onWire && *faultHang {
				faults = append(faults, fault{layer: l, k: k, hang: true}, fault{layer: l, k: k, hang: true, after: true})
			}
		}
	}
	if *faultAll || *faultOnly != "" || len(faults) == 0 {
		return faults
	}
	return []fault{faults[draw.IntN(len(faults))]}
}
