//go:build attack

package attack

import (
	"strings"
	"sync"
)

// largeAnswers has the API read and write what takes much memory from requests that are small.
func largeAnswers(s *stage) {
	box := s.intruder.own(s.t)
	s.intruder.do(request{method: "POST", path: "/v1/sandboxes/" + box + "/exec?wait=60s", large: true, body: object{
		"command": `head -c 8M /dev/zero | tr '\0' '\1'; head -c 8M /dev/zero | tr '\0' '\1' >&2`, "max_output_bytes": 8 << 20,
	}})
	list := into[struct{ Jobs []job }](s.t, s.intruder.get("/v1/jobs?limit=1&kind=exec&fields=id"))
	if len(list.Jobs) == 0 {
		s.t.Fatal("there is no job whose output could be read")
	}
	answers := &tally{}
	for _, path := range []string{"", "?wait=30s", "?fields=state", "?fields=stdout"} {
		s.atOnce(16, func(int) {
			answers.add(s.intruder.do(request{method: "GET", path: "/v1/jobs/" + list.Jobs[0].ID + path, large: true}))
		})
	}
	s.reached("16 MiB of control characters, 64 readers: %v", answers)
}

// largeRows leaves rows with much in them, and reads lists of them.
func largeRows(s *stage) {
	box := s.intruder.own(s.t)
	long := strings.Repeat("x", 12<<20)
	answers, lists := &tally{}, &tally{}
	for _, q := range []request{
		{method: "POST", path: "/v1/sandboxes/" + box + "/exec", body: object{"argv": []string{"true", long}}},
		{method: "POST", path: "/v1/sandboxes/" + box + "/exec", body: object{"command": "true #" + long}},
		{method: "POST", path: "/v1/sandboxes/" + box + "/exec", body: object{"command": "true", "user": long}},
		{method: "POST", path: "/v1/sandboxes/" + box + "/exec", body: object{"command": "true", "env": object{"A": long}}},
		{method: "POST", path: "/v1/sandboxes/" + box + "/pause", body: object{"reason": long}},
		{method: "POST", path: "/v1/sandboxes", body: object{"image": long}},
		{method: "POST", path: "/v1/sandboxes", body: object{"env": object{"A": long}}},
		{method: "POST", path: "/v1/jobs", body: object{"sandbox_id": box, "kind": "exec", "args": object{"argv": []string{long}}}},
	} {
		for range 4 {
			r := s.intruder.do(q)
			if answers.add(r); r.ok() {
				s.breach("a text of 12 MiB is taken: %s %s", q.method, strings.ReplaceAll(q.path, box, "…"))
			}
		}
	}
	var all sync.WaitGroup
	for _, path := range []string{"/v1/jobs?limit=100", "/v1/sandboxes?limit=100", "/v1/sandboxes/" + box + "/events?limit=100", "/v2/sandboxes", "/v2/sandboxes/" + box + "/logs"} {
		for range 6 {
			all.Go(func() { lists.add(s.intruder.get(path)) })
		}
	}
	all.Wait()
	s.reached("texts of 12 MiB: %v; lists of them: %v", answers, lists)
}

// waits holds many requests that wait.
func waits(s *stage) {
	box := s.intruder.own(s.t)
	slow := into[accepted](s.t, s.intruder.post("/v1/sandboxes/"+box+"/exec", object{"command": "sleep 8", "stdin": strings.Repeat("x", 12<<20)}))
	answers := &tally{}
	s.atOnce(waiters, func(int) {
		answers.add(s.intruder.get("/v1/jobs/" + slow.Job.ID + "?wait=8s&fields=state"))
	})
	if answers.of("200") == waiters {
		s.breach("%d waits of one tenant are all held", waiters)
	}
	s.reached("%d waits at once: %v", waiters, answers)
}

// waiters is more than a tenant may have wait at once (TENANT_WAITS).
const waiters = 1300
