package web_test

import (
	"slices"
	"strings"
	"testing"
)

// oneShot is the body of a schedule that runs a command every hour.
func oneShot(more ...any) map[string]any {
	body := map[string]any{"interval_seconds": 3600, "run": map[string]any{
		"command": "fake:cat", "stdin": "a\x00b", "files": []any{map[string]any{"path": "f", "content": "\x00"}},
	}}
	for i := 0; i < len(more); i += 2 {
		body[more[i].(string)] = more[i+1]
	}
	return body
}

func TestASchedulesLife(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	a := r.call("POST", "/v1/schedules", oneShot("name", "nightly", "cron", "0 3 * * *", "interval_seconds", nil, "time_zone", "Europe/Berlin",
		"callback_url", "https://example.com/hook", "missed", "run_all")).want(t, 201)
	id := "/v1/schedules/" + a.text("id")
	if a.text("state") != "active" || a.text("kind") != "run" || a.text("overlap") != "skip" || a.get("max_catch_up") != 10.0 ||
		a.text("run.stdin") != "a\x00b" || a.text("callback_url") == "" || a.text("next_due") == "" || a.text("created_by") == "" {
		t.Errorf("created: %s", a.raw)
	}
	if got := r.call("GET", id, nil).want(t, 200); got.raw != a.raw {
		t.Errorf("read as %s, created as %s", got.raw, a.raw)
	}
	r.call("POST", "/v1/schedules", oneShot("name", "nightly")).problem(t, 409, "name_taken")
	other := r.call("POST", "/v1/schedules", oneShot("paused", true)).want(t, 201)
	if other.text("state") != "paused" || other.get("next_due") != nil {
		t.Errorf("begun paused: %s", other.raw)
	}
	r.call("PATCH", "/v1/schedules/"+other.text("id"), map[string]any{"name": "nightly"}).problem(t, 409, "name_taken")

	a = r.call("PATCH", id, map[string]any{"interval_seconds": 60, "overlap": "queue"}).want(t, 200)
	if a.get("interval_seconds") != 60.0 || a.get("cron") != nil || a.text("overlap") != "queue" || a.text("missed") != "run_all" ||
		a.text("callback_url") == "" {
		t.Errorf("changed: %s", a.raw)
	}
	a = r.call("PATCH", id, map[string]any{"create": map[string]any{"key": "k"}}).want(t, 200)
	if a.text("kind") != "create" || a.get("run") != nil || a.text("create.key") != "k" || a.get("callback_url") != nil {
		t.Errorf("changed: %s", a.raw)
	}
	if a = r.call("POST", id+"/pause", nil).want(t, 200); a.text("state") != "paused" || a.get("next_due") != nil {
		t.Errorf("paused: %s", a.raw)
	}
	if a = r.call("POST", id+"/resume", nil).want(t, 200); a.text("state") != "active" || a.text("next_due") == "" {
		t.Errorf("resumed: %s", a.raw)
	}
	want := []string{"schedule.resumed", "schedule.paused", "schedule.changed", "schedule.changed", "schedule.created"}
	if got := r.scheduleEvents(id); !slices.Equal(got, want) {
		t.Errorf("the events are %v", got)
	}
	r.call("DELETE", id, nil).want(t, 200)
	for _, gone := range []string{id, id + "/runs"} {
		r.call("GET", gone, nil).problem(t, 404, "not_found")
	}
	if got := r.scheduleEvents(id); got[0] != "schedule.deleted" {
		t.Errorf("after the end the events are %v", got)
	}
}

// scheduleEvents names a schedule's events, newest first.
func (r *rig) scheduleEvents(path string) []string {
	r.t.Helper()
	var names []string
	list, _ := r.call("GET", path+"/events", nil).want(r.t, 200).get("events").([]any)
	for _, e := range list {
		names = append(names, e.(map[string]any)["event"].(string))
	}
	return names
}

func TestRunningAScheduleNow(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.work()
	id := "/v1/schedules/" + r.call("POST", "/v1/schedules", oneShot("paused", true)).want(t, 201).text("id")
	first := r.call("POST", id+"/run?wait=60s", nil, "Idempotency-Key", "one").want(t, 200)
	if first.text("job.state") != "succeeded" || first.text("job.stdout") != "a\x00b" {
		t.Errorf("the answer is %s", first.raw)
	}
	again := r.call("POST", id+"/run", nil, "Idempotency-Key", "one").want(t, 200)
	if again.text("job.id") != first.text("job.id") || again.header.Get("Idempotent-Replayed") != "true" {
		t.Errorf("asked again: %s", again.raw)
	}
	r.call("POST", id+"/run", nil).want(t, 202)
	runs, _ := r.call("GET", id+"/runs", nil).want(t, 200).get("runs").([]any)
	if len(runs) != 2 {
		t.Fatalf("the runs are %v", runs)
	}
	if x := runs[1].(map[string]any); x["manual"] != true || x["job_id"] != first.text("job.id") || x["sandbox_id"] == "" {
		t.Errorf("the first run is %v", x)
	}
	page := r.call("GET", id+"/runs?limit=1", nil).want(t, 200)
	if next := r.call("GET", id+"/runs?limit=1&cursor="+page.text("next_cursor"), nil).want(t, 200); next.text("next_cursor") != "" ||
		!strings.Contains(next.raw, first.text("job.id")) {
		t.Errorf("the second page is %s", next.raw)
	}
}

func TestListsOfSchedules(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	box := r.sandbox(map[string]any{})
	var all []string
	for i := range 5 {
		body := oneShot("paused", i == 1)
		if i == 3 {
			body = map[string]any{"cron": "@daily", "name": "x", "job": map[string]any{"sandbox_id": box, "kind": "exec", "args": map[string]any{"command": "a"}}}
		}
		all = append([]string{r.call("POST", "/v1/schedules", body).want(t, 201).text("id")}, all...)
	}
	for query, want := range map[string][]string{
		"limit=2": all, "state=active&limit=3": {all[0], all[1], all[2], all[4]}, "sandbox_id=" + box: {all[1]}, "name=x": {all[1]},
		"name=y": nil, "state=disabled": nil,
	} {
		if got := r.ids("schedules", query); !slices.Equal(got, want) {
			t.Errorf("%s: got %v, want %v", query, got, want)
		}
	}
	if a := r.call("GET", "/v1/schedules?name=x", nil); strings.Contains(a.raw, `"args"`) {
		t.Errorf("the list tells what only one tells: %s", a.raw)
	}
}

func TestSchedulesThatAreRefused(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	job := func(box, kind string) map[string]any {
		return map[string]any{"interval_seconds": 60, "job": map[string]any{"sandbox_id": box, "kind": kind, "args": map[string]any{}}}
	}
	for field, body := range map[string]map[string]any{
		"body.cron":               {"run": map[string]any{"command": "x"}},
		"body.time_zone":          oneShot("cron", "@daily", "interval_seconds", nil, "time_zone", "Nowhere"),
		"body.interval_seconds":   oneShot("interval_seconds", 0.5),
		"body.overlap":            oneShot("overlap", "allow"),
		"body.missed":             oneShot("overlap", "cancel_running", "missed", "run_all"),
		"body.max_catch_up":       oneShot("max_catch_up", 101),
		"body.action":             oneShot("create", map[string]any{}),
		"body.command":            oneShot("run", map[string]any{}),
		"body.run.background":     oneShot("run", map[string]any{"command": "x", "background": true}),
		"body.template":           oneShot("run", map[string]any{"command": "x", "template": "gone"}),
		"body.timeout_seconds":    oneShot("run", map[string]any{"command": "x", "timeout_seconds": 1e9}),
		"body.callback_url":       oneShot("callback_url", "ftp://x"),
		"body.kind":               job("sb00000000000000000000000000", "create"),
		"body.name":               oneShot("name", ""),
		"body.run.files[0].wrong": oneShot("run", map[string]any{"command": "x", "files": []any{map[string]any{"path": "x", "wrong": 1}}}),
		"body.job":                {"interval_seconds": 60, "job": map[string]any{}},
	} {
		if a := r.call("POST", "/v1/schedules", body).problem(t, 422, "invalid_request"); !strings.Contains(a.raw, field) {
			t.Errorf("%s is wrong, and the answer says %s", field, a.raw)
		}
	}
	r.call("POST", "/v1/schedules", job("sb00000000000000000000000000", "pause")).problem(t, 404, "not_found")
	box := r.sandbox(map[string]any{})
	r.call("POST", "/v1/schedules", job(box, "exec")).problem(t, 422, "invalid_request")
	r.call("DELETE", "/v1/sandboxes/"+box+"?force=true", nil).want(t, 202)
	r.call("POST", "/v1/schedules", job(box, "pause")).problem(t, 410, "sandbox_ended")
	for range 100 {
		r.call("POST", "/v1/schedules", oneShot()).want(t, 201)
	}
	a := r.call("POST", "/v1/schedules", oneShot()).problem(t, 429, "limit_reached")
	if a.text("limit") != "max_schedules" || a.get("max") != 100.0 {
		t.Errorf("the limit is told as %s", a.raw)
	}
}
