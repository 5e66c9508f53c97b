package web_test

import (
	"net/url"
	"slices"
	"testing"
)

// eventNames collects what a list of events tells, newest first, in pages of two.
func (r *rig) eventNames(path string) []string {
	r.t.Helper()
	var names []string
	cursor := ""
	for {
		a := r.call("GET", path+"?limit=2"+cursor, nil).want(r.t, 200)
		items, _ := a.get("events").([]any)
		for _, item := range items {
			e := item.(map[string]any)
			if e["actor"] == "" || e["at"] == nil || e["sandbox_id"] == "" {
				r.t.Errorf("an event says too little: %v", e)
			}
			names = append(names, e["event"].(string))
		}
		if a.text("next_cursor") == "" {
			return names
		}
		cursor = "&cursor=" + url.QueryEscape(a.text("next_cursor"))
	}
}

func TestEventsTellASandboxesLife(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.work()
	box := r.sandbox(map[string]any{})
	exec := r.call("POST", "/v1/sandboxes/"+box+"/exec?wait=60s", map[string]any{"command": "fake:exit 3"}).want(t, 200).text("job.id")
	r.call("DELETE", "/v1/sandboxes/"+box+"?wait=60s", nil).want(t, 200)
	want := []string{
		"sandbox.deleted", "job.succeeded", "sandbox.deleting", "job.running", "job.queued",
		"job.succeeded", "job.running",
	}
	got := r.eventNames("/v1/sandboxes/" + box + "/events")
	if len(got) != 14 || !slices.Equal(got[:len(want)], want) || got[13] != "sandbox.creating" {
		t.Errorf("the events are %v", got)
	}
	if got := r.eventNames("/v1/jobs/" + exec + "/history"); !slices.Equal(got, []string{"job.succeeded", "job.running", "job.queued"}) {
		t.Errorf("the job's history is %v", got)
	}
	a := r.call("GET", "/v1/jobs/"+exec+"/history?limit=1", nil).want(t, 200)
	end := a.get("events").([]any)[0].(map[string]any)
	if detail := end["detail"].(map[string]any); detail["exit_code"] != 3.0 || detail["kind"] != "exec" || detail["node"] == nil {
		t.Errorf("the end says %v", end)
	}
}

func TestEventsOfNothing(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.call("GET", "/v1/sandboxes/sb0/events", nil).problem(t, 404, "not_found")
	r.call("GET", "/v1/jobs/job_0/history", nil).problem(t, 404, "not_found")
	r.call("GET", "/v1/sandboxes/sb00000000000000000000000000/events?cursor=x", nil).problem(t, 422, "invalid_request")
	r.call("GET", "/v1/sandboxes/sb00000000000000000000000000/events?cursor=999999999999999999", nil).problem(t, 404, "not_found")
}
