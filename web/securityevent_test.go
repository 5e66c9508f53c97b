package web_test

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"sandyard/dev/testenv"
	"sandyard/jobs/security"
	"sandyard/models"
	"sandyard/web"
)

// guarded is a rig that counts security events.
func guarded(t *testing.T) *agent {
	t.Helper()
	return newAgent(t, func(c *web.Config) {
		c.Security = security.New(c.Store, slog.New(slog.DiscardHandler))
		t.Cleanup(c.Security.Close)
	})
}

// happened waits until an event of a kind has happened so often, and returns it.
func (r *rig) happened(query, kind string, times float64, headers ...string) (e map[string]any) {
	r.t.Helper()
	testenv.Eventually(r.t, fmt.Sprint(times, " times ", kind), func() bool {
		sum := 0.0
		for _, one := range r.call("GET", "/v1/security-events?kind="+kind+query, nil, headers...).want(r.t, 200).get("events").([]any) {
			if e == nil {
				e = one.(map[string]any)
			}
			sum += one.(map[string]any)["times"].(float64)
		}
		return sum == times
	})
	return e
}

// TestSecurityEvents: what comes from outside is counted, and shown to whom it belongs.
func TestSecurityEvents(t *testing.T) {
	t.Parallel()
	r := guarded(t)
	login := func(name, password string) answer {
		return r.call("POST", "/v1/login", map[string]any{"name": name, "password": password}, "Authorization", "")
	}
	for range 10 {
		login("sandbox_test", "hunter2 hunter2").problem(t, 401, "login_failed")
	}
	login("sandbox_test", "hunter2 hunter2").problem(t, 429, "too_many_logins")
	login("hunter2", "hunter2 hunter2").problem(t, 401, "login_failed")
	for range 3 {
		r.call("GET", "/v1/sandboxes", nil, "Authorization", "Bearer sy_0123456789012345678901234567890123456789").problem(t, 401, "unauthorized")
	}
	r.call("GET", "/v1/sandboxes", nil, "Authorization", "").problem(t, 401, "unauthorized") // no key at all
	r.call("GET", "/v1/sandboxes", nil, "Authorization", "Bearer a.b.c").problem(t, 401, "token_invalid")
	r.sql("UPDATE tenants SET max_sandboxes = 0")
	r.call("POST", "/v1/sandboxes", `{}`).problem(t, 429, "limit_reached")

	user := must(r.store.UserNamed(t.Context(), "sandbox_test"))(t)
	if e := r.happened("", models.LoginFailed, 10); e["actor"] != user.ID || e["address"] != "127.0.0.1" || e["tenant"] != "default" {
		t.Errorf("failed logins: %v", e)
	}
	r.happened("&all_tenants=true", models.LoginFailed, 11)
	r.happened("&all_tenants=true", models.LoginBlocked, 1)
	if e := r.happened("&all_tenants=true", models.KeyRefused, 4); e["tenant"] != nil {
		t.Errorf("refused keys: %v", e)
	}
	if e := r.happened("", models.LimitReached, 1); e["detail"] != "max_sandboxes" {
		t.Errorf("a limit: %v", e)
	}
	r.happened("", models.KeyRefused, 0)
	if raw := r.call("GET", "/v1/security-events?all_tenants=true", nil).want(t, 200).raw; strings.Contains(raw, "hunter2") {
		t.Errorf("names or passwords of failed logins are shown: %s", raw)
	}

	r.sql("INSERT INTO tenants (id, name, webhook_secret) VALUES ('other', 'other', 'whsec_AAAA')")
	admin := []string{"Authorization", "Bearer " + must(r.store.CreateKey(t.Context(), "other", "a", []string{models.ScopeSandboxes, models.ScopeAdmin}))(t)}
	plain := []string{"Authorization", "Bearer " + must(r.store.CreateKey(t.Context(), "other", "p", []string{models.ScopeSandboxes}))(t)}
	r.call("GET", "/v1/security-events", nil, plain...).problem(t, 403, "scope_missing")
	r.call("GET", "/v1/security-events?all_tenants=true", nil, admin...).problem(t, 403, "scope_missing")
	if raw := r.call("GET", "/v1/security-events", nil, admin...).want(t, 200).raw; strings.Contains(raw, "kind") {
		t.Errorf("another tenant sees %s", raw)
	}
	first := r.call("GET", "/v1/security-events?all_tenants=true&limit=1", nil).want(t, 200)
	second := r.call("GET", "/v1/security-events?all_tenants=true&limit=1&cursor="+first.text("next_cursor"), nil).want(t, 200)
	if first.raw == second.raw || len(second.get("events").([]any)) != 1 {
		t.Errorf("pages: %s %s", first.raw, second.raw)
	}
	r.call("GET", "/v1/security-events?kind=x", nil).problem(t, 422, "invalid_request")
	if n := must(r.store.PruneSecurityEvents(t.Context(), -1<<40, 100))(t); n < 4 {
		t.Errorf("retention forgot %d", n)
	}
}

// TestWrongKeysAreThrottled: an address that sends nothing else is told so, and right keys from it still work.
func TestWrongKeysAreThrottled(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	wrong := func(i int) answer {
		return r.call("GET", "/v1/limits", nil, "Authorization", fmt.Sprintf("Bearer sy_%040d", i%10))
	}
	for i := range 1000 {
		wrong(i).problem(t, 401, "unauthorized")
	}
	if a := wrong(0).problem(t, 429, "too_many_keys"); a.header.Get("Retry-After") == "" {
		t.Errorf("no time to wait: %v", a.header)
	}
	r.call("GET", "/v1/limits", nil).want(t, 200)
}
