//go:build attack

package attack

import (
	"fmt"
	"slices"
	"sync"
	"time"
)

// neighbour is the tenant that is attacked.
type neighbour struct {
	*caller
	heart string // a sandbox in which it works without a break
	owns  belongings
}

// latencies are the 99th percentiles of the neighbour's work.
type latencies struct {
	exec, submit time.Duration
	n            int
}

func (l latencies) String() string {
	return fmt.Sprintf("exec p99 %d ms, submit p99 %d ms, of %d", l.exec.Milliseconds(), l.submit.Milliseconds(), l.n)
}

// pulse is the neighbour at work: one command after the other, each of which must come to its end.
type pulse struct {
	*neighbour
	stage  *stage // nil = nothing is being attacked
	stop   chan struct{}
	done   sync.WaitGroup
	exec   []time.Duration
	submit []time.Duration
}

// Deadlines of the neighbour's work while an attack is played. They are no figures of performance: a command that does
// not end within them has been stopped by the attack.
const (
	submitDeadline = 10 * time.Second
	execDeadline   = 15 * time.Second
)

func (n *neighbour) pulse(s *stage) *pulse {
	p := &pulse{neighbour: n, stage: s, stop: make(chan struct{})}
	p.done.Go(p.beat)
	return p
}

func (p *pulse) beat() {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		p.once()
		select {
		case <-tick.C:
		case <-p.stop:
			return
		}
	}
}

// once submits a command and waits for its end.
func (p *pulse) once() {
	begun := time.Now()
	out := p.do(request{method: "POST", path: "/v1/sandboxes/" + p.heart + "/exec", body: object{"command": "true"}, patience: submitDeadline})
	if !out.ok() {
		p.missed("the neighbour's submission", out)
		return
	}
	p.submit = append(p.submit, time.Since(begun))
	id := into[accepted](p.rig.t, out).Job.ID
	end := p.do(request{method: "GET", path: "/v1/jobs/" + id + "?wait=15s&fields=state,error", patience: execDeadline + 5*time.Second})
	if !end.ok() {
		p.missed("the neighbour's wait", end)
		return
	}
	if j := into[job](p.rig.t, end); j.State != "succeeded" {
		p.complain("the neighbour's command has not succeeded after %v: %s", time.Since(begun).Round(time.Second), j.State)
	}
	p.exec = append(p.exec, time.Since(begun))
}

func (p *pulse) missed(what string, r reply) {
	if r.err != nil {
		p.complain("%s was not answered", what)
		return
	}
	p.complain("%s was answered %d %s", what, r.status, r.text("code"))
}

func (p *pulse) complain(format string, args ...any) {
	if p.stage == nil {
		p.rig.t.Errorf("alone: "+format, args...)
		return
	}
	p.stage.breach(format, args...)
}

func (p *pulse) end() latencies {
	close(p.stop)
	p.done.Wait()
	if len(p.exec) == 0 {
		p.complain("no command of the neighbour's came to its end")
	}
	return latencies{percentile(p.exec), percentile(p.submit), len(p.exec)}
}

func percentile(all []time.Duration) time.Duration {
	if len(all) == 0 {
		return 0
	}
	slices.Sort(all)
	return all[min(len(all)-1, len(all)*99/100)]
}

// alone measures the neighbour while nothing else happens.
func (n *neighbour) alone() latencies {
	p := &pulse{neighbour: n}
	for range 300 {
		p.once()
	}
	return latencies{percentile(p.exec), percentile(p.submit), len(p.exec)}
}
