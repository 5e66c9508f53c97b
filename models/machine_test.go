package models_test

import (
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"sandyard/dev/testenv"
	"sandyard/models"
)

// step is one call on the store. Its numbers choose a sandbox and a job of it, whatever there are by then.
type step struct {
	do       string
	box, job int
	oldest   bool // not that job but the oldest that has not ended
	flag     bool
}

func (s step) String() string {
	job := fmt.Sprint("job ", s.job)
	if s.oldest {
		job = "oldest job"
	}
	return fmt.Sprintf("%s(box %d, %s, %v)", s.do, s.box, job, s.flag)
}

func steps() []string {
	return []string{
		"exec", "exec", "exec", "pause", "resume", "delete",
		"claim", "claim", "claim", "claim", "claim", "succeed", "succeed", "succeed", "fail", "fail", "fail", "stale",
		"requeue", "cancel", "cancel", "recover", "begin delete",
	}
}

// machine is a few sandboxes in the database and what should be known of them.
type machine struct {
	t     *testing.T
	s     *models.Store
	boxes []*modelBox
}

// modelBox is a sandbox as this test thinks of it.
type modelBox struct {
	id      string
	state   models.SandboxState
	desired string
	ended   bool // for good
	jobs    []*modelJob
}

type modelJob struct {
	models.Job
	ready, expired, asked bool // expired: its lease has ended; asked: to stop
	claimed               models.Job
}

func (b *modelBox) closed() bool { return b.ended || b.state == models.SandboxDeleting }

// promote makes the oldest ordered job ready.
func (b *modelBox) promote() {
	for _, j := range b.jobs {
		if !j.Parallel && !j.State.Terminal() {
			j.ready = true
			return
		}
	}
}

// endQueued ends what waits, but deletes.
func (b *modelBox) endQueued(to models.JobState) {
	for _, j := range b.jobs {
		if j.State == models.Queued && j.Kind != models.KindDelete {
			j.State = to
		}
	}
}

// become is what a job's end makes of the sandbox.
func (b *modelBox) become(to models.SandboxState) {
	switch {
	case b.ended || b.state == models.SandboxDeleting && to != models.SandboxDeleted && to != models.SandboxRunning:
	case to == models.SandboxRunning:
		if b.state != models.SandboxDeleting {
			b.state = to
		}
		for _, j := range b.jobs {
			j.ready = j.ready || j.Parallel
		}
	case to == models.SandboxDeleted, to == models.SandboxFailed:
		b.state, b.ended = to, true
		b.endQueued(models.Failed)
		for _, j := range b.jobs {
			if j.State == models.Queued {
				j.State = models.Succeeded // deletes have what they want
			}
		}
	case to != "":
		b.state = to
	}
	b.promote()
}

// change is what a kind does to its sandbox when it ends so.
func change(kind string, state models.JobState) models.SandboxState {
	if state != models.Succeeded {
		if kind == models.KindCreate {
			return models.SandboxFailed
		}
		return ""
	}
	return map[string]models.SandboxState{
		models.KindCreate: models.SandboxRunning, models.KindDelete: models.SandboxDeleted,
		models.KindPause: models.SandboxPaused, models.KindResume: models.SandboxRunning,
	}[kind]
}

func (b *modelBox) end(j *modelJob, to models.JobState) {
	j.State = to
	b.become(change(j.Kind, to))
}

func (m *machine) play(x step) error {
	b := m.boxes[x.box%len(m.boxes)]
	j := b.jobs[x.job%len(b.jobs)]
	if i := slices.IndexFunc(b.jobs, func(j *modelJob) bool { return !j.State.Terminal() }); x.oldest && i >= 0 {
		j = b.jobs[i]
	}
	switch x.do {
	case "exec", models.KindPause, models.KindResume, models.KindDelete:
		return m.submit(b, x.do, x.flag)
	case "claim":
		return m.claim(b, j, x.flag)
	case "succeed":
		return m.finish(b, j, j.claimed.Attempt, models.Succeeded)
	case "fail":
		return m.finish(b, j, j.claimed.Attempt, models.Failed)
	case "stale":
		return m.finish(b, j, j.claimed.Attempt-1, models.Succeeded)
	case "requeue":
		return m.requeue(j)
	case "cancel":
		return m.cancel(b, j)
	case "recover":
		return m.recover(b, j)
	}
	return m.beginDelete(b, j)
}

func (m *machine) submit(b *modelBox, kind string, parallel bool) error {
	job := newJob(kind, b.id)
	job.Parallel = parallel
	_, err := m.s.Submit(m.t.Context(), models.Submission{TenantID: "default", SandboxID: b.id, Jobs: []models.Job{job}})
	var ended *models.EndedError
	if refused := kind != models.KindDelete && (b.closed() || b.desired == models.DesiredDeleted); refused {
		if !errors.As(err, &ended) {
			return fmt.Errorf("a sandbox that ends takes a %s: %w", kind, err)
		}
		return nil
	}
	if err != nil {
		return err
	}
	j := &modelJob{Job: job}
	j.State = models.Queued
	b.jobs = append(b.jobs, j)
	switch {
	case kind == models.KindDelete && b.ended:
		j.State, j.Parallel = models.Succeeded, true
	case parallel:
		j.ready = b.state != models.SandboxCreating || kind == models.KindDelete
	default:
		b.promote()
	}
	wish, ok := map[string]string{
		models.KindDelete: models.DesiredDeleted, models.KindPause: models.DesiredPaused, models.KindResume: models.DesiredRunning,
	}[kind]
	if ok && b.desired != models.DesiredDeleted {
		b.desired = wish
	}
	return nil
}

// claim takes the job, with short under a lease that ends at once.
func (m *machine) claim(_ *modelBox, j *modelJob, short bool) error {
	span := lease
	if short {
		span = -time.Second
	}
	got, err := m.s.Claim(m.t.Context(), j.ID, "node", span)
	if j.State != models.Queued || !j.ready {
		return wantStale(err)
	}
	if err == nil {
		j.State, j.claimed, j.expired = models.Running, got, short
		if j.Attempt++; got.Attempt != j.Attempt {
			return fmt.Errorf("attempt %d, want %d", got.Attempt, j.Attempt)
		}
	}
	return err
}

func wantStale(err error) error {
	if !errors.Is(err, models.ErrStale) {
		return fmt.Errorf("want %w, got %w", models.ErrStale, err)
	}
	return nil
}

func (m *machine) finish(b *modelBox, j *modelJob, attempt int, to models.JobState) error {
	held := j.claimed
	held.ID, held.SandboxID, held.Kind, held.Attempt = j.ID, b.id, j.Kind, attempt
	o := outcome(held, to, "")
	if to == models.Succeeded {
		o.Sandbox.To = change(j.Kind, to)
	}
	_, err := m.s.Finish(m.t.Context(), o)
	if j.State != models.Running || attempt != j.Attempt {
		return wantStale(err)
	}
	if j.asked && to == models.Failed {
		to = models.Cancelled
	}
	b.end(j, to)
	return err
}

func (m *machine) requeue(j *modelJob) error {
	err := m.s.Requeue(m.t.Context(), models.Held{ID: j.ID, Attempt: j.Attempt}, 0, "why")
	if j.State != models.Running || j.asked {
		return wantStale(err)
	}
	j.State, j.ready, j.expired = models.Queued, true, false
	return err
}

func (m *machine) cancel(b *modelBox, j *modelJob) error {
	_, _, err := m.s.Cancel(m.t.Context(), "default", j.ID, "test")
	switch j.State {
	case models.Running:
		j.asked = true
	case models.Queued:
		if (j.Kind == models.KindDelete || j.Kind == models.KindPause) && !b.closed() {
			b.desired = models.DesiredRunning
		}
		b.end(j, models.Cancelled)
	default:
	}
	return err
}

func (m *machine) recover(b *modelBox, j *modelJob) error {
	_, err := m.s.Recover(m.t.Context(), models.Job{ID: j.ID, SandboxID: b.id, Kind: j.Kind, Attempt: j.Attempt})
	switch {
	case err != nil || j.State != models.Running || !j.expired:
	case j.asked:
		b.end(j, models.Cancelled)
	case j.Attempt >= 10 || b.ended && j.Kind != models.KindDelete:
		b.end(j, models.Lost)
	default:
		j.State, j.ready, j.expired = models.Queued, true, false
	}
	return err
}

func (m *machine) beginDelete(b *modelBox, j *modelJob) error {
	if j.Kind != models.KindDelete {
		return nil
	}
	_, err := m.s.BeginDelete(m.t.Context(), models.Job{ID: j.ID, SandboxID: b.id, Attempt: j.Attempt}, models.End{Reason: "deleted", Actor: "test"})
	if j.State != models.Running {
		return wantStale(err)
	}
	if b.ended {
		return err
	}
	b.state, b.desired = models.SandboxDeleting, models.DesiredDeleted
	ended := 0
	for _, other := range b.jobs {
		if other.State == models.Running && other.Kind != models.KindDelete {
			other.asked = true
		}
		if other.State == models.Queued && other.Kind != models.KindDelete {
			ended++
		}
	}
	if b.endQueued(models.Cancelled); ended > 0 {
		b.promote()
	}
	return err
}

// compare says where the database differs from the model.
func (m *machine) compare() error {
	for _, b := range m.boxes {
		box, err := m.s.Sandbox(m.t.Context(), "default", b.id)
		if err != nil {
			return err
		}
		if box.State != b.state || box.Desired != b.desired || (box.EndedAt != nil) != b.ended {
			return fmt.Errorf("sandbox is %s, desired %s, ended %v; want %s, %s, %v", box.State, box.Desired, box.EndedAt != nil, b.state, b.desired, b.ended)
		}
		rows, err := m.s.Jobs(m.t.Context(), "default", models.JobFilter{Sandbox: b.id, Limit: 1000})
		if err != nil || len(rows) != len(b.jobs) {
			return fmt.Errorf("%d jobs, want %d: %w", len(rows), len(b.jobs), err)
		}
		for i, j := range b.jobs {
			row := rows[len(rows)-1-i] // newest first
			if row.ID != j.ID || row.State != j.State || row.Attempt != j.Attempt || row.State == models.Queued && (row.ReadyAt != nil) != j.ready {
				return fmt.Errorf("job %d (%s) is %s at attempt %d, ready %v; want %s, %d, %v", i, j.Kind, row.State, row.Attempt, row.ReadyAt != nil, j.State, j.Attempt, j.ready)
			}
		}
	}
	return nil
}

// told says where a job's end was written down more than once or not at all.
func (m *machine) told() error {
	for _, b := range m.boxes {
		for _, j := range b.jobs {
			events, err := m.s.Events(m.t.Context(), "default", models.EventFilter{Job: j.ID, Limit: 1000})
			if err != nil {
				return err
			}
			ends := 0
			for _, e := range events {
				if state, ours := strings.CutPrefix(e.Event, "job."); ours && models.JobState(state).Terminal() && state == string(j.State) {
					ends++
				}
			}
			if want := map[bool]int{true: 1}[j.State.Terminal()]; ends != want {
				return fmt.Errorf("%s is %s, and its end is told %d times", j.Kind, j.State, ends)
			}
		}
	}
	return nil
}

// playAll plays the steps on new sandboxes and returns how many went well and what was wrong with the next.
func playAll(t *testing.T, s *models.Store, all []step) (int, error) {
	m := &machine{t: t, s: s}
	for range 2 {
		out := create(t, s, newSandbox())
		first := &modelJob{Job: out.Jobs[0], ready: true}
		m.boxes = append(m.boxes, &modelBox{id: out.Sandbox.ID, state: models.SandboxCreating, desired: models.DesiredRunning, jobs: []*modelJob{first}})
	}
	for i, x := range all {
		if err := m.play(x); err != nil {
			return i, err
		}
		if err := m.compare(); err != nil {
			return i, err
		}
	}
	return len(all), m.told()
}

// shrink leaves out what the failure does not need.
func shrink(t *testing.T, s *models.Store, all []step) []step {
	for i := len(all) - 1; i >= 0; i-- {
		fewer := append(append([]step{}, all[:i]...), all[i+1:]...)
		if _, err := playAll(t, s, fewer); err != nil {
			all = fewer
		}
	}
	return all
}

//nolint:gochecknoglobals // a flag of the test binary
var machineSeed = flag.Uint64("machine.seed", 0, "the random steps to play; 0 = by the clock")

// TestStoreIsTheStateMachine plays random calls on the store and on a model in memory, and compares them after each.
func TestStoreIsTheStateMachine(t *testing.T) {
	t.Parallel()
	const runs, length = 30, 30
	seed := *machineSeed
	if seed == 0 {
		seed = uint64(time.Now().UnixNano() % 1e9)
	}
	dsn := testenv.Database(t)
	s := openAt(t, dsn, 100_000)
	conn, err := pgx.Connect(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Exec(t.Context(), "UPDATE tenants SET max_sandboxes = 100000"); err != nil {
		t.Fatal(err)
	}
	if err := conn.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	rng, words := rand.New(rand.NewPCG(seed, seed)), steps()
	for range runs {
		var all []step
		for range length {
			all = append(all, step{words[rng.IntN(len(words))], rng.IntN(2), rng.IntN(8), rng.IntN(3) > 0, rng.IntN(3) == 0})
		}
		n, err := playAll(t, s, all)
		if err == nil {
			continue
		}
		least := shrink(t, s, all[:min(n+1, len(all))])
		_, why := playAll(t, s, least)
		t.Fatalf("%v\nwith the steps %v\nafter shrinking: %v\nagain by: go test ./models -run TestStoreIsTheStateMachine -args -machine.seed=%d", err, least, why, seed)
	}
}
