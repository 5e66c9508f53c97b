package jobs_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"sandyard/dev/testenv"
	"sandyard/jobs"
	"sandyard/jobs/kind"
	"sandyard/jobs/worker"
	"sandyard/models"
	"sandyard/providers/fake"
)

// onEngine is a worker on an engine of its own.
func (r *rig) onEngine(name string, room worker.Room) *worker.Worker {
	r.t.Helper()
	state := fake.NewState()
	r.t.Cleanup(state.Close)
	return r.workerOn(state, 4, func(c *worker.Config) { c.Engine, c.Room = name, room })
}

// held counts the live sandboxes by node.
func (r *rig) held() map[string]int {
	r.t.Helper()
	all, err := r.store.Nodes(r.t.Context())
	r.must(err)
	held := map[string]int{}
	for _, n := range all {
		held[n.ID] = n.Sandboxes
	}
	return held
}

func TestSandboxesGoWhereThereIsRoom(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		small, large worker.Room
		wish         jobs.CreateSandbox
	}{
		"by number": {small: worker.Room{Sandboxes: 2}, large: worker.Room{Sandboxes: 4}},
		"by memory": {small: worker.Room{MemoryMB: 250}, large: worker.Room{MemoryMB: 400}, wish: jobs.CreateSandbox{MemoryMB: 100}},
		"by cores":  {small: worker.Room{CPUs: 1}, large: worker.Room{CPUs: 2, Sandboxes: 100}, wish: jobs.CreateSandbox{CPUs: 0.5}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			small, large := r.onEngine("small", c.small), r.onEngine("large", c.large)
			var boxes, made []string
			for range 6 {
				box, job := r.create(c.wish)
				boxes, made = append(boxes, box), append(made, job)
			}
			for _, job := range made {
				if j := r.wait(job); j.State != models.Succeeded {
					t.Fatalf("a create ended %s: %+v", j.State, j.Error)
				}
			}
			if held := r.held(); held[small.Node()] != 2 || held[large.Node()] != 4 {
				t.Errorf("held %v, want 2 by %s and 4 by %s", held, small.Node(), large.Node())
			}
			_, late := r.create(c.wish)
			r.eventually("the one too many is told that there is no room", func() bool { return strings.Contains(r.whyRequeued(late), "none of 2 workers has room") })
			r.wait(r.submit(boxes[0], &kind.Delete{}, options()))
			if j := r.wait(late); j.State != models.Succeeded {
				t.Errorf("with room again it ended %s: %+v", j.State, j.Error)
			}
		})
	}
}

// whyRequeued is why the job was last given back.
func (r *rig) whyRequeued(job string) string {
	r.t.Helper()
	events, err := r.store.Events(r.t.Context(), tenant, models.EventFilter{Job: job, Limit: 100})
	r.must(err)
	for _, e := range events {
		if e.Event == "job.requeued" && e.Reason != nil {
			return *e.Reason
		}
	}
	return ""
}

// Nodes that are alike are filled alike: none is left empty while another is a quarter fuller.
func TestSandboxesSpread(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	first := r.onEngine("first", worker.Room{Sandboxes: 8})
	var made []string
	for range 4 {
		_, job := r.create(jobs.CreateSandbox{})
		made = append(made, job)
	}
	for _, job := range made {
		r.wait(job)
	}
	second := r.onEngine("second", worker.Room{Sandboxes: 8})
	for range 4 {
		_, job := r.create(jobs.CreateSandbox{})
		r.wait(job)
	}
	if held := r.held(); held[second.Node()] < 2 || held[first.Node()]+held[second.Node()] != 8 {
		t.Errorf("held %v: the second, %s, was left empty", held, second.Node())
	}
}

func TestDrainedNodeTakesNoNewSandboxes(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	drained := r.onEngine("drained", worker.Room{Sandboxes: 10})
	old, _ := r.create(jobs.CreateSandbox{})
	r.wait(r.exec(old, "fake:stdout before"))
	r.must(r.store.Drain(t.Context(), drained.Node(), false))
	_, waiting := r.create(jobs.CreateSandbox{})
	r.eventually("a create waits", func() bool { return strings.Contains(r.whyRequeued(waiting), "1 are draining") })
	other := r.onEngine("other", worker.Room{Sandboxes: 10})
	if j := r.wait(waiting); j.State != models.Succeeded {
		t.Fatalf("it ended %s: %+v", j.State, j.Error)
	}
	for range 3 {
		_, job := r.create(jobs.CreateSandbox{})
		r.wait(job)
	}
	if j := r.wait(r.exec(old, "fake:stdout after")); string(j.Stdout) != "after" {
		t.Errorf("in the drained node's sandbox: %s %+v", j.State, j.Error)
	}
	if held := r.held(); fmt.Sprint(held[drained.Node()], held[other.Node()]) != "1 4" {
		t.Errorf("held %v by %s (drained) and %s", held, drained.Node(), other.Node())
	}
	r.must(r.store.Drain(t.Context(), other.Node(), false))
	r.must(r.store.Undrain(t.Context(), drained.Node()))
	_, job := r.create(jobs.CreateSandbox{})
	r.wait(job)
	if held := r.held(); held[drained.Node()] != 2 {
		t.Errorf("not drained any more it holds %v", held)
	}
	if err := r.store.Drain(t.Context(), "nobody", true); err == nil {
		t.Error("nobody can be drained")
	}
}

func TestLeavingIsToldOnce(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	w := r.onEngine("engine", worker.Room{})
	r.must(r.store.Drain(t.Context(), w.Node(), true))
	<-w.Leaving()
	if err := r.store.Undrain(t.Context(), w.Node()); err == nil {
		t.Error("who leaves cannot stay")
	}
}

// TestDrainOutlivesTheProcess: what an operator has drained is so until he says otherwise, however its process ended, and
// nobody else is.
func TestDrainOutlivesTheProcess(t *testing.T) {
	testenv.Long(t, "it takes many seconds")
	t.Parallel()
	for name, end := range map[string]func(*rig, *worker.Worker){
		"stopped": func(r *rig, w *worker.Worker) { w.Stop(r.t.Context()) },
		"killed": func(r *rig, w *worker.Worker) { // its lease is as a kill leaves it
			w.Stop(r.t.Context())
			r.sql("UPDATE nodes SET lease_until = now() + interval '3 seconds' WHERE id = $1", w.Node())
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			old, sibling := r.onEngine("engine", worker.Room{}), r.onEngine("engine", worker.Room{})
			r.must(r.store.Drain(t.Context(), old.Node(), false))
			end(r, old)
			again := r.onEngine("engine", worker.Room{})
			if s := r.nodeState(again.Node()); s != "draining" {
				t.Errorf("started again it is %s", s)
			}
			_, created := r.create(jobs.CreateSandbox{})
			r.wait(created)
			if held := r.held(); held[sibling.Node()] != 1 {
				t.Errorf("the sandbox went to the drained node: %v", held)
			}
			r.eventually("the mark is handed on", func() bool {
				nodes, err := r.store.Nodes(t.Context())
				r.must(err)
				marks := map[string]bool{}
				for _, n := range nodes {
					marks[n.ID] = n.DrainingAt != nil
				}
				return marks[again.Node()] && !marks[old.Node()] && !marks[sibling.Node()]
			})
			another := r.onEngine("engine", worker.Room{})
			r.eventually("one has inherited it, and no other", func() bool { return r.nodeState(another.Node()) == "live" })
			r.must(r.store.Undrain(t.Context(), again.Node()))
			if s := r.nodeState(again.Node()); s != "live" {
				t.Errorf("undrained it is %s", s)
			}
			again.Stop(t.Context())
			if s := r.nodeState(r.onEngine("engine", worker.Room{}).Node()); s != "live" {
				t.Errorf("started once more it is %s", s)
			}
		})
	}
}

// TestDrainFindsTheNameAgain where the host's name is a new one, as that of a container is.
func TestDrainFindsTheNameAgain(t *testing.T) {
	testenv.Long(t, "it takes many seconds")
	t.Parallel()
	for name, c := range map[string]struct{ old, again, state string }{
		"the same":    {"yard", "yard", "draining"},
		"another":     {"yard", "house", "live"},
		"none":        {"", "", "live"},
		"a host's":    {"yard", "", "live"},
		"not by host": {"", "yard", "live"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			named := func(name string) *worker.Worker {
				return r.worker(4, func(c *worker.Config) { c.Name = name })
			}
			old := named(c.old)
			r.must(r.store.Drain(t.Context(), old.Node(), false))
			old.Stop(t.Context())
			r.sql("UPDATE nodes SET host = 'another' WHERE id = $1", old.Node())
			again := named(c.again)
			if s := r.nodeState(again.Node()); s != c.state {
				t.Errorf("started again it is %s, want %s", s, c.state)
			}
			if n := r.marks(); n != 1 {
				t.Errorf("%d nodes are drained", n)
			}
		})
	}
}

// marks counts the drained nodes.
func (r *rig) marks() (n int) {
	r.t.Helper()
	nodes, err := r.store.Nodes(r.t.Context())
	r.must(err)
	for _, node := range nodes {
		if node.DrainingAt != nil {
			n++
		}
	}
	return n
}

func (r *rig) nodeState(id string) string {
	r.t.Helper()
	nodes, err := r.store.Nodes(r.t.Context())
	r.must(err)
	for _, n := range nodes {
		if n.ID == id {
			return n.State()
		}
	}
	return "unknown"
}

// TestDeadNodeCanBeUndrained: the mark is kept while the process is away, and may be taken away meanwhile; who was told to
// leave has no heir.
func TestDeadNodeCanBeUndrained(t *testing.T) {
	testenv.Long(t, "it takes many seconds")
	t.Parallel()
	r := newRig(t)
	r.scheduler()
	w := r.onEngine("engine", worker.Room{})
	r.must(r.store.Drain(t.Context(), w.Node(), false))
	w.Stop(t.Context())
	r.sql("UPDATE nodes SET lease_until = now() - interval '1 day'")
	dead, err := r.store.DeadNodes(t.Context(), time.Now(), time.Minute)
	r.must(err)
	if len(dead) != 0 {
		t.Errorf("the drained node is to be forgotten: %v", dead)
	}
	r.must(r.store.Undrain(t.Context(), w.Node()))
	next := r.onEngine("engine", worker.Room{})
	if s := r.nodeState(next.Node()); s != "live" {
		t.Errorf("after undrain it is %s", s)
	}
	r.must(r.store.Drain(t.Context(), next.Node(), true))
	<-next.Leaving()
	next.Stop(t.Context())
	if s := r.nodeState(r.onEngine("engine", worker.Room{}).Node()); s != "live" {
		t.Errorf("the successor of one that left is %s", s)
	}
}

// TestHeirCanBeUndrained, also while it is not known whether it is one.
func TestHeirCanBeUndrained(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	old := r.onEngine("engine", worker.Room{})
	r.must(r.store.Drain(t.Context(), old.Node(), false))
	old.Stop(t.Context())
	r.sql("UPDATE nodes SET lease_until = now() + interval '1 hour' WHERE id = $1", old.Node()) // nobody knows that it is dead
	heir := r.onEngine("engine", worker.Room{})
	if s := r.nodeState(heir.Node()); s != "draining" {
		t.Errorf("the heir is %s", s)
	}
	r.must(r.store.Undrain(t.Context(), heir.Node()))
	if s := r.nodeState(heir.Node()); s != "live" {
		t.Errorf("undrained it is %s", s)
	}
	r.sql("UPDATE nodes SET lease_until = now() WHERE id = $1", old.Node())
	if s := r.nodeState(r.onEngine("engine", worker.Room{}).Node()); s != "live" {
		t.Errorf("the next one is %s", s)
	}
}
