//go:build attack

package attack

import (
	"strings"
	"time"
)

// malformed are ids of no valid form.
func malformed(neighbour string) map[string]string {
	return map[string]string{
		"brace": "{", "braces": "{}", "quoted": `{"a"}`, "up": "..", "dot": ".", "far up": "../../containers/json", "NUL": "\x00",
		"long": strings.Repeat("a", 5000), "long sandbox": "sb" + strings.Repeat("0", 5000), "two": "sb0,sb1", "two with the neighbour's": "sb0," + neighbour,
		"comma": ",", "job for all": "job_0000000000000000000000000a", "sandbox for all": "sb0000000000000000000000000a",
		"umlaut": "sbäöü", "emoji": "🙂", "right to left": "\u202esb", "no UTF-8": "\xff\xfe", "quote": "' OR '1'='1", "double quote": `"`,
		"percent": "%", "star": "*", "blank": " ", "new line": "a\nb", "return": "a\r\nX: y", "backslash": `\`, "minus": "-1", "zero": "0", "huge": "99999999999999999999",
		"semicolon": ";", "brackets": "[]", "null": "null", "dollar": "${HOME}", "upper case": strings.ToUpper(neighbour), "blank after": neighbour + " ", "slash": "a/b",
	}
}

// malformedIDs puts each into every parameter of every route, and into the fields and queries that name something.
func malformedIDs(s *stage) {
	answers := &tally{}
	bad := malformed(s.neighbour.owns.ids["sandboxes"][0])
	judge := func(q request) {
		q.patience = 20 * time.Second
		r := s.intruder.do(q)
		answers.add(r)
		if r.err != nil && !s.processes["api"].Ended() && r.status == 0 {
			s.breach("%.100s: is not answered: %v", q.method+" "+q.path, r.err)
		}
	}
	s.walk(func(to route) {
		params := parameter.FindAllString(to.path, -1)
		for _, id := range bad {
			for _, p := range params {
				judge(s.request(to, bodyOf(to), func(what string) string {
					if what == named(to.path, p) {
						return escape(id)
					}
					return orElse(wellFormed(what), "nothing")
				}))
			}
			if len(params) == 0 && to.method == "GET" && to.door == doorAPI {
				for _, name := range []string{"cursor", "sandbox_id", "id", "state", "label"} {
					judge(request{method: to.method, path: to.path + "?" + name + "=" + queryEscape(id)})
				}
			}
		}
	})
	for _, id := range bad {
		judge(request{method: "POST", path: "/v1/jobs", body: object{"sandbox_id": id, "kind": "pause"}})
		judge(request{method: "POST", path: "/v1/jobs", body: object{"sandbox_id": id, "kind": "exec", "args": object{"command": "true"}}})
		judge(request{method: "POST", path: "/v1/schedules", body: object{
			"name": "x", "interval_seconds": 60, "job": object{"sandbox_id": id, "kind": "exec", "args": object{"command": "true"}},
		}})
	}
	s.reached("%d ids in every place: %v", len(bad), answers)
}

// bodyOf is one that a route takes, so that its parameters are looked at.
func bodyOf(to route) any {
	if to.method == "GET" || to.method == "HEAD" || to.method == "DELETE" {
		return nil
	}
	body := object{}
	for _, f := range to.fields {
		switch f.name {
		case "command":
			body[f.name] = "true"
		case "path", "from", "to":
			body[f.name] = "secret.txt"
		case "timeout_seconds", "timeout":
			body[f.name] = 60
		case "content":
			body[f.name] = "x"
		}
	}
	return body
}

// manyIDs sends as many as a body holds in one field.
func manyIDs(s *stage) {
	many := strings.Repeat("sb0000000000000000000000000a,", full/29)[:full-100]
	answers := &tally{}
	for range 3 {
		for _, body := range []object{
			{"kind": "pause", "sandbox_id": many},
			{"kind": many, "sandbox_id": "sb0000000000000000000000000a"},
			{"kind": "exec", "sandbox_id": "sb0000000000000000000000000a", "args": object{"command": "true", "cwd": many}},
		} {
			answers.add(s.intruder.post("/v1/jobs", body))
		}
	}
	s.reached("16 MiB of ids in one field: %v", answers)
}
