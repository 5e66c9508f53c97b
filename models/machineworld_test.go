package models_test

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"sandyard/models"
)

const (
	machineWindow = 2 // jobs of a tenant in Redis, per lane
	machineRoom   = 2 // sandboxes of a node
	machineEngine = "engine"
)

// modelNode is a worker as this test thinks of it.
type modelNode struct {
	id             string
	live, draining bool
}

// modelKey is what stands under an idempotency key.
type modelKey struct {
	request byte
	job     string
}

// newMachine makes a tenant with two nodes and two sandboxes, one of which runs already.
func newMachine(t *testing.T, s *models.Store, look *pgx.Conn) *machine {
	m := &machine{t: t, s: s, look: look, tenant: models.NewID("t"), keys: map[string]modelKey{}}
	m.stopClocks()
	_, err := look.Exec(t.Context(), "INSERT INTO tenants (id, name, max_sandboxes, webhook_secret) VALUES ($1, $1, 1000, 'whsec_')", m.tenant)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		n := &modelNode{id: models.NewID("n"), live: true}
		m.nodes = append(m.nodes, n)
		if _, err := s.Register(t.Context(), m.row(n), lease); err != nil {
			t.Fatal(err)
		}
		if err := m.create(m.box()); err != nil {
			t.Fatal(err)
		}
	}
	b := m.boxes[1]
	if err := errors.Join(m.claim(b, b.jobs[0], step{}), m.place(b, m.nodes[0]), m.finish(b, b.jobs[0], 1, models.Succeeded)); err != nil {
		t.Fatal(err)
	}
	return m
}

func (m *machine) row(n *modelNode) models.Node {
	return models.Node{ID: n.id, Provider: m.tenant, Engine: machineEngine, MaxSandboxes: machineRoom}
}

func (m *machine) create(box *models.Sandbox) error {
	box.TenantID, box.Provider = m.tenant, m.tenant
	b := &modelBox{id: box.ID, state: models.SandboxCreating, desired: models.DesiredRunning, recreations: box.Recreations, pauses: box.OnTimeout == "pause"}
	job := m.job(models.KindCreate, b, false)
	submitted := job
	submitted.Parallel = len(m.boxes)%2 == 1 // which a create ignores
	_, err := m.s.Submit(m.t.Context(), models.Submission{
		TenantID: m.tenant, SandboxID: box.ID, New: box, Timeout: time.Minute, Jobs: []models.Job{submitted},
	})
	if err == nil {
		b.add(job)
		m.boxes = append(m.boxes, b)
	}
	return err
}

// others are the calls that concern more than one job.
func (m *machine) others() map[string]func(*modelBox, *modelJob, step) error {
	return map[string]func(*modelBox, *modelJob, step) error{
		"force": func(b *modelBox, _ *modelJob, _ step) error { return m.force(b) },
		"keyed": func(b *modelBox, _ *modelJob, x step) error {
			return m.keyed(b, fmt.Sprint("k", x.job%3), map[bool]byte{true: 1}[x.flag])
		},
		"late":     func(b *modelBox, _ *modelJob, x step) error { return m.late(b, x.flag) },
		"freeze":   func(b *modelBox, j *modelJob, _ step) error { return m.freeze(b, j) },
		"expire":   func(b *modelBox, j *modelJob, _ step) error { return m.expire(b, j) },
		"new":      func(*modelBox, *modelJob, step) error { return m.another() },
		"beat":     func(_ *modelBox, _ *modelJob, x step) error { return m.beat(m.node(x), x.flag, x.box > 5) },
		"retire":   func(_ *modelBox, _ *modelJob, x step) error { return m.retire(m.node(x)) },
		"adopt":    func(_ *modelBox, _ *modelJob, x step) error { return m.adopt(m.node(x)) },
		"drain":    func(_ *modelBox, _ *modelJob, x step) error { return m.drain(m.node(x)) },
		"undrain":  func(_ *modelBox, _ *modelJob, x step) error { return m.undrain(m.node(x)) },
		"place":    func(b *modelBox, _ *modelJob, x step) error { return m.begin(b, m.node(x)) },
		"lose":     func(b *modelBox, _ *modelJob, x step) error { return m.lose(b, x.flag) },
		"recreate": func(b *modelBox, _ *modelJob, x step) error { return m.recreate(m.aLost(b, x.oldest)) },
	}
}

// live are the sandboxes that have not ended.
func (m *machine) live() []*modelBox {
	return slices.DeleteFunc(slices.Clone(m.boxes), func(b *modelBox) bool { return b.ended })
}

// another makes a sandbox, unless there are plenty.
func (m *machine) another() error {
	if len(m.live()) > 5 {
		return nil
	}
	return m.create(m.box())
}

// box is a row for a sandbox; every other one pauses at its timeout.
func (m *machine) box() *models.Sandbox {
	box := newSandbox()
	box.OnLost, box.IdleTimeoutMS, box.PausedTimeoutMS = models.OnLostRecreate, 1, 1
	if len(m.boxes)%2 == 0 {
		box.OnTimeout = "pause"
	}
	return box
}

// aLost is a sandbox that was lost, if one is wanted and there is one, or else b.
func (m *machine) aLost(b *modelBox, wanted bool) *modelBox {
	i := slices.IndexFunc(m.boxes, func(b *modelBox) bool { return b.state == models.SandboxLost })
	if !wanted || i < 0 {
		return b
	}
	return m.boxes[i]
}

func (m *machine) node(x step) *modelNode { return m.nodes[x.job%len(m.nodes)] }

// dispatch is what follows a call that leaves it to others.
func (m *machine) dispatch() error {
	_, err := m.s.DispatchReady(m.t.Context(), m.tenant)
	return err
}

// force is a delete that does not wait.
func (m *machine) force(b *modelBox) error {
	sub := models.Submission{End: &models.End{Reason: "deleted", Actor: "test"}}
	if !b.ended {
		b.endNow()
	}
	return m.submit(b, sub, m.job(models.KindDelete, b, true))
}

// keyed submits a command under one of a few keys, as one of two requests.
func (m *machine) keyed(b *modelBox, key string, request byte) error {
	job := m.job("exec", b, false)
	known, taken := m.keys[key]
	if !taken {
		before := len(b.jobs)
		err := m.submit(b, models.Submission{IdempotencyKey: key, Request: []byte{request}}, job)
		if len(b.jobs) > before {
			m.keys[key] = modelKey{request, job.ID}
		}
		return err
	}
	out, err := m.s.Submit(m.t.Context(), models.Submission{
		TenantID: m.tenant, SandboxID: b.id, Jobs: []models.Job{job}, IdempotencyKey: key, Request: []byte{request},
	})
	switch {
	case request != known.request && !errors.Is(err, models.ErrKeyReused):
		return fmt.Errorf("another request under the same key: %w", err)
	case request == known.request && (err != nil || !out.Replayed || out.Jobs[0].ID != known.job):
		return fmt.Errorf("the same request is not answered as before: %w", err)
	}
	return nil
}

// late submits a command that has waited too long already.
func (m *machine) late(b *modelBox, parallel bool) error {
	job, past := m.job("exec", b, parallel), time.Now().Add(-time.Hour)
	job.QueueDeadline = &past
	return m.submit(b, models.Submission{}, job)
}

func (m *machine) expire(b *modelBox, j *modelJob) error {
	_, err := m.s.Expire(m.t.Context(), models.Job{ID: j.ID, SandboxID: b.id, Kind: j.Kind})
	if j.State == models.Queued && j.late && !j.left() {
		b.end(j, models.Expired)
	}
	return err
}

func (m *machine) all() (all []*modelJob) {
	for _, b := range m.boxes {
		all = append(all, b.jobs...)
	}
	return all
}

// beat is a node's heartbeat, with short for a lease that ends at once. It names whatever the node has ever claimed, or
// of that only what it has lost.
func (m *machine) beat(n *modelNode, short, stale bool) error {
	span := lease
	if short {
		span = -time.Second
	}
	var held []models.AttemptRef
	want := map[models.LeaseRenewal]bool{}
	for _, j := range m.all() {
		if j.node != n.id || j.claimed.Attempt == 0 {
			continue
		}
		held = append(held, models.AttemptRef{ID: j.ID, Attempt: j.claimed.Attempt - 1})
		if stale {
			continue
		}
		held = append(held, models.AttemptRef{ID: j.ID, Attempt: j.claimed.Attempt})
		if j.State == models.Running && j.Attempt == j.claimed.Attempt {
			want[models.LeaseRenewal{ID: j.ID, Attempt: j.Attempt, Cancel: j.asked}] = true
			j.expired = short
		}
	}
	wanted, beats, err := m.s.Heartbeat(m.t.Context(), m.row(n), held, span)
	n.live = !short
	got := map[models.LeaseRenewal]bool{}
	for _, b := range beats {
		got[b] = true
	}
	if len(got) != len(want) || wanted.Draining != n.draining {
		return fmt.Errorf("the heartbeat learns %v, draining %v; want %v, %v: %w", got, wanted.Draining, want, n.draining, err)
	}
	for b := range want {
		if !got[b] {
			return fmt.Errorf("the heartbeat learns %v, want %v", got, want)
		}
	}
	return err
}

// retire ends the node's lease with those of its jobs.
func (m *machine) retire(n *modelNode) error {
	n.live = false
	for _, j := range m.all() {
		if j.State == models.Running && j.node == n.id {
			j.expired = true
		}
	}
	return m.s.Retire(m.t.Context(), n.id)
}

// adopt gives a node what dead ones held.
func (m *machine) adopt(n *modelNode) error {
	if !n.live { // it beats before it adopts
		return nil
	}
	got, _, err := m.s.Adopt(m.t.Context(), m.row(n), true)
	var want []string
	for _, b := range m.boxes {
		if held := m.nodeOf(b); held != nil && !held.live && !b.ended {
			want, b.node = append(want, b.id), n.id
		}
	}
	slices.Sort(want)
	if err == nil && !slices.Equal(got, want) {
		return fmt.Errorf("adopted %v, want %v", got, want)
	}
	return err
}

func (m *machine) nodeOf(b *modelBox) *modelNode {
	for _, n := range m.nodes {
		if n.id == b.node {
			return n
		}
	}
	return nil
}

func (m *machine) drain(n *modelNode) error {
	err := m.s.Drain(m.t.Context(), n.id, false)
	if !n.live {
		return wantError(err, models.ErrNotFound)
	}
	n.draining = true
	return err
}

func (m *machine) undrain(n *modelNode) error {
	err := m.s.Undrain(m.t.Context(), n.id)
	if !n.live && !n.draining {
		return wantError(err, models.ErrNotFound)
	}
	n.draining = false
	return err
}

func wantError(got, want error) error {
	if !errors.Is(got, want) {
		return fmt.Errorf("want %w, got %w", want, got)
	}
	return nil
}

// begin has the node take up the sandbox's create, if it can, and begin it.
func (m *machine) begin(b *modelBox, n *modelNode) error {
	if j := b.jobs[0]; j.State == models.Queued && b.node == "" {
		got, err := m.s.Claim(m.t.Context(), j.ID, n.id, lease)
		if err != nil {
			return err
		}
		j.State, j.claimed, j.expired, j.node = models.Running, got, false, n.id
		j.Attempt++
	}
	return m.place(b, n)
}

// place has the node begin the sandbox's create.
func (m *machine) place(b *modelBox, n *modelNode) error {
	j := b.jobs[0]
	_, err := m.s.BeginCreate(m.t.Context(), models.Job{ID: j.ID, SandboxID: b.id, Attempt: j.Attempt}, models.Holder{Node: n.id, Provider: m.tenant})
	ended, full, placed := (*models.EndedError)(nil), (*models.RoomError)(nil), (*models.PlacedError)(nil)
	home := m.choose(n)
	switch {
	case j.State != models.Running:
		return wantStale(err)
	case b.closed():
		if !errors.As(err, &ended) {
			return fmt.Errorf("an ended sandbox is placed: %w", err)
		}
		return nil
	case b.node == n.id:
		return err
	case home == nil:
		if !errors.As(err, &full) {
			return fmt.Errorf("a sandbox is placed where no room is: %w", err)
		}
		return nil
	}
	if b.node = home.id; home != n && (!errors.As(err, &placed) || placed.Node != home.id) {
		return fmt.Errorf("want it placed on %s: %w", home.id, err)
	}
	if home != n {
		return nil
	}
	return err
}

// choose is the node that gets a sandbox which self wants to make.
func (m *machine) choose(self *modelNode) *modelNode {
	holds := map[string]int{}
	for _, b := range m.boxes {
		if !b.ended {
			holds[b.node]++
		}
	}
	fits := slices.DeleteFunc(slices.Clone(m.nodes), func(n *modelNode) bool {
		return !n.live || n.draining || holds[n.id] >= machineRoom
	})
	if len(fits) == 0 {
		return nil
	}
	best := slices.MinFunc(fits, func(x, y *modelNode) int { return cmp.Compare(holds[x.id], holds[y.id]) })
	if slices.Contains(fits, self) && holds[self.id] <= holds[best.id] { // a quarter of two is none
		return self
	}
	return best
}

// lose reports that the engine, or another one, has the sandbox no more.
func (m *machine) lose(b *modelBox, elsewhere bool) error {
	on := models.Node{Provider: m.tenant, Engine: machineEngine}
	if b.node == "" {
		on.Engine = ""
	}
	if elsewhere {
		on.Engine = "another"
	}
	_, err := m.s.MarkLost(m.t.Context(), b.id, on, "gone")
	if elsewhere || b.ended || b.desired == models.DesiredDeleted || b.state != models.SandboxRunning && b.state != models.SandboxPaused {
		return wantError(err, models.ErrNotDue)
	}
	for _, j := range b.jobs {
		if j.State == models.Running && j.expired || j.State == models.Queued && (j.Kind == models.KindDelete || j.Attempt > 0) {
			if j.State = models.Lost; j.asked {
				j.State = models.Cancelled
			}
		}
	}
	b.endQueued(models.Failed)
	b.state, b.ended = models.SandboxLost, true
	return err
}

// recreate makes another sandbox in the place of one that was lost.
func (m *machine) recreate(b *modelBox) error {
	row, err := m.s.Sandbox(m.t.Context(), m.tenant, b.id)
	if err != nil {
		return err
	}
	err = m.create(row.Replacement())
	if b.state != models.SandboxLost || b.replaced {
		return wantError(err, models.ErrNotDue)
	}
	b.replaced = true
	return err
}

// compareDue says where the store's lists of what is due differ from the model.
func (m *machine) compareDue() error {
	expired, err := m.s.ExpiredLeases(m.t.Context(), time.Now(), 10_000)
	late, err2 := m.s.PastDeadline(m.t.Context(), 10_000)
	lost, err3 := m.s.DueRecreations(m.t.Context(), 10_000)
	if err := errors.Join(err, err2, err3); err != nil {
		return err
	}
	got, want := map[string]bool{}, map[string]bool{}
	for _, j := range expired {
		got["lease of "+j.ID] = true
	}
	for _, j := range late {
		got["deadline of "+j.ID] = true
	}
	for _, b := range lost {
		got["place of "+b.ID] = true
	}
	mine := map[string]bool{}
	for _, b := range m.boxes {
		due := b.state == models.SandboxLost && !b.replaced && b.recreations < 5
		mine["place of "+b.id], want["place of "+b.id] = true, due
		for _, j := range b.jobs {
			mine["lease of "+j.ID], want["lease of "+j.ID] = true, j.State == models.Running && j.expired
			mine["deadline of "+j.ID], want["deadline of "+j.ID] = true, j.State == models.Queued && j.late && !j.left()
		}
	}
	for what := range mine {
		if got[what] != want[what] {
			return fmt.Errorf("%s is due: %v, want %v", what, got[what], want[what])
		}
	}
	return nil
}

// compareWindow says where more waits in Redis than may, or less than could.
func (m *machine) compareWindow() error {
	if err := m.dispatch(); err != nil { // a claim has made room, which the next submission, end or sweep fills
		return err
	}
	rows, err := m.look.Query(m.t.Context(), `
		SELECT kind, dispatched_at IS NOT NULL, queue FROM jobs
		WHERE tenant_id = $1 AND state = 'queued' AND (dispatched_at IS NOT NULL OR ready_at <= now())`, m.tenant)
	if err != nil {
		return err
	}
	var kind string
	var queue *string
	var sent bool
	unclaimed, waiting := map[models.Lane]int{}, map[models.Lane]int{}
	_, err = pgx.ForEachRow(rows, []any{&kind, &sent, &queue}, func() error {
		if !sent {
			waiting[models.LaneOf(kind)]++
			return nil
		}
		unclaimed[models.LaneOf(kind)]++
		if to := value(queue); to != m.tenant && !strings.HasPrefix(to, "node-") {
			return fmt.Errorf("a %s is sent to queue %s", kind, to)
		}
		return nil
	})
	for lane := range models.Lanes() {
		if unclaimed[lane] > machineWindow || unclaimed[lane] < machineWindow && waiting[lane] > 0 {
			return errors.Join(err, fmt.Errorf("lane %q has %d in Redis and %d waiting; the window is %d", lane, unclaimed[lane], waiting[lane], machineWindow))
		}
	}
	return err
}

// compareNodes says where nodes differ from the model.
func (m *machine) compareNodes() error {
	all, err := m.s.Nodes(m.t.Context())
	for _, n := range m.nodes {
		i := slices.IndexFunc(all, func(l models.NodeLoad) bool { return l.ID == n.id })
		if i < 0 || all[i].Live != n.live || (all[i].DrainingAt != nil) != n.draining {
			return fmt.Errorf("node %s is not live %v, draining %v: %+v, %w", n.id, n.live, n.draining, all, err)
		}
	}
	return err
}

func value(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}
