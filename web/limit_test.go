package web_test

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"strings"
	"testing"
	"time"

	"sandyard/dev/testenv"
	"sandyard/jobs"
	"sandyard/jobs/scheduler"
	"sandyard/jobs/webhook"
	"sandyard/models"
	"sandyard/netguard"
	"sandyard/tokens"
	"sandyard/web"
)

func TestLimitsOfResources(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(c *web.Config) { c.Address = tokens.Address{Scheme: "http", Domain: "sandboxes.example"} })
	r.sql("UPDATE tenants SET max_cpus = 2.5, max_memory_mib = 1536")
	r.sandbox(map[string]any{}) // 1 core and 512 MiB, as nobody says
	r.sandbox(map[string]any{"cpus": 1.5, "memory_mb": 64})
	cpus := r.call("POST", "/v1/sandboxes", `{"cpus": 0.1}`).problem(t, 429, "limit_reached")
	if cpus.text("limit") != "max_cpus" || cpus.get("used") != 2.5 || cpus.get("max") != 2.5 || cpus.get("retry_after") == nil ||
		!strings.Contains(cpus.text("detail"), "asks for 0.1") {
		t.Errorf("cores: %s", cpus.raw)
	}
	r.sql("UPDATE tenants SET max_cpus = NULL")
	memory := r.call("POST", "/v1/run", `{"command": "x", "memory_mb": 961}`).problem(t, 429, "limit_reached")
	if memory.text("limit") != "max_memory_mib" || memory.get("used") != 576.0 || memory.get("max") != 1536.0 {
		t.Errorf("memory: %s", memory.raw)
	}
	alone := r.call("POST", "/v1/sandboxes", `{"memory_mb": 2048}`).problem(t, 429, "limit_reached")
	if !strings.Contains(alone.text("detail"), "ask for less") {
		t.Errorf("a request that can never succeed: %s", alone.raw)
	}
	r.sql("UPDATE tenants SET max_memory_mib = 600")
	theirs := r.call("POST", "/sandboxes", map[string]any{"templateID": "python"}).want(t, 429)
	if !strings.Contains(theirs.text("message"), "max_memory_mib") || theirs.header.Get("Retry-After") != "" {
		t.Errorf("in E2B's form: %v %s", theirs.header, theirs.raw)
	}
	r.call("POST", "/v1/templates/own/builds", map[string]any{"image": "fake-image"}).problem(t, 429, "limit_reached")
}

// TestLimitsOfUsers: a user's login, key and schedule share the user's limits.
func TestLimitsOfUsers(t *testing.T) {
	t.Parallel()
	r := newAgent(t)
	user := must(r.store.UserNamed(t.Context(), "sandbox_test"))(t)
	limited := r.call("PATCH", "/v1/users/"+user.ID, map[string]any{"max_sandboxes": 3, "max_cpus": 8.5}).want(t, 200)
	if limited.get("limits.max_sandboxes") != 3.0 || limited.get("limits.max_cpus") != 8.5 || limited.get("limits.max_queued") != nil {
		t.Errorf("the limits: %s", limited.raw)
	}
	if limited = r.call("PATCH", "/v1/users/"+user.ID, map[string]any{"max_cpus": nil}).want(t, 200); limited.get("limits.max_cpus") != nil ||
		limited.get("limits.max_sandboxes") != 3.0 {
		t.Errorf("one removed: %s", limited.raw)
	}
	for _, bad := range []any{-1, 1.5, "x", 1e12} {
		r.call("PATCH", "/v1/users/"+user.ID, map[string]any{"max_sandboxes": bad}).problem(t, 422, "invalid_request")
	}
	r.call("PATCH", "/v1/users/"+user.ID, map[string]any{"role": "admin"}).want(t, 200)
	first := must(r.store.MakeKey(t.Context(), "default", models.NewKey{
		Name: "first", Scopes: []string{models.ScopeSandboxes, models.ScopeAdmin}, User: user.ID,
	}))(t)
	own := []string{"Authorization", "Bearer " + first}
	// A key that the user makes is the user's, too.
	second := r.call("POST", "/v1/keys", map[string]any{"name": "second"}, own...).want(t, 201).text("text")

	r.create()
	r.call("POST", "/v1/sandboxes", `{}`, own...).want(t, 202)
	r.call("POST", "/v1/schedules", map[string]any{
		"interval_seconds": 3600, "missed": "run_once", "create": map[string]any{"template": "python"},
	}, own...).want(t, 201)
	r.sql("UPDATE schedules SET next_due = now()")
	r.schedule()
	testenv.Eventually(t, "the schedule's sandbox", func() bool { return r.rows() == "3 sandboxes, 3 jobs" })

	full := r.call("POST", "/v1/sandboxes", `{}`, "Authorization", "Bearer "+second).problem(t, 429, "limit_reached")
	if full.text("limit") != "user_max_sandboxes" || full.get("used") != 3.0 || full.get("max") != 3.0 {
		t.Errorf("the limit of a user: %s", full.raw)
	}
	r.ask("POST", "/create", map[string]any{"user_id": "demo"}).refusal(t, 429, "limit_reached", "user_max_sandboxes is reached: 3 of 3")
	r.call("POST", "/v1/sandboxes", `{}`).want(t, 202) // the tenant has room

	made := r.call("POST", "/v1/keys/"+must(r.store.Authenticate(t.Context(), second))(t).ID+"/rotate", nil, own...).want(t, 201).text("text")
	for _, key := range []string{first, made} { // a key's successor is the user's, too
		r.call("POST", "/v1/sandboxes", `{}`, "Authorization", "Bearer "+key).problem(t, 429, "limit_reached")
	}
	must(r.store.RemoveUser(t.Context(), "default", user.ID))(t)
	fresh := newRigOn(t, r.dsn)
	for _, key := range []string{first, second, made} {
		fresh.call("GET", "/v1/sandboxes", nil, "Authorization", "Bearer "+key).problem(t, 401, "unauthorized")
	}
}

// schedule starts a scheduler.
func (r *rig) schedule() {
	r.t.Helper()
	log := slog.New(slog.DiscardHandler)
	catalog := jobs.Catalog{Providers: []string{"fake"}, Templates: map[string]string{"python": "fake-python"}, Template: "python"}
	s := scheduler.New(scheduler.Config{
		Store: r.store, Client: jobs.NewClient(r.store, r.queue, catalog, log), Queue: r.queue,
		Webhooks: webhook.New(r.store, r.queue, netguard.Rules{}, log), LostAfter: time.Minute, Log: log,
	})
	s.Start(context.Background())
	r.t.Cleanup(s.Stop)
}

// TestJobRateOverHTTP: the limit is told in each contract's form, with the time to wait.
func TestJobRateOverHTTP(t *testing.T) {
	t.Parallel()
	r := newAgent(t, func(c *web.Config) { c.Address = tokens.Address{Scheme: "http", Domain: "sandboxes.example"} })
	r.sql("UPDATE tenants SET job_rate = 0.01, job_burst = 2")
	r.call("POST", "/v1/sandboxes", `{}`, "Idempotency-Key", "same").want(t, 202)
	r.call("POST", "/v1/sandboxes", `{}`, "Idempotency-Key", "same").want(t, 200)
	r.call("POST", "/v1/sandboxes?wait=60s", `{}`).want(t, 200)
	a := r.call("POST", "/v1/run", `{"command": "x"}`).problem(t, 429, "limit_reached")
	wait, _ := a.get("retry_after").(float64)
	if a.text("limit") != "job_rate" || a.get("used") != 2.0 || a.get("max") != 2.0 || wait < 6 || wait > 100 || a.header.Get("Retry-After") != fmt.Sprint(wait) ||
		!strings.Contains(a.text("detail"), "at most 2 at once and 0.01 a second") {
		t.Errorf("the rate: %v %s", a.header, a.raw)
	}
	r.call("POST", "/v1/sandboxes", `{}`, "Idempotency-Key", "same").want(t, 200)
	r.ask("POST", "/create", map[string]any{"user_id": "demo"}).refusal(t, 429, "limit_reached", "job_rate")
	if a := r.call("POST", "/sandboxes", map[string]any{"templateID": "python"}).want(t, 429); a.header.Get("Retry-After") == "" {
		t.Errorf("in E2B's form: %v %s", a.header, a.raw)
	}
	r.e2b = false // what follows is another contract's
	server := r.call("POST", "/sandboxes/create", map[string]any{"user_id": "demo"}).want(t, 429)
	if server.header.Get("Retry-After") == "" || !strings.Contains(server.raw, "job_rate") {
		t.Errorf("in the sandbox server's form: %v %s", server.header, server.raw)
	}
}

// TestLimitsAreShown: what GET /v1/limits shows is what a request meets.
func TestLimitsAreShown(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	u := must(r.store.CreateUser(t.Context(), "default", "ann", "", models.RoleMember))(t)
	r.call("PATCH", "/v1/users/"+u.ID, map[string]any{"max_cpus": 1.5, "job_rate": 0.001, "job_burst": 3}).want(t, 200)
	text := must(r.store.MakeKey(t.Context(), "default", models.NewKey{Name: "ann's", Scopes: []string{models.ScopeSandboxes}, User: u.ID}))(t)
	own := []string{"Authorization", "Bearer " + text}
	r.sql("UPDATE tenants SET max_memory_mib = 2000")
	id := r.sandbox(map[string]any{"cpus": 2})
	r.call("POST", "/v1/sandboxes", map[string]any{"cpus": 0.5}, own...).want(t, 202)
	r.call("POST", "/v1/sandboxes/"+id+"/exec", map[string]any{"command": "x"}, own...).want(t, 202)

	shown := func(headers ...string) map[string]string {
		t.Helper()
		all := map[string]string{}
		for _, one := range r.call("GET", "/v1/limits", nil, headers...).want(t, 200).get("limits").([]any) {
			one := one.(map[string]any)
			all[one["limit"].(string)] = fmt.Sprint(one["used"], " of ", one["max"])
		}
		return all
	}
	want := map[string]string{
		"max_sandboxes": "2 of 100", "max_cpus": "2.5 of <nil>", "max_memory_mib": "1024 of 2000", "max_queued": "3 of 10000",
		"max_templates": "0 of 100", "max_schedules": "0 of 100", "job_rate": "<nil> of <nil>",
	}
	theirs := map[string]string{
		"user_max_sandboxes": "1 of <nil>", "user_max_cpus": "0.5 of 1.5", "user_max_memory_mib": "512 of <nil>", "user_max_queued": "2 of <nil>",
		"user_job_rate": "2 of 3",
	}
	mine := shown()
	if bytes := mine["max_queued_bytes"]; !strings.HasSuffix(bytes, " of 1.073741824e+09") || strings.HasPrefix(bytes, "0") {
		t.Errorf("bytes of waiting jobs: %s", bytes)
	}
	delete(mine, "max_queued_bytes")
	if !maps.Equal(mine, want) {
		t.Errorf("limits of a key of nobody: %v, want %v", mine, want)
	}
	all := shown(own...)
	delete(all, "max_queued_bytes")
	if maps.Copy(want, theirs); !maps.Equal(all, want) {
		t.Errorf("limits of a user's key: %v, want %v", all, want)
	}
	refused := r.call("POST", "/v1/sandboxes", `{"cpus": 1.1}`, own...).problem(t, 429, "limit_reached")
	if refused.text("limit") != "user_max_cpus" || fmt.Sprint(refused.get("used"), " of ", refused.get("max")) != theirs["user_max_cpus"] {
		t.Errorf("refused otherwise than shown: %s", refused.raw)
	}
}
