package web_test

import (
	"context"
	"net/url"
	"testing"
	"time"

	"sandyard/dev/testenv"
	"sandyard/models"
)

// used returns the groups of an answer.
func (a answer) used() []map[string]any {
	list, _ := a.get("usage").([]any)
	var rows []map[string]any
	for _, row := range list {
		rows = append(rows, row.(map[string]any))
	}
	return rows
}

func TestUsageOfATenant(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.work()
	for _, user := range []string{"ann", "bob"} {
		box := r.sandbox(map[string]any{"labels": map[string]string{"user": user}, "cpus": 2, "memory_mb": 2048, "timeout_seconds": 3600})
		r.call("POST", "/v1/sandboxes/"+box+"/exec?wait=60s", map[string]any{"command": "fake:exit 1"}).want(t, 200)
		r.call("POST", "/v1/sandboxes/"+box+"/files/read?wait=60s", map[string]any{"path": "nothing"}).want(t, 200)
		r.call("DELETE", "/v1/sandboxes/"+box+"?wait=60s", nil).want(t, 200)
	}
	r.call("POST", "/v1/run?wait=60s", map[string]any{"command": "fake:exit 0", "template": "node"}).want(t, 200)
	testenv.Eventually(t, "all has ended", func() bool {
		return len(r.call("GET", "/v1/sandboxes?state=deleted", nil).get("sandboxes").([]any)) == 3
	})

	rows := r.call("GET", "/v1/usage?group_by=user,template", nil).want(t, 200).used()
	if len(rows) != 3 || rows[0]["user"] != "ann" || rows[1]["user"] != "bob" || rows[1]["template"] != "python" || rows[2]["template"] != "node" {
		t.Fatalf("usage is %v", rows)
	}
	ann := rows[0]
	running := ann["running_seconds"].(float64)
	if running <= 0 || ann["cpu_seconds"].(float64)/running < 1.99 || ann["memory_gib_seconds"].(float64)/running < 1.99 || ann["provider"] != nil {
		t.Errorf("ann has used %v", ann)
	}
	outcomes := map[any]any{}
	for _, j := range ann["jobs"].([]any) {
		j := j.(map[string]any)
		outcomes[j["kind"]] = j["outcome"]
		if j["count"] != 1.0 {
			t.Errorf("ann's jobs are %v", ann["jobs"])
		}
	}
	if len(outcomes) != 4 || outcomes["exec"] != "succeeded" || outcomes["read"] != "failed" || ann["job_count"] != 4.0 {
		t.Errorf("ann's jobs are %v", ann["jobs"])
	}
	if sum := r.call("GET", "/v1/usage", nil).want(t, 200).used(); len(sum) != 1 || sum[0]["job_count"] != 11.0 || sum[0]["start"] != nil {
		t.Errorf("the sum is %v", sum)
	}
	before := url.QueryEscape(time.Now().Add(-48 * time.Hour).Format(time.RFC3339))
	if a := r.call("GET", "/v1/usage?to="+before, nil).want(t, 200); len(a.used()) != 0 {
		t.Errorf("before that there is %s", a.raw)
	}
	first := r.call("GET", "/v1/usage?group_by=user&limit=1", nil).want(t, 200)
	second := r.call("GET", "/v1/usage?group_by=user&limit=2&cursor="+first.text("next_cursor"), nil).want(t, 200)
	if first.used()[0]["user"] != "ann" || second.used()[0]["user"] != "bob" || second.get("next_cursor") != nil {
		t.Errorf("the pages are %s and %s", first.raw, second.raw)
	}
}

func TestUsageOfOthers(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	plain := must(r.store.CreateKey(context.Background(), "default", "plain", []string{models.ScopeSandboxes}))(t)
	r.call("GET", "/v1/usage?all_tenants=true&group_by=tenant", nil).want(t, 200)
	r.call("GET", "/v1/usage?all_tenants=true", nil, "Authorization", "Bearer "+plain).problem(t, 403, "scope_missing")
	r.call("GET", "/v1/usage", nil, "Authorization", "Bearer "+plain).want(t, 200)
	for _, bad := range []string{"group_by=colour", "from=yesterday", "from=2020-01-01T00:00:00Z", "cursor=x", "cursor=WyIiXQ", "limit=0", "from=2026-01-02T00:00:00Z&to=2026-01-01T00:00:00Z"} {
		r.call("GET", "/v1/usage?"+bad, nil).problem(t, 422, "invalid_request")
	}
}
