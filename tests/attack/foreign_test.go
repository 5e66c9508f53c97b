//go:build attack

package attack

import (
	"encoding/json"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"
)

func queryEscape(text string) string { return url.QueryEscape(text) }

// foreignIDs puts all that the neighbour owns into every parameter, query and field that names something. An answer must
// be the one for what does not exist.
func foreignIDs(s *stage) {
	owns := s.neighbour.owns
	before := owns.state(s.t)
	answers := &tally{}
	s.intruder.login(s.t)
	s.walk(func(to route) {
		s.foreignBodies(to, answers)
		for _, p := range parameter.FindAllString(to.path, -1) {
			at := named(to.path, p)
			for _, id := range owns.ids[at] {
				q := s.request(to, bodyOf(to), func(what string) string {
					switch {
					case what == at:
						return escape(id)
					case len(owns.ids[what]) > 0:
						return escape(owns.ids[what][0])
					}
					return "nothing"
				})
				q.patience = 20 * time.Second
				r := s.intruder.do(q)
				answers.add(r)
				s.hidden(to, at, r)
			}
		}
	})
	s.foreignFields(answers)
	if after := owns.state(s.t); after != before {
		s.breach("the neighbour's things have changed:\n%s\nbefore:\n%s", after, before)
	}
	s.reached("%v", answers)
}

// login lets the intruder into the routes that know no keys.
func (i *intruder) login(t *testing.T) {
	t.Helper()
	r := i.post("/api/v1/auth/login/swagger?username=intruder&password="+queryEscape(intruderPassword), nil)
	var got struct {
		Token string `json:"access_token"`
	}
	must(t, json.Unmarshal([]byte(r.head), &got))
	i.token = got.Token
	if r := i.get("/agent/sandboxes/sandboxes/nothing/status"); r.status != 404 {
		t.Fatalf("the intruder's token is not taken: %d %.200s", r.status, r.head)
	}
}

// foreignBodies puts the neighbour's sandboxes into the body of a route that takes one.
func (s *stage) foreignBodies(to route, answers *tally) {
	body, ok := bodyOf(to).(object)
	if !ok || !slices.ContainsFunc(to.fields, func(f field) bool { return f.name == "sandbox_id" }) {
		return
	}
	for _, box := range s.neighbour.owns.ids["sandboxes"] {
		body["sandbox_id"], body["port"], body["user_id"] = box, 8000, "someone"
		q := s.request(to, body, s.ownIDs(to, "nothing"))
		q.patience = 20 * time.Second
		r := s.intruder.do(q)
		answers.add(r)
		s.hidden(to, "sandbox_id", r)
	}
}

// hidden breaches where another tenant's thing is found. Names of templates are everybody's own.
func (s *stage) hidden(to route, at string, r reply) {
	if !r.ok() || at == "templates" || to.door != doorAPI || to.method == "OPTIONS" {
		return
	}
	s.breach("%v: the neighbour's %s is found: %d %.200s", to, at, r.status, r.head)
}

// foreignFields names the neighbour's things in bodies and queries.
func (s *stage) foreignFields(answers *tally) {
	owns := s.neighbour.owns
	for _, box := range owns.ids["sandboxes"] {
		for _, kind := range []string{"exec", "read", "write", "pause", "delete", "timeout", "list", "port"} {
			r := s.intruder.post("/v1/jobs", object{"sandbox_id": box, "kind": kind, "args": object{}})
			if answers.add(r); r.ok() {
				s.breach("a %s on the neighbour's sandbox is accepted", kind)
			}
		}
		r := s.intruder.post("/v1/schedules", object{
			"name": "mine", "interval_seconds": 1, "job": object{"sandbox_id": box, "kind": "exec", "args": object{"command": "cat secret.txt"}},
		})
		answers.add(r)
		if r.ok() {
			s.breach("a schedule on the neighbour's sandbox is accepted: %d", r.status)
		}
	}
	for what, ids := range owns.ids {
		for _, id := range ids {
			for _, list := range []string{"/v1/sandboxes", "/v1/jobs", "/v1/schedules", "/v1/templates", "/sandboxes", "/v2/sandboxes", "/v1/usage", "/v1/audit", "/v1/security-events"} {
				for _, name := range []string{"sandbox_id", "cursor", "nextToken", "key", "template", strings.TrimSuffix(what, "s") + "_id"} {
					answers.add(s.intruder.get(list + "?" + name + "=" + queryEscape(id)))
				}
			}
		}
	}
	for _, name := range owns.ids["templates"] {
		r := s.intruder.post("/v1/sandboxes", object{"template": name})
		if answers.add(r); r.ok() {
			s.breach("the neighbour's template %s makes a sandbox", name)
		}
		answers.add(s.intruder.post("/sandboxes", object{"templateID": name}))
	}
	answers.add(s.intruder.get("/v1/usage?all_tenants=true"))
	answers.add(s.intruder.get("/v1/sandboxes?key=" + queryEscape(s.markers.of("key"))))
}
