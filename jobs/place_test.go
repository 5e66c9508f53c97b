package jobs_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"sandyard/dev/jobsrig"
	"sandyard/dev/testenv"
	"sandyard/jobs"
	"sandyard/jobs/kind"
	"sandyard/jobs/worker"
	"sandyard/models"
	"sandyard/providers/fake"
)

// onEngine is a worker on an engine of its own.
func (r *rig) onEngine(name string, room worker.Room) *worker.Worker {
	r.T.Helper()
	state := fake.NewState()
	r.T.Cleanup(state.Close)
	return r.WorkerOn(state, 4, func(c *worker.Config) { c.Engine, c.Room = name, room })
}

// held counts the live sandboxes by node.
func (r *rig) held() map[string]int {
	r.T.Helper()
	all, err := r.Store.Nodes(r.T.Context())
	r.Must(err)
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
				box, job := r.Create(c.wish)
				boxes, made = append(boxes, box), append(made, job)
			}
			for _, job := range made {
				if j := r.Wait(job); j.State != models.Succeeded {
					t.Fatalf("a create ended %s: %+v", j.State, j.Error)
				}
			}
			if held := r.held(); held[small.Node()] != 2 || held[large.Node()] != 4 {
				t.Errorf("held %v, want 2 by %s and 4 by %s", held, small.Node(), large.Node())
			}
			_, late := r.Create(c.wish)
			r.Eventually("the one too many is told that there is no room", func() bool { return strings.Contains(r.whyRequeued(late), "none of 2 workers has room") })
			r.Wait(r.Submit(boxes[0], &kind.Delete{}, jobsrig.Options()))
			if j := r.Wait(late); j.State != models.Succeeded {
				t.Errorf("with room again it ended %s: %+v", j.State, j.Error)
			}
		})
	}
}

// whyRequeued is why the job was last given back.
func (r *rig) whyRequeued(job string) string {
	r.T.Helper()
	events, err := r.Store.Events(r.T.Context(), jobsrig.Tenant, models.EventFilter{Job: job, Limit: 100})
	r.Must(err)
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
		_, job := r.Create(jobs.CreateSandbox{})
		made = append(made, job)
	}
	for _, job := range made {
		r.Wait(job)
	}
	second := r.onEngine("second", worker.Room{Sandboxes: 8})
	for range 4 {
		_, job := r.Create(jobs.CreateSandbox{})
		r.Wait(job)
	}
	if held := r.held(); held[second.Node()] < 2 || held[first.Node()]+held[second.Node()] != 8 {
		t.Errorf("held %v: the second, %s, was left empty", held, second.Node())
	}
}

func TestDrainedNodeTakesNoNewSandboxes(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	drained := r.onEngine("drained", worker.Room{Sandboxes: 10})
	old, _ := r.Create(jobs.CreateSandbox{})
	r.Wait(r.Exec(old, "fake:stdout before"))
	r.Must(r.Store.Drain(t.Context(), drained.Node(), false))
	_, waiting := r.Create(jobs.CreateSandbox{})
	r.Eventually("a create waits", func() bool { return strings.Contains(r.whyRequeued(waiting), "1 are draining") })
	other := r.onEngine("other", worker.Room{Sandboxes: 10})
	if j := r.Wait(waiting); j.State != models.Succeeded {
		t.Fatalf("it ended %s: %+v", j.State, j.Error)
	}
	for range 3 {
		_, job := r.Create(jobs.CreateSandbox{})
		r.Wait(job)
	}
	if j := r.Wait(r.Exec(old, "fake:stdout after")); string(j.Stdout) != "after" {
		t.Errorf("in the drained node's sandbox: %s %+v", j.State, j.Error)
	}
	if held := r.held(); fmt.Sprint(held[drained.Node()], held[other.Node()]) != "1 4" {
		t.Errorf("held %v by %s (drained) and %s", held, drained.Node(), other.Node())
	}
	r.Must(r.Store.Drain(t.Context(), other.Node(), false))
	r.Must(r.Store.Undrain(t.Context(), drained.Node()))
	_, job := r.Create(jobs.CreateSandbox{})
	r.Wait(job)
	if held := r.held(); held[drained.Node()] != 2 {
		t.Errorf("not drained any more it holds %v", held)
	}
	if err := r.Store.Drain(t.Context(), "nobody", true); err == nil {
		t.Error("nobody can be drained")
	}
}

func TestLeavingIsToldOnce(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	w := r.onEngine("engine", worker.Room{})
	r.Must(r.Store.Drain(t.Context(), w.Node(), true))
	<-w.Leaving()
	if err := r.Store.Undrain(t.Context(), w.Node()); err == nil {
		t.Error("who leaves cannot stay")
	}
}

// TestDrainOutlivesTheProcess: what an operator has drained is so until he says otherwise, however its process ended, and
// nobody else is.
func TestDrainOutlivesTheProcess(t *testing.T) {
	testenv.Long(t, "it takes many seconds")
	t.Parallel()
	for name, end := range map[string]func(*rig, *worker.Worker){
		"stopped": func(r *rig, w *worker.Worker) { w.Stop(r.T.Context()) },
		"killed": func(r *rig, w *worker.Worker) { // its lease is as a kill leaves it
			w.Stop(r.T.Context())
			r.SQL("UPDATE nodes SET lease_until = now() + interval '3 seconds' WHERE id = $1", w.Node())
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			old, sibling := r.onEngine("engine", worker.Room{}), r.onEngine("engine", worker.Room{})
			r.Must(r.Store.Drain(t.Context(), old.Node(), false))
			end(r, old)
			again := r.onEngine("engine", worker.Room{})
			if s := r.nodeState(again.Node()); s != "draining" {
				t.Errorf("started again it is %s", s)
			}
			_, created := r.Create(jobs.CreateSandbox{})
			r.Wait(created)
			if held := r.held(); held[sibling.Node()] != 1 {
				t.Errorf("the sandbox went to the drained node: %v", held)
			}
			r.Eventually("the mark is handed on", func() bool {
				nodes, err := r.Store.Nodes(t.Context())
				r.Must(err)
				marks := map[string]bool{}
				for _, n := range nodes {
					marks[n.ID] = n.DrainingAt != nil
				}
				return marks[again.Node()] && !marks[old.Node()] && !marks[sibling.Node()]
			})
			another := r.onEngine("engine", worker.Room{})
			r.Eventually("one has inherited it, and no other", func() bool { return r.nodeState(another.Node()) == "live" })
			r.Must(r.Store.Undrain(t.Context(), again.Node()))
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
				return r.Worker(4, func(c *worker.Config) { c.Name = name })
			}
			old := named(c.old)
			r.Must(r.Store.Drain(t.Context(), old.Node(), false))
			old.Stop(t.Context())
			r.SQL("UPDATE nodes SET host = 'another' WHERE id = $1", old.Node())
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
	r.T.Helper()
	nodes, err := r.Store.Nodes(r.T.Context())
	r.Must(err)
	for _, node := range nodes {
		if node.DrainingAt != nil {
			n++
		}
	}
	return n
}

func (r *rig) nodeState(id string) string {
	r.T.Helper()
	nodes, err := r.Store.Nodes(r.T.Context())
	r.Must(err)
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
	r.Scheduler()
	w := r.onEngine("engine", worker.Room{})
	r.Must(r.Store.Drain(t.Context(), w.Node(), false))
	w.Stop(t.Context())
	r.SQL("UPDATE nodes SET lease_until = now() - interval '1 day'")
	dead, err := r.Store.DeadNodes(t.Context(), time.Now(), time.Minute)
	r.Must(err)
	if len(dead) != 0 {
		t.Errorf("the drained node is to be forgotten: %v", dead)
	}
	r.Must(r.Store.Undrain(t.Context(), w.Node()))
	next := r.onEngine("engine", worker.Room{})
	if s := r.nodeState(next.Node()); s != "live" {
		t.Errorf("after undrain it is %s", s)
	}
	r.Must(r.Store.Drain(t.Context(), next.Node(), true))
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
	r.Must(r.Store.Drain(t.Context(), old.Node(), false))
	old.Stop(t.Context())
	r.SQL("UPDATE nodes SET lease_until = now() + interval '1 hour' WHERE id = $1", old.Node()) // nobody knows that it is dead
	heir := r.onEngine("engine", worker.Room{})
	if s := r.nodeState(heir.Node()); s != "draining" {
		t.Errorf("the heir is %s", s)
	}
	r.Must(r.Store.Undrain(t.Context(), heir.Node()))
	if s := r.nodeState(heir.Node()); s != "live" {
		t.Errorf("undrained it is %s", s)
	}
	r.SQL("UPDATE nodes SET lease_until = now() WHERE id = $1", old.Node())
	if s := r.nodeState(r.onEngine("engine", worker.Room{}).Node()); s != "live" {
		t.Errorf("the next one is %s", s)
	}
}
