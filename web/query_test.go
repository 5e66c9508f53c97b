package web_test

import (
	"slices"
	"strings"
	"testing"

	"sandyard/dev/testenv"
)

// TestQueriesAreChecked: a parameter that would be ignored is refused by name.
func TestQueriesAreChecked(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	id := r.sandbox(object{})
	for call, says := range map[string]string{
		"GET /v1/sandboxes?template=python":                      "query.template is unknown; the query parameters of this operation are cursor, key, label, limit, provider, state",
		"GET /v1/sandboxes?created_after=2026-01-01":             "query.created_after is unknown",
		"GET /v1/sandboxes?key=a&key=b":                          "query.key is given more than once",
		"GET /v1/sandboxes?cursor=":                              "query.cursor is empty",
		"GET /v1/sandboxes?state=on":                             `query.state has "on"`,
		"GET /v1/jobs?state=running&state=queued":                "query.state is given more than once",
		"GET /v1/jobs?sandbox_id=":                               "query.sandbox_id is empty",
		"GET /v1/usage?to=":                                      "query.to is empty",
		"GET /v1/providers?x=1":                                  "query.x is unknown; this operation takes no query parameters",
		"DELETE /v1/sandboxes/" + id + "?force":                  "query.force is empty",
		"POST /v1/sandboxes?wait=1s&wait=2s":                     "query.wait is given more than once",
		"GET /v1/sandboxes/" + id + "/files/raw?path=a&inline=1": "query.inline is unknown; the query parameters of this operation are path",
		"PUT /v1/sandboxes/" + id + "/files/raw?path=a&path=b":   "query.path is given more than once",
	} {
		method, path, _ := strings.Cut(call, " ")
		var body any
		if method == "POST" {
			body = object{}
		}
		if a := r.call(method, path, body).problem(t, 422, "invalid_request"); !strings.Contains(a.text("detail"), says) {
			t.Errorf("%s: %s", call, a.raw)
		}
	}
	if rows := r.rows(); rows != "1 sandboxes, 1 jobs" {
		t.Errorf("written down: %s", rows)
	}
}

// TestListsShowLiveSandboxes unless they are asked for others.
func TestListsShowLiveSandboxes(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	gone := r.sandbox(object{})
	r.work()
	r.call("DELETE", "/v1/sandboxes/"+gone+"?wait=60s", nil).want(t, 200)
	running := r.call("POST", "/v1/sandboxes?wait=60s", object{}).want(t, 200).text("sandbox.id")
	paused := r.call("POST", "/v1/sandboxes?wait=60s", object{}).want(t, 200).text("sandbox.id")
	r.call("POST", "/v1/sandboxes/"+paused+"/pause?wait=60s", object{}).want(t, 200)
	for query, want := range map[string][]string{
		"": {paused, running}, "state=live": {paused, running}, "state=all": {paused, running, gone}, "state=ended": {gone},
		"state=running&state=paused": {paused, running}, "state=running,deleted": {running, gone}, "state=paused&limit=1": {paused},
	} {
		if got := r.ids("sandboxes", query); !slices.Equal(got, want) {
			t.Errorf("%q: got %v, want %v", query, got, want)
		}
	}
}

// TestCancelWaits for the job's end where it is asked to.
func TestCancelWaits(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.work()
	id := r.call("POST", "/v1/sandboxes?wait=60s", object{}).want(t, 200).text("sandbox.id")
	job := r.call("POST", "/v1/sandboxes/"+id+"/exec", object{"command": "fake:sleep 1h"}).want(t, 202).text("job.id")
	testenv.Eventually(t, "the command runs", func() bool { return r.call("GET", "/v1/jobs/"+job, nil).text("state") == "running" })
	if a := r.call("POST", "/v1/jobs/"+job+"/cancel?wait=60s", nil).want(t, 200); a.text("state") != "cancelled" {
		t.Errorf("it did not wait: %s", a.raw)
	}
}
