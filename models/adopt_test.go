package models_test

import (
	"database/sql"
	"slices"
	"testing"

	"sandyard/models"
)

// engine is the workers of one engine.
type engine struct {
	t  *testing.T
	s  *models.Store
	db *sql.DB
}

// beat is heard of a node, and says whether it has been for a lease.
func (e *engine) beat(id string, room int) (steady bool) {
	e.t.Helper()
	w, err := e.s.Register(e.t.Context(), e.node(id, room), lease)
	must(e.t, err)
	return w.Steady
}

func (e *engine) node(id string, room int) models.Node {
	return models.Node{ID: id, Provider: "fake", Engine: "engine", MaxSandboxes: room}
}

// age lets time pass in which nobody is heard of.
func (e *engine) age(by string, ids ...string) {
	e.t.Helper()
	for _, id := range ids {
		exec(e.t, e.db, `UPDATE nodes SET beat_at = beat_at - $1::interval, lease_until = lease_until - $1::interval,
			steady_since = steady_since - $1::interval WHERE id = $2`, by, id)
	}
}

// steady lets a node have been heard of for long.
func (e *engine) steady(id string, since string) {
	e.t.Helper()
	exec(e.t, e.db, "UPDATE nodes SET steady_since = now() - $1::interval WHERE id = $2", since, id)
}

func (e *engine) holds(node string, n int) {
	e.t.Helper()
	for range n {
		box := newSandbox()
		box.NodeID = &node
		create(e.t, e.s, box)
	}
}

// adopts wants the node to take over so many sandboxes.
func (e *engine) adopts(id string, room, want int) {
	e.t.Helper()
	got, _, err := e.s.Adopt(e.t.Context(), e.node(id, room), e.beat(id, room))
	must(e.t, err)
	if len(got) != want {
		e.t.Errorf("%s takes %d sandboxes over, want %d", id, len(got), want)
	}
}

// TestAdoptionLeavesTheLivingAlone: after an outage all workers seem to have died, and the first that is heard of again
// waits for the others.
func TestAdoptionLeavesTheLivingAlone(t *testing.T) {
	t.Parallel()
	s, db := openBeside(t)
	e := &engine{t, s, db}
	if e.beat("a", 10) || e.beat("b", 10) {
		t.Error("a new worker is taken for steady")
	}
	e.holds("b", 3)
	e.steady("a", "1 hour")
	if !e.beat("a", 10) {
		t.Error("a worker that was heard of all the time is not steady")
	}
	e.age("10 minutes", "a", "b")
	e.adopts("a", 10, 0) // which was away itself
	e.beat("b", 10)
	e.steady("a", "1 hour")
	e.adopts("a", 10, 0) // b lives
	e.age("10 minutes", "b")
	e.adopts("a", 10, 3)

	e.beat("c", 10)
	e.holds("c", 2)
	must(t, s.Retire(t.Context(), "c"))
	e.beat("d", 10)
	must(t, s.Retire(t.Context(), "a"))
	e.adopts("d", 10, 5) // is new, but they have said farewell
	if got := e.held("d"); got != 5 {
		t.Errorf("d holds %d", got)
	}
}

func (e *engine) held(node string) int {
	e.t.Helper()
	l, err := e.s.Load(e.t.Context(), node)
	must(e.t, err)
	return l.Sandboxes
}

// TestAdoptionGoesByRoom: where several workers could take over what another held, each takes what it has room for.
func TestAdoptionGoesByRoom(t *testing.T) {
	t.Parallel()
	s, db := openBeside(t)
	e := &engine{t, s, db}
	for _, id := range []string{"dead", "a", "b", "drained"} {
		e.beat(id, 6)
	}
	must(t, s.Drain(t.Context(), "drained", false))
	e.holds("dead", 6)
	e.holds("a", 3)
	e.age("5 seconds", "dead")
	exec(t, db, "UPDATE nodes SET lease_until = now() - interval '1 s' WHERE id = 'dead'")
	for _, id := range []string{"a", "b"} {
		e.steady(id, "1 hour")
	}
	e.adopts("a", 6, 2) // five of nine
	e.adopts("b", 6, 4)
	e.adopts("a", 6, 0)

	e.holds("dead", 7) // there is room for three
	e.adopts("a", 6, 3)
	e.adopts("b", 6, 4)

	e.holds("dead", 4)
	exec(t, db, "UPDATE sandboxes SET ended_at = now() WHERE node_id = 'b'")
	e.steady("a", "1 minute")
	e.adopts("a", 6, 0) // b has room, and lives
	e.age("1 hour", "dead")
	e.steady("a", "1 hour")
	e.adopts("a", 6, 4) // but does not take them
	if all := []int{e.held("a"), e.held("b"), e.held("drained"), e.held("dead")}; !slices.Equal(all, []int{12, 0, 0, 0}) {
		t.Errorf("a, b, the drained and the dead one hold %v", all)
	}
}

// TestADrainHasNoHeirBeforeItsTime: a drained worker that was merely away keeps its mark.
func TestADrainHasNoHeirBeforeItsTime(t *testing.T) {
	t.Parallel()
	s, db := openBeside(t)
	e := &engine{t, s, db}
	beat := func(id string) models.NodeOrders {
		t.Helper()
		n := e.node(id, 1)
		n.Name = "worker"
		w, err := s.Register(t.Context(), n, lease)
		must(t, err)
		return w
	}
	drained := func(id string, want bool) {
		t.Helper()
		var is bool
		must(t, db.QueryRowContext(t.Context(), "SELECT draining_at IS NOT NULL FROM nodes WHERE id = $1", id).Scan(&is))
		if is != want {
			t.Errorf("%s is drained: %v", id, is)
		}
	}
	beat("old")
	must(t, s.Drain(t.Context(), "old", false))
	exec(t, db, "UPDATE nodes SET draining_at = draining_at - interval '1 hour'")
	e.age("1 hour", "old")
	if w := beat("new"); !w.Draining {
		t.Error("a possible heir takes sandboxes")
	}
	drained("old", true)
	drained("new", false)
	e.steady("new", "1 minute")
	beat("new")
	drained("old", false)
	drained("new", true)
}
