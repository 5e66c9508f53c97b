package models_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"sandyard/dev/testdb"
	"sandyard/models"
)

// step is one call on the store. Its numbers choose a sandbox and a job of it, whatever there are by then.
type step struct {
	do       string
	box, job int
	oldest   bool // not that sandbox but one that lives, and not that job but the oldest that has not ended
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
		"exec", "exec", "exec", "pause", "pause", "resume", "resume", "delete",
		"claim", "claim", "claim", "claim", "claim", "succeed", "succeed", "succeed", "fail", "fail", "fail", "stale",
		"requeue", "park", "freeze", "freeze", "cancel", "cancel", "recover", "recover", "begin delete", "force", "keyed", "keyed", "late", "expire", "expire",
		models.KindExecWait, models.KindExecSignal,
		"new", "new", "new", "beat", "beat", "retire", "adopt", "drain", "undrain", "place", "place", "place", "place", "lose", "lose", "lose", "recreate", "recreate", "recreate", "recreate",
	}
}

// machine is a tenant with a few sandboxes and nodes in the database and what should be known of them.
type machine struct {
	t      *testing.T
	s      *models.Store
	look   *pgx.Conn // past the store
	tenant string    // also the name of its sandboxes' provider
	boxes  []*modelBox
	nodes  []*modelNode
	keys   map[string]modelKey // of idempotency
}

// modelBox is a sandbox as this test thinks of it.
type modelBox struct {
	id          string
	state       models.SandboxState
	desired     string
	node        string // that holds it
	ended       bool   // for good
	replaced    bool   // another has taken its place
	recreations int
	pauses      bool // at its timeout
	failed      bool // a pause of it has, and time asks for none for a while
	jobs        []*modelJob
	pausedBy    *modelJob
}

type modelJob struct {
	models.Job
	ready, expired, asked bool // expired: its lease has ended; asked: to stop
	late                  bool // its queue deadline has passed
	claimed               models.Job
	node                  string // that has claimed it last
}

func (b *modelBox) closed() bool { return b.ended || b.state == models.SandboxDeleting }

// promote makes the oldest ordered job ready, unless it is frozen.
func (b *modelBox) promote() {
	for _, j := range b.jobs {
		if !j.Parallel && !j.State.Terminal() {
			j.ready = j.ready || !j.left() || b.state != models.SandboxPaused
			return
		}
	}
}

// endQueued ends what waits, but deletes.
func (b *modelBox) endQueued(to models.JobState) {
	for _, j := range b.jobs {
		if j.State == models.Queued && j.Kind != models.KindDelete {
			switch {
			case j.asked:
				j.State = models.Cancelled
			case to == models.Failed && j.left():
				j.State = models.Lost
			default:
				j.State = to
			}
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
	if b.become(change(j.Kind, to)); change(j.Kind, to) == models.SandboxPaused && b.state == models.SandboxPaused {
		b.pausedBy = j
	}
	if b.settle(j); b.state == models.SandboxPaused {
		b.letPast()
	}
}

// settle is what the end of a job that came with a wish leaves of it.
func (b *modelBox) settle(j *modelJob) {
	back := j.Kind == models.KindDelete && j.State == models.Cancelled
	switch {
	case wishes()[j.Kind] == "", j.Kind == models.KindDelete && !back, b.closed(), b.desired == models.DesiredDeleted && !back:
		return
	}
	b.failed = b.failed || j.Kind == models.KindPause && j.State != models.Succeeded
	b.desired = models.DesiredRunning
	if b.state == models.SandboxPaused {
		b.desired = models.DesiredPaused
	}
	for i, open := range b.jobs {
		if wish := wishes()[open.Kind]; wish != "" && !open.State.Terminal() && !b.overtaken(i) {
			b.desired = wish
		}
	}
}

// overtaken says that a job is a pause of which a later resume runs or is done.
func (b *modelBox) overtaken(i int) bool {
	return b.jobs[i].Kind == models.KindPause && slices.ContainsFunc(b.jobs[i+1:], func(later *modelJob) bool {
		return later.Kind == models.KindResume && (later.State == models.Running || later.State == models.Succeeded)
	})
}

func wishes() map[string]string {
	return map[string]string{
		models.KindDelete: models.DesiredDeleted, models.KindPause: models.DesiredPaused, models.KindResume: models.DesiredRunning,
	}
}

// stuck says that the sandbox is wished to be what it is not while no job is left that would make it so.
func (b *modelBox) stuck() bool {
	for _, j := range b.jobs {
		if wishes()[j.Kind] != "" && !j.State.Terminal() {
			return false
		}
	}
	return !b.closed() && b.desired != models.DesiredDeleted && (b.desired == models.DesiredPaused) != (b.state == models.SandboxPaused)
}

func (m *machine) play(x step) error {
	b := m.boxes[x.box%len(m.boxes)]
	if live := m.live(); x.oldest && len(live) > 0 {
		b = live[x.box%len(live)]
	}
	j := b.jobs[x.job%len(b.jobs)]
	if i := slices.IndexFunc(b.jobs, func(j *modelJob) bool { return !j.State.Terminal() }); x.oldest && i >= 0 {
		j = b.jobs[i]
	}
	if other := m.others()[x.do]; other != nil {
		return other(b, j, x)
	}
	switch x.do {
	case "exec", models.KindPause, models.KindResume, models.KindDelete, models.KindExecWait, models.KindExecSignal:
		return m.submit(b, models.Submission{}, m.job(x.do, b, x.flag))
	case "claim":
		return m.claim(b, j, x)
	case "succeed":
		return m.finish(b, j, j.claimed.Attempt, models.Succeeded)
	case "fail":
		return m.finish(b, j, j.claimed.Attempt, models.Failed)
	case "stale":
		return m.finish(b, j, j.claimed.Attempt-1, models.Succeeded)
	case "requeue":
		return m.requeue(j, x.flag, x.oldest)
	case "park":
		return m.park(b, j)
	case "cancel":
		return m.cancel(b, j)
	case "recover":
		return m.recover(b, j)
	}
	return m.beginDelete(b, j)
}

// job is one to submit.
func (m *machine) job(kind string, b *modelBox, parallel bool) models.Job {
	j := newJob(kind, b.id)
	j.TenantID, j.Parallel = m.tenant, parallel
	return j
}

// submit submits one job with what else sub says.
func (m *machine) submit(b *modelBox, sub models.Submission, job models.Job) error {
	sub.TenantID, sub.SandboxID, sub.Jobs = m.tenant, b.id, []models.Job{job}
	_, err := m.s.Submit(m.t.Context(), sub)
	if job.Kind != models.KindDelete && (b.closed() || b.desired == models.DesiredDeleted) {
		if ended := (*models.EndedError)(nil); !errors.As(err, &ended) {
			return fmt.Errorf("a sandbox that ends takes a %s: %w", job.Kind, err)
		}
		return nil
	}
	if err == nil {
		b.add(job)
	}
	return err
}

// add is what becomes of an accepted job.
func (b *modelBox) add(job models.Job) {
	j := &modelJob{Job: job, late: job.QueueDeadline != nil}
	j.State = models.Queued
	b.jobs = append(b.jobs, j)
	switch {
	case job.Kind == models.KindDelete && b.ended:
		j.State, j.Parallel = models.Succeeded, true
	case b.overtakes(job):
		j.ready = true
	case j.Parallel:
		j.ready = b.state != models.SandboxCreating || job.Kind == models.KindDelete
	default:
		b.promote()
	}
	if wish := wishes()[job.Kind]; wish != "" && b.desired != models.DesiredDeleted {
		b.desired = wish
	}
}

// overtakes says whether a job goes past those ahead of it: a resume of what is paused, or about to be by a pause that does,
// and a delete where no resume is on its way.
func (b *modelBox) overtakes(job models.Job) bool {
	switch {
	case job.Kind != models.KindResume && job.Kind != models.KindDelete:
		return false
	case b.state == models.SandboxPaused:
		return job.Kind == models.KindResume || b.desired == models.DesiredPaused
	}
	return b.state == models.SandboxRunning && b.desired == models.DesiredPaused && slices.ContainsFunc(b.jobs, func(j *modelJob) bool {
		return j.Kind == models.KindPause && j.Parallel && !j.State.Terminal()
	})
}

// claim takes the job for the node that holds the sandbox, or else for any, with short under a lease that ends at once.
func (m *machine) claim(b *modelBox, j *modelJob, x step) error {
	span, node := lease, m.nodes[x.job/4%len(m.nodes)].id
	if x.flag {
		span = -time.Second
	}
	if b.node != "" && x.job%4 > 0 {
		node = b.node
	}
	got, err := m.s.Claim(m.t.Context(), j.ID, node, span)
	if j.State != models.Queued || !j.ready || b.node != "" && b.node != node {
		return wantStale(err)
	}
	if err == nil {
		j.State, j.claimed, j.expired, j.node = models.Running, got, x.flag, node
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
	b.endNow()
	return errors.Join(err, m.dispatch())
}

// endNow is a forced end: what waits is cancelled and what runs is asked to stop.
func (b *modelBox) endNow() {
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
}

// compare says where the database differs from the model.
func (m *machine) compare() error {
	for _, b := range m.boxes {
		box, err := m.s.Sandbox(m.t.Context(), m.tenant, b.id)
		if err != nil {
			return err
		}
		if node := value(box.NodeID); node != b.node {
			return fmt.Errorf("sandbox is held by %q, want %q", node, b.node)
		}
		if box.State != b.state || box.Desired != b.desired || (box.EndedAt != nil) != b.ended {
			return fmt.Errorf("sandbox is %s, desired %s, ended %v; want %s, %s, %v", box.State, box.Desired, box.EndedAt != nil, b.state, b.desired, b.ended)
		}
		if b.stuck() {
			return fmt.Errorf("sandbox is %s and desired %s, and nothing will change that", b.state, b.desired)
		}
		rows, err := m.s.Jobs(m.t.Context(), m.tenant, models.JobFilter{Sandbox: b.id, Limit: 1000})
		if err != nil || len(rows) != len(b.jobs) {
			return fmt.Errorf("%d jobs, want %d: %w", len(rows), len(b.jobs), err)
		}
		for i, j := range b.jobs {
			row := rows[len(rows)-1-i] // newest first
			if row.ID != j.ID || row.State != j.State || row.Attempt != j.Attempt || row.Handovers != j.Handovers || row.State == models.Queued && (row.ReadyAt != nil) != j.ready {
				return fmt.Errorf("job %d (%s) is %s at attempt %d, ready %v; want %s, %d, %v", i, j.Kind, row.State, row.Attempt, row.ReadyAt != nil, j.State, j.Attempt, j.ready)
			}
		}
	}
	return errors.Join(m.compareDue(), m.compareClocks(), m.compareWindow(), m.compareNodes())
}

// told says where a job's end was written down more than once or not at all.
func (m *machine) told() error {
	for _, b := range m.boxes {
		for _, j := range b.jobs {
			events, err := m.s.Events(m.t.Context(), m.tenant, models.EventFilter{Job: j.ID, Limit: 1000})
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
func playAll(t *testing.T, s *models.Store, look *pgx.Conn, all []step) (int, error) {
	m := newMachine(t, s, look)
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
func shrink(t *testing.T, s *models.Store, look *pgx.Conn, all []step) []step {
	for i := len(all) - 1; i >= 0; i-- {
		fewer := append(append([]step{}, all[:i]...), all[i+1:]...)
		if _, err := playAll(t, s, look, fewer); err != nil {
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
	const runs, length = 30, 40
	seed := *machineSeed
	if seed == 0 {
		seed = uint64(time.Now().UnixNano() % 1e9)
	}
	dsn := testdb.New(t)
	s := openAt(t, dsn, machineWindow)
	conn, err := pgx.Connect(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	rng, words := rand.New(rand.NewPCG(seed, seed)), steps()
	for range runs {
		var all []step
		for range length {
			all = append(all, step{words[rng.IntN(len(words))], rng.IntN(8), rng.IntN(8), rng.IntN(3) > 0, rng.IntN(3) == 0})
		}
		n, err := playAll(t, s, conn, all)
		if err == nil {
			continue
		}
		least := shrink(t, s, conn, all[:min(n+1, len(all))])
		_, why := playAll(t, s, conn, least)
		t.Fatalf("%v\nwith the steps %v\nafter shrinking: %v\nagain by: go test ./models -run TestStoreIsTheStateMachine -args -machine.seed=%d", err, least, why, seed)
	}
}
