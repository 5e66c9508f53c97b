//go:build attack

package attack

import (
	"time"
)

// sleepers fills the worker with commands that wait, and the intruder's window with more.
func sleepers(s *stage) {
	const boxes, each, lasts = 2, 150, "25"
	var own []string
	for range boxes {
		own = append(own, s.intruder.box(s.t, object{"memory_mb": 256, "disk_mb": 16, "pids": 512}))
	}
	answers := &tally{}
	s.atOnce(16, func(n int) {
		for i := n; i < boxes*each; i += 16 {
			answers.add(s.intruder.post("/v1/sandboxes/"+own[i%boxes]+"/exec", object{"argv": []string{"sleep", lasts}, "parallel": true}))
		}
	})
	begun := time.Now()
	s.neighbour.livesOn(s)
	s.intruder.ownEnds(s)
	left := s.count(s.t, "SELECT count(*) FROM jobs WHERE tenant_id = $1 AND state IN ('queued', 'running')", other)
	if left == 0 {
		s.t.Errorf("all commands had ended after %v: the attack proves nothing", time.Since(begun))
	}
	s.reached("%d commands that sleep %s s: %v; the neighbour was done with %d of them left", boxes*each, lasts, answers, left)
}

// livesOn does what must not wait for another tenant: a sandbox is made, paused, resumed, and ended by force and by its timeout.
func (n *neighbour) livesOn(s *stage) {
	limit := object{"memory_mb": 64, "disk_mb": 8}
	step := func(what string, r reply) string {
		if !r.ok() {
			s.breach("the neighbour's %s is answered %v", what, r)
			return ""
		}
		out := into[accepted](s.t, r)
		if !out.Job.ended() {
			s.breach("the neighbour's %s has not ended within its wait", what)
		}
		return out.Sandbox.ID
	}
	box := step("create", n.post("/v1/sandboxes?wait=10s", limit))
	if box == "" {
		return
	}
	step("pause", n.post("/v1/sandboxes/"+box+"/pause?wait=10s", nil))
	step("resume", n.post("/v1/sandboxes/"+box+"/resume?wait=10s", nil))
	step("write", n.post("/v1/sandboxes/"+box+"/files/write?wait=10s", object{"path": "a", "content": "b"}))
	step("forced delete", n.do(request{method: "DELETE", path: "/v1/sandboxes/" + box + "?force=true&wait=10s"}))
}

// ownEnds has a sandbox of the intruder's own end by its timeout, behind all that the intruder has queued.
func (i *intruder) ownEnds(s *stage) {
	r := i.post("/v1/sandboxes?wait=10s", object{"memory_mb": 64, "disk_mb": 8, "timeout_seconds": 1})
	if !r.ok() {
		s.breach("a sandbox of the flooding tenant's own: %v", r)
		return
	}
	box := into[accepted](s.t, r).Sandbox.ID
	deadline := time.Now().Add(10 * time.Second)
	for time.Now().Before(deadline) {
		if state := i.get("/v1/sandboxes/" + box).text("state"); state == "deleted" || state == "failed" {
			return
		}
	}
	s.breach("a timeout of one second of the flooding tenant's own sandbox has not ended it after ten")
}
