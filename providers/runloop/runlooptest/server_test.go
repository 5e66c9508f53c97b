package runlooptest_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"sandyard/providers/fake"
	"sandyard/providers/runloop/runlooptest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func newServer(t *testing.T, o runlooptest.Options) *runlooptest.Server {
	t.Helper()
	inner := fake.New(fake.Options{})
	t.Cleanup(func() {
		if left, err := inner.List(context.Background()); len(left) > 0 {
			t.Errorf("sandboxes are left: %v, %v", left, err)
		}
		_ = inner.Close()
	})
	o.Image = "fake"
	return runlooptest.New(t, inner, o)
}

// ask makes a request, and wants its status.
func ask(t *testing.T, s *runlooptest.Server, status int, method, path, body string) (answer map[string]any) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, s.URL+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+s.Key)
	req.Header.Set("Content-Type", "application/json")
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	res, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	var text bytes.Buffer
	if _, err = text.ReadFrom(res.Body); err != nil || res.StatusCode != status {
		t.Fatalf("%s %s %s: %d %s, %v; want %d", method, path, body, res.StatusCode, &text, err, status)
	}
	if err := json.Unmarshal(text.Bytes(), &answer); err != nil {
		t.Fatalf("%s %s: %s: %v", method, path, &text, err)
	}
	return answer
}

// made creates a devbox, waits for a status and returns its path.
func made(t *testing.T, s *runlooptest.Server, body, status string) string {
	t.Helper()
	created := ask(t, s, 200, "POST", "/v1/devboxes", body)
	if created["status"] != "provisioning" {
		t.Errorf("a new devbox: %v", created)
	}
	path := fmt.Sprint("/v1/devboxes/", created["id"])
	await(t, s, path, status)
	return path
}

func await(t *testing.T, s *runlooptest.Server, path, status string) map[string]any {
	t.Helper()
	return ask(t, s, 200, "POST", path+"/wait_for_status", `{"statuses": ["`+status+`"]}`)
}

func TestLifeOfADevbox(t *testing.T) {
	t.Parallel()
	s := newServer(t, runlooptest.Options{})
	path := made(t, s, `{"name": "a", "metadata": {"k": "v"}, "environment_variables": {"A": "b"}}`, "running")
	run := `{"command": "fake:env A; fake:exit 3", "command_id": "1"}`
	done := ask(t, s, 200, "POST", path+"/execute", run)
	if done["status"] != "completed" || done["exit_status"] != 3.0 || done["stdout"] != "b" {
		t.Errorf("a command: %v", done)
	}
	if again := ask(t, s, 200, "POST", path+"/execute", run); again["execution_id"] != done["execution_id"] {
		t.Errorf("the same command: %v", again)
	}
	long := ask(t, s, 200, "POST", path+"/execute",
		`{"command": "fake:sleep 1h", "command_id": "2", "optimistic_timeout": 0}`)
	if long["status"] != "running" {
		t.Errorf("a long command: %v", long)
	}
	ask(t, s, 408, "POST", fmt.Sprint(path, "/executions/", long["execution_id"], "/wait_for_status"),
		`{"statuses": ["completed"], "timeout_seconds": 0}`)
	ask(t, s, 400, "POST", path+"/resume", "")
	ask(t, s, 200, "POST", path+"/shutdown", "")
	ask(t, s, 400, "POST", path+"/shutdown", "")
	ask(t, s, 400, "POST", path+"/execute", run)
	if now := ask(t, s, 200, "GET", path, ""); now["status"] != "shutdown" || now["end_time_ms"] == nil {
		t.Errorf("after the shutdown: %v", now)
	}
}

func TestSuspendAndResume(t *testing.T) {
	t.Parallel()
	s := newServer(t, runlooptest.Options{})
	path := made(t, s, "", "running")
	ask(t, s, 200, "POST", path+"/suspend", "")
	await(t, s, path, "suspended")
	ask(t, s, 400, "POST", path+"/suspend", "")
	ask(t, s, 400, "POST", path+"/execute", `{"command": "fake:exit 0", "command_id": "1"}`)
	ask(t, s, 200, "POST", path+"/resume", "")
	await(t, s, path, "running")
	if moves, _ := ask(t, s, 200, "GET", path, "")["state_transitions"].([]any); len(moves) != 6 {
		t.Errorf("%d states, want 6: %v", len(moves), moves)
	}
}

func TestWhatIsRefused(t *testing.T) {
	t.Parallel()
	s := newServer(t, runlooptest.Options{Blueprints: map[string]string{"broken": "none"}, MaxDevboxes: 1})
	ask(t, s, 404, "GET", "/v1/devboxes/dbx_none", "")
	ask(t, s, 404, "POST", "/v1/devboxes", `{"blueprint_name": "other"}`)
	ask(t, s, 404, "POST", "/v1/devboxes", `{"snapshot_id": "other"}`)
	path := made(t, s, `{"blueprint_id": "broken"}`, "failure")
	if b := ask(t, s, 200, "GET", path, ""); b["failure_reason"] != "execution_failed" {
		t.Errorf("a devbox that could not start: %v", b)
	}
	made(t, s, "", "running")
	if full := ask(t, s, 429, "POST", "/v1/devboxes", ""); full["message"] != "devbox limit reached" {
		t.Errorf("beyond the limit: %v", full)
	}
	other := &runlooptest.Server{URL: s.URL, Key: "other"}
	ask(t, other, 401, "GET", "/v1/devboxes", "")
}

func TestPages(t *testing.T) {
	t.Parallel()
	s := newServer(t, runlooptest.Options{})
	var ids []string
	for range 3 { // names are not unique
		ids = append(ids, strings.TrimPrefix(made(t, s, `{"name": "same"}`, "running"), "/v1/devboxes/"))
	}
	ask(t, s, 200, "POST", "/v1/devboxes/"+ids[1]+"/shutdown", "")
	for query, want := range map[string]string{
		"":                                 fmt.Sprint(ids, false),
		"limit=2":                          fmt.Sprint(ids[:2], true),
		"limit=2&starting_after=" + ids[1]: fmt.Sprint(ids[2:], false),
		"status=running&limit=1&starting_after=" + ids[0]: fmt.Sprint(ids[2:], false),
		"status=shutdown": fmt.Sprint(ids[1:2], false),
	} {
		page := ask(t, s, 200, "GET", "/v1/devboxes?"+query, "")
		var got []string
		boxes, _ := page["devboxes"].([]any)
		for _, b := range boxes {
			got = append(got, b.(map[string]any)["id"].(string))
		}
		if text := fmt.Sprint(got, page["has_more"]); text != want {
			t.Errorf("%q: %s, want %s", query, text, want)
		}
	}
}

func TestPolicies(t *testing.T) {
	t.Parallel()
	s := newServer(t, runlooptest.Options{})
	made := ask(t, s, 200, "POST", "/v1/network-policies", `{"name": "deny-all", "allowed_hostnames": ["a.b"]}`)
	if egress, _ := made["egress"].(map[string]any); egress["allow_all"] != false {
		t.Errorf("a policy: %v", made)
	}
	ask(t, s, 409, "POST", "/v1/network-policies", `{"name": "deny-all"}`)
	for name, want := range map[string]int{"deny": 1, "other": 0} {
		page := ask(t, s, 200, "GET", "/v1/network-policies?name="+name, "")
		if found, _ := page["network_policies"].([]any); len(found) != want {
			t.Errorf("%s: %v", name, page)
		}
	}
}
