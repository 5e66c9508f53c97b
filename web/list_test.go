package web_test

import (
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"
)

// ids collects the ids of a list, page by page.
func (r *rig) ids(list, query string) []string {
	r.t.Helper()
	var ids []string
	cursor := ""
	for {
		a := r.call("GET", "/v1/"+list+"?"+query+cursor, nil).want(r.t, 200)
		items, _ := a.get(list).([]any)
		for _, item := range items {
			ids = append(ids, item.(map[string]any)["id"].(string))
		}
		if a.text("next_cursor") == "" {
			return ids
		}
		cursor = "&cursor=" + url.QueryEscape(a.text("next_cursor"))
	}
}

func TestListsOfSandboxes(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	var all []string
	for i := range 7 {
		all = append(all, r.sandbox(map[string]any{"key": fmt.Sprint("k", i), "labels": map[string]string{"n": fmt.Sprint(i % 2)}}))
	}
	slices.Reverse(all)
	for query, want := range map[string][]string{
		"limit=3":                   all,
		"limit=7":                   all,
		"":                          all,
		"state=creating&limit=2":    all,
		"state=running":             nil,
		"provider=fake&limit=100":   all,
		"provider=docker":           nil,
		"key=k6":                    all[:1],
		"label=n:1":                 {all[1], all[3], all[5]},
		"label=n%3D1&label=n%3A1":   {all[1], all[3], all[5]},
		"label=n=0&limit=1":         {all[0], all[2], all[4], all[6]},
		"label=n=0&label=missing=1": nil,
	} {
		if got := r.ids("sandboxes", query); !slices.Equal(got, want) {
			t.Errorf("%s: got %v, want %v", query, got, want)
		}
	}
}

func TestListsOfJobs(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.work()
	box, other := r.sandbox(map[string]any{}), r.sandbox(map[string]any{})
	var execs []string
	for i := range 5 {
		a := r.call("POST", "/v1/sandboxes/"+box+"/exec?wait=20s", map[string]any{"command": fmt.Sprintf("fake:stdout secret%d", i)})
		execs = append(execs, a.want(t, 200).text("job.id"))
	}
	slices.Reverse(execs)
	if got := r.ids("jobs", "kind=exec&limit=2"); !slices.Equal(got, execs) {
		t.Errorf("got %v, want %v", got, execs)
	}
	if got := r.ids("jobs", "sandbox_id="+box+"&state=succeeded"); len(got) != 6 {
		t.Errorf("jobs of the sandbox: %v", got)
	}
	if got := r.ids("jobs", "sandbox_id="+other+"&kind=exec"); got != nil {
		t.Errorf("jobs of the other sandbox: %v", got)
	}
	if a := r.call("GET", "/v1/jobs", nil); strings.Contains(a.raw, "secret") || strings.Contains(a.raw, "stdout\"") {
		t.Errorf("the list holds output: %s", a.raw)
	}
	if a := r.call("GET", "/v1/jobs/"+execs[0]+"?fields=state,stdout", nil); a.raw != `{"state":"succeeded","stdout":"secret4"}`+"\n" {
		t.Errorf("unexpected projection: %s", a.raw)
	}
	if a := r.call("GET", "/v1/jobs?limit=1&fields=id", nil); !strings.HasPrefix(a.raw, `{"jobs":[{"id":"`+execs[0]+`"}],`) {
		t.Errorf("unexpected projection: %s", a.raw)
	}
}

func TestCancelRetryAndDeliveries(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	id := r.sandbox(map[string]any{})
	exec := "/v1/sandboxes/" + id + "/exec"
	job := r.call("POST", exec, `{"command":"fake:cat","stdin":"again","callback_url":"http://example.invalid/hook"}`).want(t, 202).text("job.id")
	r.call("POST", "/v1/jobs/"+job+"/retry", nil).problem(t, 409, "job_not_ended")
	a := r.call("POST", "/v1/jobs/"+job+"/cancel", nil).want(t, 200)
	if a.text("state") != "cancelled" || a.text("error.code") != "cancelled" {
		t.Errorf("not cancelled: %s", a.raw)
	}
	d := r.call("GET", "/v1/jobs/"+job+"/deliveries", nil).want(t, 200)
	list, _ := d.get("deliveries").([]any)
	if len(list) != 1 || !strings.Contains(d.raw, `"event":"job.cancelled"`) || !strings.Contains(d.raw, `"state":"pending"`) {
		t.Errorf("unexpected deliveries: %s", d.raw)
	}
	r.work()
	again := r.call("POST", "/v1/jobs/"+job+"/retry?wait=20s", nil, "Idempotency-Key", "once").want(t, 200)
	if again.text("job.retry_of") != job || again.text("job.stdout") != "again" || again.text("job.id") == job {
		t.Errorf("not retried: %s", again.raw)
	}
}

func TestGenericJobs(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.work()
	id := r.sandbox(map[string]any{})
	submit := func(kind string, args any) answer {
		return r.call("POST", "/v1/jobs?wait=20s", map[string]any{"sandbox_id": id, "kind": kind, "args": args}).want(t, 200)
	}
	submit("write", map[string]any{"path": "a", "content": "AP8=", "encoding": "base64"})
	if a := submit("read", map[string]any{"path": "a"}); a.text("job.content") != "AP8=" {
		t.Errorf("unexpected content: %s", a.raw)
	}
	if a := submit("pause", nil); a.text("sandbox.state") != "paused" {
		t.Errorf("not paused: %s", a.raw)
	}
	if a := r.call("POST", "/v1/sandboxes/"+id+"/resume?wait=20s", nil).want(t, 200); a.text("sandbox.state") != "running" {
		t.Errorf("not resumed: %s", a.raw)
	}
	before := r.call("GET", "/v1/sandboxes/"+id, nil).text("expires_at")
	if a := r.call("POST", "/v1/sandboxes/"+id+"/keepalive?wait=20s", nil).want(t, 200); a.text("sandbox.expires_at") <= before {
		t.Errorf("kept alive it ends at %s, before at %s: %s", a.get("sandbox.expires_at"), before, a.raw)
	}
	r.call("POST", "/v1/sandboxes/sbnone/keepalive", nil).problem(t, 404, "not_found")
	if a := r.call("POST", "/v1/sandboxes/"+id+"/timeout?wait=20s", `{"timeout_seconds":7200}`).want(t, 200); a.get("sandbox.timeout_seconds") != 7200.0 || a.text("job.result.expires_at") == "" {
		t.Errorf("timeout not set: %s", a.raw)
	}
	if a := submit("delete", map[string]any{"reason": "done with it"}); a.text("sandbox.end_reason") != "done with it" {
		t.Errorf("not deleted: %s", a.raw)
	}
}

func TestSandboxDocumentHidesTheEnvironment(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	a := r.call("POST", "/v1/sandboxes", `{"env":{"TOKEN":"hunter2"},"memory_mb":128,"network":true,"timeout_seconds":60}`).want(t, 202)
	if strings.Contains(a.raw, "hunter2") || strings.Contains(a.raw, "TOKEN") {
		t.Errorf("the environment is shown: %s", a.raw)
	}
	if a.get("sandbox.resources.memory_mb") != 128.0 || a.get("sandbox.network") != true || a.get("sandbox.timeout_seconds") != 60.0 {
		t.Errorf("unexpected document: %s", a.raw)
	}
	if strings.Contains(r.log.String(), "hunter2") {
		t.Error("the environment is logged")
	}
}

// TestResourcesAreWhole: every answer about a sandbox says what it really has.
func TestResourcesAreWhole(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.work()
	id := r.call("POST", "/v1/sandboxes?wait=60s", object{"memory_mb": 128}).want(t, 200).text("sandbox.id")
	want := `"resources":{"cpus":1,"memory_mb":128,"disk_mb":256,"pids":256}`
	for _, path := range []string{"/v1/sandboxes/" + id, "/v1/sandboxes"} {
		if a := r.call("GET", path, nil).want(t, 200); !strings.Contains(a.raw, want) {
			t.Errorf("%s: %s", path, a.raw)
		}
	}
}
