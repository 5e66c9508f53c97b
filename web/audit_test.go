package web_test

import (
	"fmt"
	"net/url"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"

	"sandyard/dev/testenv"
	"sandyard/models"
	"sandyard/tokens"
	"sandyard/web"
)

// entries returns entries of the audit log, newest first: action, target, outcome, status and code.
func (r *rig) entries(query string, headers ...string) (list []map[string]any) {
	r.t.Helper()
	for _, e := range r.call("GET", "/v1/audit?limit=100&"+query, nil, headers...).want(r.t, 200).get("entries").([]any) {
		list = append(list, e.(map[string]any))
	}
	return list
}

// entry waits for the newest entry of an action whose outcome is known.
func (r *rig) entry(action string, headers ...string) (e map[string]any) {
	r.t.Helper()
	testenv.Eventually(r.t, "the entry of "+action, func() bool {
		all := r.entries("action="+url.QueryEscape(action), headers...)
		if len(all) > 0 {
			e = all[0]
		}
		return len(all) > 0 && e["outcome"] != "unknown"
	})
	return e
}

func told(e map[string]any) string {
	return fmt.Sprint(e["target"], " ", e["outcome"], " ", e["status"], " ", e["code"])
}

// TestAuditOfWrites: jobs, direct changes and what is refused have their entries, with who asked from where.
func TestAuditOfWrites(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	box := r.call("POST", "/v1/sandboxes", map[string]any{"env": map[string]string{"A": "hunter2"}}, "X-Request-Id", "mine").want(t, 202)
	e := r.entry("POST /v1/sandboxes")
	key := must(r.store.Authenticate(t.Context(), r.key))(t)
	if told(e) != box.text("sandbox.id")+" done 202 <nil>" || e["job_id"] != box.text("job.id") || e["request_id"] != "mine" || e["actor"] != key.ID ||
		e["address"] != "127.0.0.1" || e["tenant"] != "default" || e["user"] != nil || e["times"] != 1.0 {
		t.Errorf("a job: %v", e)
	}
	id := box.text("sandbox.id")
	made := r.call("POST", "/v1/keys", map[string]any{"name": "sesame"}).want(t, 201)
	if got := told(r.entry("POST /v1/keys")); got != made.text("key.id")+" done 201 <nil>" {
		t.Errorf("a key: %s", got)
	}
	r.call("DELETE", "/v1/keys/"+made.text("key.id"), nil).want(t, 200)
	if got := told(r.entry("DELETE /v1/keys/{id}")); got != made.text("key.id")+" done 200 <nil>" {
		t.Errorf("a revoked key: %s", got)
	}
	r.call("PUT", "/v1/templates/mine", map[string]any{"image": "fake-one"}).want(t, 200)
	if got := told(r.entry("PUT /v1/templates/{name}")); got != "mine done 200 <nil>" {
		t.Errorf("a template: %s", got)
	}
	job := r.call("POST", "/v1/sandboxes/"+id+"/exec", `{"command": "hunter2"}`).want(t, 202).text("job.id")
	r.call("POST", "/v1/jobs/"+job+"/cancel", nil).want(t, 200)
	if got := told(r.entry("POST /v1/jobs/{id}/cancel")); got != job+" done 200 <nil>" {
		t.Errorf("a cancelled job: %s", got)
	}
	for range 3 {
		r.call("POST", "/v1/sandboxes/"+id+"/exec", `{"argv": "hunter2"}`).problem(t, 422, "invalid_request")
	}
	testenv.Eventually(t, "refused writes", func() bool {
		times := 0.0
		for _, e := range r.entries("outcome=refused&action=" + url.QueryEscape("POST /v1/sandboxes/{id}/exec")) {
			if times += e["times"].(float64); told(e) != id+" refused 422 invalid_request" {
				t.Errorf("a refused write: %v", e)
			}
		}
		return times == 3
	})
	// A repeat is no second write, and a look none at all.
	repeated := []string{"Idempotency-Key", "key"}
	r.call("POST", "/v1/sandboxes/"+id+"/exec", `{"command": "x"}`, repeated...).want(t, 202)
	r.call("POST", "/v1/sandboxes/"+id+"/exec", `{"command": "x"}`, repeated...).want(t, 200)
	r.entry("POST /v1/sandboxes/{id}/exec")
	testenv.Eventually(t, "the repeat", func() bool {
		all := r.entries("outcome=done&action=" + url.QueryEscape("POST /v1/sandboxes/{id}/exec"))
		return len(all) == 3 && all[0]["job_id"] == nil && all[0]["status"] == 200.0
	})
	if all := r.entries("action=" + url.QueryEscape("GET /v1/audit")); len(all) != 0 {
		t.Errorf("looks are written down: %v", all)
	}
	for _, secret := range []string{"hunter2", "sesame", made.text("text"), r.key} {
		if raw := r.call("GET", "/v1/audit?limit=100", nil).want(t, 200).raw; strings.Contains(raw, secret) {
			t.Errorf("the log has %q: %s", secret, raw)
		}
	}
}

// TestAuditFilters pages and selects, and keeps tenants apart.
func TestAuditFilters(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	id := r.sandbox(map[string]any{})
	for range 4 {
		r.call("POST", "/v1/sandboxes/"+id+"/exec", `{"command": "x"}`).want(t, 202)
	}
	r.sql("INSERT INTO tenants (id, name, webhook_secret) VALUES ('other', 'other', 'whsec_AAAA')")
	admin := []string{"Authorization", "Bearer " + must(r.store.CreateKey(t.Context(), "other", "a", []string{models.ScopeSandboxes, models.ScopeAdmin}))(t)}
	plain := []string{"Authorization", "Bearer " + must(r.store.CreateKey(t.Context(), "other", "p", []string{models.ScopeSandboxes}))(t)}
	r.call("POST", "/v1/sandboxes", `{}`, plain...).want(t, 202)
	r.call("GET", "/v1/audit", nil, plain...).problem(t, 403, "scope_missing")
	r.call("GET", "/v1/audit?all_tenants=true", nil, admin...).problem(t, 403, "scope_missing")
	if all := r.entries("", admin...); len(all) != 1 || all[0]["tenant"] != "other" {
		t.Errorf("another tenant sees %v", all)
	}
	if all := r.entries("target="+id, admin...); len(all) != 0 {
		t.Errorf("another tenant sees the entries of %s: %v", id, all)
	}
	key := must(r.store.Authenticate(t.Context(), r.key))(t).ID
	for query, want := range map[string]int{
		"": 5, "all_tenants=true": 6, "target=" + id: 5, "target=nothing": 0, "actor=" + key: 5, "actor=x": 0, "outcome=done": 5, "outcome=refused": 0,
		"action=POST+/v1/sandboxes": 1, "from=2100-01-01T00:00:00Z": 0, "to=2100-01-01T00:00:00Z": 5, "to=2001-01-01T00:00:00Z": 0,
	} {
		if all := r.entries(query); len(all) != want {
			t.Errorf("%q: %d entries, want %d", query, len(all), want)
		}
	}
	var ids []any
	for cursor := ""; ; {
		page := r.call("GET", "/v1/audit?limit=2"+cursor, nil).want(t, 200)
		for _, e := range page.get("entries").([]any) {
			ids = append(ids, e.(map[string]any)["id"])
		}
		if page.get("next_cursor") == nil {
			break
		}
		cursor = "&cursor=" + page.text("next_cursor")
	}
	if len(ids) != 5 {
		t.Errorf("pages of %v", ids)
	}
	for _, bad := range []string{"outcome=x", "from=x", "cursor=x", "limit=0", "unknown=1"} {
		r.call("GET", "/v1/audit?"+bad, nil).problem(t, 422, "invalid_request")
	}
}

// TestAuditOfLogins and of what users do through other contracts.
func TestAuditOfLogins(t *testing.T) {
	t.Parallel()
	r := newAgent(t, func(c *web.Config) { c.Address = tokens.Address{Scheme: "http", Domain: "sandboxes.example"} })
	user := must(r.store.UserNamed(t.Context(), "sandbox_test"))(t)
	e := r.entry("POST " + agentLogin)
	if told(e) != "<nil> done 200 <nil>" || e["user"] != user.ID || !strings.HasPrefix(e["actor"].(string), "lgn_") {
		t.Errorf("a login: %v", e)
	}
	r.call("POST", "/v1/login", map[string]any{"name": "sandbox_test", "password": "TestPass123!"}, "Authorization", "").want(t, 200)
	r.call("POST", "/v1/login", map[string]any{"name": "sandbox_test", "password": "wrong"}, "Authorization", "").problem(t, 401, "login_failed")
	if all := r.entries("action=POST+/v1/login"); len(all) != 1 || all[0]["user"] != user.ID {
		t.Errorf("logins: %v", all)
	}
	id := r.create()
	if e := r.entry("POST " + agentBase + "/create"); e["user"] != user.ID || e["target"] == nil || e["outcome"] != "done" {
		t.Errorf("a sandbox of the agent API: %v", e)
	}
	r.ask("DELETE", "/"+id, nil).want(t, 200)
	if got := told(r.entry("DELETE " + agentBase + "/{id}")); !strings.HasSuffix(got, " done 202 <nil>") {
		t.Errorf("its delete: %s", got)
	}
	theirs := r.call("POST", "/sandboxes", map[string]any{"templateID": "python"}).want(t, 201).text("sandboxID")
	if e := r.entry("POST /sandboxes"); !strings.Contains(fmt.Sprint(e["target"]), theirs) && e["job_id"] == nil {
		t.Errorf("a sandbox of E2B: %v", e)
	}
	r.call("DELETE", "/sandboxes/"+theirs, nil).want(t, 204)
	r.entry("DELETE /sandboxes/{id}")
}

// TestAuditIsAppendOnly: not even the server's own connection changes or removes an entry.
func TestAuditIsAppendOnly(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.sandbox(map[string]any{})
	conn := must(pgx.Connect(t.Context(), r.dsn))(t)
	defer conn.Close(t.Context())
	for _, forbidden := range []string{
		"UPDATE audit_log SET actor = 'somebody'", "UPDATE audit_log SET status = 200", "UPDATE audit_log SET times = 2", "DELETE FROM audit_log", "TRUNCATE audit_log",
	} {
		if _, err := conn.Exec(t.Context(), forbidden); err == nil || !strings.Contains(err.Error(), "append-only") {
			t.Errorf("%s: %v", forbidden, err)
		}
	}
	// One that is begun gets an outcome, once, and nothing else.
	e := models.AuditEntry{TenantID: "default", Actor: "key_x", Client: "127.0.0.1", RequestID: "r", Action: "PUT /x"}
	check(t, r.store.Audit(t.Context(), &e))
	if _, err := conn.Exec(t.Context(), "UPDATE audit_log SET status = 200, actor = 'somebody' WHERE id = $1", e.ID); err == nil {
		t.Error("an outcome came with another actor")
	}
	if all := r.entries("outcome=unknown"); len(all) != 1 || all[0]["status"] != nil {
		t.Errorf("begun, and no more: %v", all)
	}
	for _, status := range []int{204, 500} {
		check(t, r.store.AuditResults(t.Context(), []models.AuditOutcome{{ID: e.ID, Status: status}}, nil))
	}
	if all := r.entries("actor=key_x"); len(all) != 1 || all[0]["status"] != 204.0 {
		t.Errorf("the first outcome counts: %v", all)
	}
	if n, err := r.store.PruneAudit(t.Context(), 1<<50, 10); n != 0 || err != nil {
		t.Errorf("forgot %d young entries: %v", n, err)
	}
	if n, err := r.store.PruneAudit(t.Context(), -1<<40, 10); n != 2 || err != nil {
		t.Errorf("retention forgot %d entries: %v", n, err)
	}
}

// TestAuditIsBounded: a caller whose requests are refused adds few rows, and whoever has no key none. While nothing can be written,
// what comes shares a row.
func TestAuditIsBounded(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	conn := must(pgx.Connect(t.Context(), r.dsn))(t)
	defer conn.Close(t.Context())
	held := must(conn.Begin(t.Context()))(t)
	must(held.Exec(t.Context(), "LOCK TABLE audit_log IN SHARE ROW EXCLUSIVE MODE"))(t)
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 25 {
				_, _ = r.try("POST", "/v1/sandboxes/sb00000000000000000000000000/exec", `{"command": "x"}`)
				_, _ = r.try("POST", "/v1/sandboxes", `{}`, "Authorization", "Bearer sy_0123456789012345678901234567890123456789")
			}
		})
	}
	all.Wait()
	check(t, held.Rollback(t.Context()))
	testenv.Eventually(t, "all refusals are counted", func() bool {
		times, list := 0.0, r.entries("all_tenants=true")
		for _, e := range list {
			times += e["times"].(float64)
		}
		if len(list) > 5 {
			t.Fatalf("%d rows for %v requests that are alike", len(list), times)
		}
		return times == 200
	})
}

// TestNothingChangesWithoutItsEntry: where the log cannot be written, a change is refused and not made.
func TestNothingChangesWithoutItsEntry(t *testing.T) {
	t.Parallel()
	r := newAgent(t)
	id := r.sandbox(map[string]any{})
	before := r.rows()
	r.sql("ALTER TABLE audit_log RENAME TO elsewhere")
	r.call("POST", "/v1/keys", map[string]any{"name": "unseen"}).problem(t, 500, "internal_error")
	r.call("POST", "/v1/sandboxes/"+id+"/exec", `{"command": "x"}`).problem(t, 500, "internal_error")
	r.call("POST", "/v1/login", map[string]any{"name": "sandbox_test", "password": "TestPass123!"}, "Authorization", "").problem(t, 500, "internal_error")
	r.sql("ALTER TABLE elsewhere RENAME TO audit_log")
	if raw := r.call("GET", "/v1/keys", nil).want(t, 200).raw; strings.Contains(raw, "unseen") || r.rows() != before {
		t.Errorf("something was changed: %s, %s", raw, r.rows())
	}
	r.call("POST", "/v1/keys", map[string]any{"name": "unseen"}).want(t, 201)
}
