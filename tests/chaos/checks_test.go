//go:build chaos

package chaos

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
)

// The checks, by the names under which they fail.
const (
	checkEnds      = "every job has ended"
	checkOnce      = "one end per job"
	checkAccepted  = "what was accepted is there"
	checkFence     = "results belong to the last attempt"
	checkResult    = "results are those of the job"
	checkEffect    = "effects happened once"
	checkOrder     = "jobs of a sandbox ran in order"
	checkFiles     = "files hold what was written last"
	checkRerun     = "no more attempts than faults"
	checkRows      = "rows and resources agree"
	checkLeft      = "nothing is left"
	checkCallbacks = "callbacks came"
	checkErrors    = "failures are explained"
	checkTried     = "enough was tried"
)

// jobsPerSecond is what the clients get through at the least, also on a busy machine and with faults.
const jobsPerSecond = 4

// finding is a promise that was broken.
type finding struct{ check, text string }

// trial is what the checks look at, and what they found.
type trial struct {
	h         *history
	length    time.Duration // of the load
	clients   []*client
	faults    faults
	workers   map[string]string // by their nodes' ids, the name of the process
	finished  []logLine         // what workers say they have finished
	givenBack []logLine         // and what to have given back
	hooks     *hooks
	anchors   map[string]time.Time // from where the times of schedules counted
	findings  []finding
}

func (t *trial) find(check, format string, args ...any) {
	t.findings = append(t.findings, finding{check, fmt.Sprintf(format, args...)})
}

func (t *trial) each(f func(*op)) {
	for _, c := range t.clients {
		for _, o := range c.ops {
			f(o)
		}
	}
}

// judge makes all checks that need no system any more.
func (t *trial) judge() {
	t.endedOnce()
	t.accepted()
	t.fenced()
	t.results()
	t.effects()
	t.order()
	t.files()
	t.reruns()
	t.callbacks()
	t.explained()
	t.ticks()
	t.built()
	t.dues()
	t.woken()
	t.enough()
}

// enough refuses a run that has tried too little to prove anything.
func (t *trial) enough() {
	could, was := map[string]int{}, map[string]int{}
	for _, j := range t.h.jobs {
		could[j.Kind]++
		if j.State == "succeeded" || j.State == "timed_out" {
			was[j.Kind]++
		}
	}
	for kind, n := range could {
		if n >= 10 && was[kind] == 0 {
			t.find(checkTried, "none of %d jobs of the kind %s was carried out", n, kind)
		}
	}
	if least := int(t.length.Seconds() * jobsPerSecond); len(t.h.jobs) < least {
		t.find(checkTried, "only %d jobs in %v, want %d", len(t.h.jobs), t.length, least)
	}
}

func (t *trial) endedOnce() {
	for _, id := range slices.Sorted(maps.Keys(t.h.jobs)) {
		ends := t.h.counted(id, isEnd)
		events := t.h.events[id]
		switch {
		case !terminal(t.h.jobs[id].State):
			t.find(checkEnds, "%s", t.h.tell(id))
		case ends != 1 || !isEnd(lastState(events)):
			t.find(checkOnce, "%d ends: %s", ends, t.h.tell(id))
		}
	}
}

// lastState is the last event that is a change of state.
func lastState(events []eventRow) string {
	for _, e := range slices.Backward(events) {
		if e.Event != "cancel_requested" {
			return e.Event
		}
	}
	return ""
}

func (t *trial) accepted() {
	t.each(func(o *op) {
		keyed := t.h.keys[o.key]
		switch {
		case o.job == "":
			return
		case t.h.jobs[o.job].ID == "":
			t.find(checkAccepted, "job %s of %s was accepted and is not there", o.job, o.what)
		case keyed != "" && keyed != o.job:
			t.find(checkAccepted, "the key %s was answered with %s and belongs to %s", o.key, o.job, keyed)
		}
		if o.what == "create" || o.what == "delete" || o.what == "run" {
			return
		}
		if keyed == "" {
			t.find(checkAccepted, "the key %s of job %s is not there", o.key, o.job)
		}
	})
}

// fenced compares what the workers say they have written with what stands in the rows.
func (t *trial) fenced() {
	for _, l := range t.givenBack {
		if t.h.takenAway(l.JobID, l.Attempt) {
			t.find(checkFence, "attempt %d was taken from its silent worker, which has given the job back all the same: %s", l.Attempt, t.h.tell(l.JobID))
		}
	}
	by := map[string][]logLine{}
	for _, l := range t.finished {
		by[l.JobID] = append(by[l.JobID], l)
	}
	for _, id := range slices.Sorted(maps.Keys(t.h.jobs)) {
		j := t.h.jobs[id]
		// A claim whose answer was lost is made again, by the same worker, and is no start of its own.
		if n := t.h.counted(id, isRunning); n > j.Attempt || n < j.Attempt && t.faults.between(j.QueuedAt.Add(-recovery), t.endOf(j), anyFault) == 0 {
			t.find(checkFence, "%d starts for %d attempts: %s", n, j.Attempt, t.h.tell(id))
		}
		if len(by[id]) > 1 {
			t.find(checkFence, "%d workers have written its end (%+v): %s", len(by[id]), by[id], t.h.tell(id))
		}
		for _, l := range by[id] {
			if l.Attempt != j.Attempt || l.State != j.State && j.State != "cancelled" {
				t.find(checkFence, "attempt %d has written %q over attempt %d: %s", l.Attempt, l.State, j.Attempt, t.h.tell(id))
			}
		}
	}
}

func (t *trial) results() {
	t.each(func(o *op) {
		if !o.end.ended() || o.end.State != "succeeded" || o.stdout == "" && o.exit == 0 || o.what == "background" {
			return
		}
		if o.end.Stdout != o.stdout || o.end.Result.ExitCode != o.exit {
			t.find(checkResult, "op %d (%s) brought %q and exit %d, want %q and %d: %s",
				o.n, o.what, o.end.Stdout, o.end.Result.ExitCode, o.stdout, o.exit, t.h.tell(o.job))
		}
	})
}

// seqOf is the order in which a sandbox's jobs were accepted.
func (t *trial) seqOf(o *op) int64 { return t.h.jobs[t.jobOf(o)].Seq }

// jobOf is the op's job, also of one whose answer was never heard.
func (t *trial) jobOf(o *op) string { return cmp.Or(o.job, t.h.keys[o.key]) }

// effects looks through everything that was read of what ops append.
func (t *trial) effects() {
	for _, b := range t.boxes() {
		for _, look := range b.ops {
			switch {
			case look.what != "look" || look.end.State != "succeeded":
			case look.reads == ticksFile:
				t.ticksIn(b, look)
			case look.reads == typedFile:
				t.typedIn(b, look)
			default:
				t.effectsIn(b, look)
			}
		}
	}
}

func (t *trial) boxes() []*box {
	var all []*box
	for _, c := range t.clients {
		all = append(all, c.boxes...)
	}
	return all
}

func (t *trial) effectsIn(b *box, look *op) {
	lines := strings.Fields(strings.TrimSuffix(look.end.Content, "END\n"))
	seen := map[string]int{}
	for _, line := range lines {
		seen[line]++
	}
	for _, o := range b.ops {
		job := t.jobOf(o)
		if o.file != look.reads || job == "" {
			continue
		}
		n := seen[strconv.Itoa(o.n)]
		delete(seen, strconv.Itoa(o.n))
		state, before := t.h.jobs[job].State, t.seqOf(o) < t.seqOf(look)
		switch {
		case n > 1:
			t.find(checkEffect, "op %d stands %d times in %s: %s", o.n, n, look.reads, t.h.tell(job))
		case n == 0 && before && state == "succeeded" && !o.parallel && o.file != "bglog":
			t.find(checkEffect, "op %d has succeeded and left nothing in %s (%s): %s", o.n, look.reads, look.job, t.h.tell(job))
		case n == 1 && t.h.jobs[job].Attempt == 0:
			t.find(checkEffect, "op %d never ran and stands in %s: %s", o.n, look.reads, t.h.tell(job))
		}
	}
	for line, n := range seen {
		t.find(checkEffect, "%q stands %d times in %s of %s, which nobody wrote", line, n, look.reads, b.id)
	}
	if look.reads == "log" || look.reads == "edits" {
		t.inOrder(b, look, lines)
	}
}

// inOrder compares the lines with the order of submission.
func (t *trial) inOrder(b *box, look *op, lines []string) {
	seq := map[string]int64{}
	for _, o := range b.ops {
		if o.file == look.reads {
			seq[strconv.Itoa(o.n)] = t.seqOf(o)
		}
	}
	for i := 1; i < len(lines); i++ {
		if seq[lines[i]] < seq[lines[i-1]] {
			t.find(checkOrder, "in %s of %s line %s stands behind %s: %.2000s", look.reads, b.id, lines[i], lines[i-1], strings.Join(lines, " "))
		}
	}
}

// order looks at when ordered jobs ran: none before the one before it had ended.
func (t *trial) order() {
	by := map[string][]jobRow{}
	for _, j := range t.h.jobs {
		if !j.Parallel && j.Attempt > 0 {
			by[j.SandboxID] = append(by[j.SandboxID], j)
		}
	}
	for _, list := range by {
		slices.SortFunc(list, func(a, b jobRow) int { return cmp.Compare(a.Seq, b.Seq) })
		var ahead eventRow // the last end of those ahead
		for _, j := range list {
			began, ran := t.h.first(j.ID, isRunning)
			// A resume may be all that lets those ahead end, and so may the delete of a paused sandbox.
			passes := j.Kind == "resume" || j.Kind == "delete" && t.h.jobs[ahead.JobID].Code == "sandbox_paused"
			if ran && began.ID < ahead.ID && !passes {
				t.find(checkOrder, "a job began before the one ahead of it had ended:\n    %s\n    %s", t.h.tell(ahead.JobID), t.h.tell(j.ID))
			}
			if ended, done := t.h.first(j.ID, isEnd); done && ended.ID > ahead.ID {
				ahead = ended
			}
		}
	}
}

// files replays what was written in order, and compares it with what was read.
func (t *trial) files() {
	for _, b := range t.boxes() {
		ops := slices.Clone(b.ops)
		ops = slices.DeleteFunc(ops, func(o *op) bool { return t.jobOf(o) == "" || o.value == "" && !strings.HasPrefix(o.reads, "f") })
		slices.SortFunc(ops, func(a, b *op) int { return cmp.Compare(t.seqOf(a), t.seqOf(b)) })
		may := map[string][]string{}
		for _, o := range ops {
			j := t.h.jobs[t.jobOf(o)]
			if path, value, isWrite := strings.Cut(o.value, "="); isWrite {
				switch {
				case j.State == "succeeded":
					may[path] = []string{value}
				case j.Attempt > 0: // nobody knows
					may[path] = append(may[path], value)
				}
				continue
			}
			if o.end.State == "succeeded" && !slices.Contains(may[o.reads], o.end.Content) {
				t.find(checkFiles, "%s of %s holds %q, want one of %v: %s", o.reads, b.id, o.end.Content, may[o.reads], t.h.tell(o.job))
			}
		}
	}
}

// recovery is how long a fault may go on to be felt: a lease ends, the sweep comes by, an engine comes back.
const recovery = 3 * lease

// reruns holds every start after the first against the faults: what sent a job back to the queue must have had one of its own
// kind about, and no job was taken from a worker more often than something had silenced that one in the job's life.
func (t *trial) reruns() {
	for _, id := range slices.Sorted(maps.Keys(t.h.jobs)) {
		j, taken := t.h.jobs[id], map[string]int{}
		for _, e := range t.h.events[id] {
			if e.Event != "requeued" || strings.HasPrefix(e.Reason, "the sandbox is paused") || // that waits for its resume
				strings.HasPrefix(e.Reason, "an earlier pause or resume") {
				continue
			}
			if t.faults.between(e.At.Add(-recovery), e.At, t.causes(e)) == 0 {
				t.find(checkRerun, "back from %s (%s), and no fault was about that has this effect: %s", e.Node, t.workers[e.Node], t.h.tell(id))
			}
			if e.silent() {
				taken[e.Node]++
			}
		}
		for node, lost := range taken {
			if n := t.faults.between(j.QueuedAt.Add(-recovery), t.endOf(j), t.silences(node)); lost > n {
				t.find(checkRerun, "%d attempts were lost to %d faults of %s: %s", lost, n, t.workers[node], t.h.tell(id))
			}
		}
	}
}

func (t *trial) endOf(j jobRow) time.Time {
	if j.FinishedAt == nil {
		return time.Now()
	}
	return *j.FinishedAt
}

func (t *trial) callbacks() {
	t.each(func(o *op) {
		if !o.callback || o.job == "" {
			return
		}
		ids, state := t.hooks.of(o.job), t.h.calls[o.job]
		if len(ids) > 1 || state == "" || state == "failed" || state == "delivered" && len(ids) == 0 {
			t.find(checkCallbacks, "its callback is %q and came under %v: %s", state, ids, t.h.tell(o.job))
		}
	})
}

// explained refuses ends that name no cause which users could understand.
func (t *trial) explained() {
	for _, id := range slices.Sorted(maps.Keys(t.h.jobs)) {
		if j := t.h.jobs[id]; j.Code == "internal" || j.Code == "" && (j.State == "failed" || j.State == "lost") {
			t.find(checkErrors, "%s", t.h.tell(id))
		}
	}
}
