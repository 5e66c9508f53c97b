package web_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"sandyard/auth"
	"sandyard/jobs/secrets"
	"sandyard/models"
	"sandyard/vault"
	"sandyard/web"
)

// addUser makes a user of the first tenant.
func (r *rig) addUser(t *testing.T, name, role string) models.User {
	t.Helper()
	return must(r.store.CreateUser(t.Context(), "default", name, must(auth.HashPassword("TestPass123!"))(t), role))(t)
}

func (r *rig) login(t *testing.T, name, password string) answer {
	t.Helper()
	return r.call("POST", "/v1/login", map[string]any{"name": name, "password": password}, "Authorization", "")
}

// number is what a query says.
func (r *rig) number(t *testing.T, query string) (n float64) {
	t.Helper()
	conn := must(pgx.Connect(t.Context(), r.dsn))(t)
	defer conn.Close(context.Background())
	check(t, conn.QueryRow(t.Context(), query).Scan(&n))
	return n
}

func bearer(text string) []string { return []string{"Authorization", "Bearer " + text} }

func TestLogin(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	user := r.addUser(t, "ada", models.RoleMember)
	in := r.login(t, "ada", "TestPass123!").want(t, 200)
	token := in.text("access_token")
	if in.header.Get("Cache-Control") != "no-store" || in.text("user.id") != user.ID || in.text("token_type") != "bearer" || in.get("expires_in") != 3600.0 {
		t.Errorf("the login: %s %v", in.raw, in.header)
	}
	me := r.call("GET", "/v1/me", nil, bearer(token)...).want(t, 200)
	if me.text("user.name") != "ada" || me.text("tenant") != "default" || me.get("key") != nil {
		t.Errorf("me: %s", me.raw)
	}
	if byKey := r.call("GET", "/v1/me", nil).want(t, 200); byKey.text("key.id") == "" || byKey.get("user") != nil {
		t.Errorf("me, by an API key: %s", byKey.raw)
	}
	made := r.call("POST", "/v1/sandboxes", map[string]any{}, bearer(token)...).want(t, 202)
	if events := r.call("GET", "/v1/sandboxes/"+made.text("sandbox.id")+"/events", nil, bearer(token)...).want(t, 200); !strings.Contains(events.raw, user.ID) {
		t.Errorf("the user is not in the events: %s", events.raw)
	}
	for path, scope := range map[string]string{"/v1/keys": "admin", "/v1/users": "admin", "/v1/tenants": "operator"} {
		if a := r.call("GET", path, nil, bearer(token)...).problem(t, 403, "scope_missing"); !strings.Contains(a.raw, scope) {
			t.Errorf("%s: %s", path, a.raw)
		}
	}
	r.login(t, "ada", "wrong").problem(t, 401, "login_failed")
	r.login(t, "nobody", "TestPass123!").problem(t, 401, "login_failed")
	r.call("POST", "/v1/login", `{"name": "ada"}`, "Authorization", "").problem(t, 422, "invalid_request")
	r.call("POST", "/v1/login", `{"name": "ada", "password": "`+strings.Repeat("x", 5000)+`"}`, "Authorization", "").problem(t, 413, "login_too_large")
	for _, path := range []string{"/v1/login/", "/v1//login", "/v1/login/other"} {
		if a := r.call("POST", path, map[string]any{}, "Authorization", ""); a.status != 401 && a.status != 404 {
			t.Errorf("%s without a key: %d %s", path, a.status, a.raw)
		}
	}
	r.call("GET", "/v1/me", nil, bearer(token+"x")...).problem(t, 401, "token_invalid")
	r.call("POST", "/v1/logout", nil).problem(t, 409, "no_login")
	r.call("POST", "/v1/me/password", map[string]any{"old": "a", "new": "abcdefgh"}).problem(t, 409, "no_login")
	r.call("POST", "/v1/logout", nil, bearer(token)...).want(t, 204)
	r.call("GET", "/v1/me", nil, bearer(token)...).problem(t, 401, "token_invalid")
	r.call("POST", "/v1/login/refresh", map[string]any{"refresh_token": in.text("refresh_token")}, "Authorization", "").problem(t, 401, "token_invalid")
	if log := r.log.String(); strings.Contains(log, "TestPass") || strings.Contains(log, token) || strings.Contains(log, in.text("refresh_token")) {
		t.Error("a secret is in the log")
	}
}

func TestRefresh(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.addUser(t, "ada", models.RoleMember)
	refresh := func(token string) answer {
		return r.call("POST", "/v1/login/refresh", map[string]any{"refresh_token": token}, "Authorization", "")
	}
	first := r.login(t, "ada", "TestPass123!").want(t, 200)
	second := refresh(first.text("refresh_token")).want(t, 200)
	again := refresh(first.text("refresh_token")).want(t, 200) // the answer was lost
	refresh(second.text("refresh_token")).problem(t, 401, "token_invalid")
	third := refresh(again.text("refresh_token")).want(t, 200)
	for _, token := range []string{first.text("access_token"), third.text("access_token")} {
		r.call("GET", "/v1/me", nil, bearer(token)...).want(t, 200)
	}
	r.sql("UPDATE logins SET refreshed_at = now() - interval '2 minutes'")
	refresh(again.text("refresh_token")).problem(t, 401, "token_invalid") // somebody uses it a second time
	refresh(third.text("refresh_token")).problem(t, 401, "token_invalid")
	fresh := newRigOn(t, r.dsn) // another process, which has not seen the login yet
	fresh.call("GET", "/v1/me", nil, bearer(third.text("access_token"))...).problem(t, 401, "token_invalid")
	refresh("ref_nothing").problem(t, 401, "token_invalid")

	late := r.login(t, "ada", "TestPass123!").want(t, 200)
	r.sql("UPDATE logins SET expires_at = now()")
	refresh(late.text("refresh_token")).problem(t, 401, "token_invalid")
}

func TestOwnPassword(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.addUser(t, "ada", models.RoleMember)
	token := r.login(t, "ada", "TestPass123!").want(t, 200).text("access_token")
	change := func(old, next string) answer {
		return r.call("POST", "/v1/me/password", map[string]any{"old": old, "new": next}, bearer(token)...)
	}
	change("wrong", "another one").problem(t, 401, "login_failed")
	change("TestPass123!", "short").problem(t, 422, "invalid_request")
	change("TestPass123!", "another one").want(t, 204)
	r.call("GET", "/v1/me", nil, bearer(token)...).problem(t, 401, "token_invalid")
	r.login(t, "ada", "TestPass123!").problem(t, 401, "login_failed")
	r.login(t, "ada", "another one").want(t, 200)
}

// TestSigningKeys rotates the keys that tokens are signed with.
func TestSigningKeys(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.addUser(t, "ada", models.RoleMember)
	before := r.login(t, "ada", "TestPass123!").want(t, 200).text("access_token")
	must(r.store.RotateSigningKey(t.Context(), auth.NewSecret(), auth.TokenLife, false))(t)
	fresh := newRigOn(t, r.dsn)
	after := fresh.login(t, "ada", "TestPass123!").want(t, 200).text("access_token")
	if strings.Split(before, ".")[0] == strings.Split(after, ".")[0] {
		t.Error("the old key still signs")
	}
	fresh.call("GET", "/v1/me", nil, bearer(before)...).want(t, 200)
	r.sql("UPDATE signing_keys SET created_at = created_at - interval '31 days'")
	keys := must(r.store.SigningKeys(t.Context(), auth.NewSecret(), auth.TokenLife))(t)
	if len(keys) != 2 { // the newest took over long ago, so the oldest is of no use; the newest is too old to sign
		t.Errorf("after a month there are %d keys", len(keys))
	}
	if more := must(r.store.SigningKeys(t.Context(), auth.NewSecret(), auth.TokenLife))(t); len(more) != 2 || more[0].ID != keys[0].ID {
		t.Errorf("a second look makes %d keys of %d", len(more), len(keys))
	}
	must(r.store.RotateSigningKey(t.Context(), auth.NewSecret(), auth.TokenLife, true))(t)
	newRigOn(t, r.dsn).call("GET", "/v1/me", nil, bearer(after)...).problem(t, 401, "token_invalid")
}

// TestLoginsAreBounded: a user who logs in for ever keeps a bounded number of logins.
func TestLoginsAreBounded(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	user := r.addUser(t, "ada", models.RoleMember)
	r.sql("INSERT INTO logins (id, user_id, refresh_hash, created_at, expires_at) SELECT 'lgn_' || i, '" + user.ID +
		"', decode(lpad(to_hex(i), 8, '0'), 'hex'), now() - i * interval '1 minute', now() + interval '1 hour' FROM generate_series(1, 1200) i")
	r.login(t, "ada", "TestPass123!").want(t, 200)
	if n := r.number(t, "SELECT count(*) FROM logins"); n != 1000 {
		t.Errorf("%v logins are kept", n)
	}
}

func TestUsersOverHTTP(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	boss := must(r.store.CreateKey(t.Context(), "default", "boss", []string{models.ScopeAdmin}))(t)
	as := func(method, path string, body any) answer { return r.call(method, path, body, bearer(boss)...) }
	made := as("POST", "/v1/users", map[string]any{"name": "ada", "password": "TestPass123!"}).want(t, 201)
	id := made.text("id")
	if made.text("role") != "member" || strings.Contains(made.raw, "argon2") {
		t.Errorf("made: %s", made.raw)
	}
	as("POST", "/v1/users", map[string]any{"name": "ada", "password": "TestPass123!"}).problem(t, 409, "name_taken")
	as("POST", "/v1/users", map[string]any{"name": "a b", "password": "TestPass123!"}).problem(t, 422, "invalid_request")
	as("POST", "/v1/users", map[string]any{"name": "eve", "password": "short"}).problem(t, 422, "invalid_request")
	as("POST", "/v1/users", map[string]any{"name": "eve", "password": "TestPass123!", "role": "operator"}).problem(t, 403, "scope_missing")
	as("PATCH", "/v1/users/"+id, map[string]any{}).problem(t, 422, "invalid_request")
	as("PATCH", "/v1/users/"+id, map[string]any{"role": "operator"}).problem(t, 403, "scope_missing")
	if a := as("PATCH", "/v1/users/"+id, map[string]any{"role": "admin"}).want(t, 200); a.text("role") != "admin" {
		t.Errorf("changed: %s", a.raw)
	}
	token := r.login(t, "ada", "TestPass123!").want(t, 200).text("access_token")
	if list := r.call("GET", "/v1/users", nil, bearer(token)...).want(t, 200); !strings.Contains(list.raw, id) {
		t.Errorf("the list: %s", list.raw)
	}
	chief := r.addUser(t, "chief", models.RoleOperator)
	for _, method := range []string{"PATCH", "DELETE"} { // an admin must not become operator by another's password
		r.call(method, "/v1/users/"+chief.ID, map[string]any{"password": "MyPass123!"}, bearer(token)...).problem(t, 403, "scope_missing")
	}
	r.sql("INSERT INTO tenants (id, name, webhook_secret) VALUES ('other', 'other', 'whsec_AAAA')")
	foreign := must(r.store.CreateKey(t.Context(), "other", "k", []string{models.ScopeAdmin}))(t)
	for _, method := range []string{"GET", "PATCH", "DELETE"} {
		r.call(method, "/v1/users/"+id, map[string]any{"password": "MyPass123!"}, bearer(foreign)...).problem(t, 404, "not_found")
	}
	as("PATCH", "/v1/users/"+id, map[string]any{"password": "another one"}).want(t, 200)
	newRigOn(t, r.dsn).call("GET", "/v1/me", nil, bearer(token)...).problem(t, 401, "token_invalid")
	as("DELETE", "/v1/users/"+id, nil).want(t, 200)
	as("GET", "/v1/users/"+id, nil).problem(t, 404, "not_found")
	as("POST", "/v1/users", map[string]any{"name": "ada", "password": "TestPass123!"}).want(t, 201) // the name is free again
}

func TestTenantsOverHTTP(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	made := r.call("POST", "/v1/tenants", map[string]any{"name": "acme-1", "max_sandboxes": 1}).want(t, 201)
	key := made.text("key")
	if made.get("tenant.max_sandboxes") != 1.0 || made.get("tenant.max_queued") != 10000.0 {
		t.Errorf("made: %s", made.raw)
	}
	r.call("POST", "/v1/sandboxes", map[string]any{}, bearer(key)...).want(t, 202)
	r.call("POST", "/v1/sandboxes", map[string]any{}, bearer(key)...).problem(t, 429, "limit_reached")
	if a := r.call("PATCH", "/v1/tenants/acme-1", map[string]any{"max_sandboxes": 2}).want(t, 200); a.get("live_sandboxes") != 1.0 || a.get("max_sandboxes") != 2.0 {
		t.Errorf("changed: %s", a.raw)
	}
	r.call("POST", "/v1/sandboxes", map[string]any{}, bearer(key)...).want(t, 202)
	r.call("PATCH", "/v1/tenants/acme-1", map[string]any{"max_sandboxes": 9, "max_cpus": 2.5, "max_memory_mib": 4096}).want(t, 200)
	if full := r.call("POST", "/v1/sandboxes", map[string]any{}, bearer(key)...).problem(t, 429, "limit_reached"); full.text("limit") != "max_cpus" {
		t.Errorf("a third core of 2.5: %s", full.raw)
	}
	if a := r.call("PATCH", "/v1/tenants/acme-1", map[string]any{"max_cpus": nil}).want(t, 200); a.get("max_cpus") != nil || a.get("max_memory_mib") != 4096.0 {
		t.Errorf("one removed: %s", a.raw)
	}
	r.call("POST", "/v1/sandboxes", map[string]any{}, bearer(key)...).want(t, 202)
	r.call("PATCH", "/v1/tenants/acme-1", map[string]any{"max_memory_mib": 1.5}).problem(t, 422, "invalid_request")
	if a := r.call("PATCH", "/v1/tenants/acme-1", map[string]any{"max_sandboxes": nil, "max_queued": 7}).want(t, 200); a.get("max_sandboxes") != 100.0 || a.get("max_queued") != 7.0 {
		t.Errorf("as a new tenant has it: %s", a.raw)
	}
	if a := r.call("POST", "/v1/tenants", map[string]any{"name": "small", "max_cpus": 2}).want(t, 201); a.get("tenant.max_cpus") != 2.0 || a.get("tenant.max_queued") != 10000.0 {
		t.Errorf("made with a limit: %s", a.raw)
	}
	if list := r.call("GET", "/v1/tenants", nil).want(t, 200); !strings.Contains(list.raw, "acme-1") || strings.Contains(list.raw, "whsec") {
		t.Errorf("the list: %s", list.raw)
	}
	r.call("GET", "/v1/tenants", nil, bearer(key)...).problem(t, 403, "scope_missing")
	r.call("PATCH", "/v1/tenants/acme-1", map[string]any{"max_sandboxes": 9}, bearer(key)...).problem(t, 403, "scope_missing")
	r.call("PATCH", "/v1/tenants/acme-1", map[string]any{}).problem(t, 422, "invalid_request")
	r.call("PATCH", "/v1/tenants/nobody", map[string]any{"max_queued": 5}).problem(t, 404, "not_found")
	r.call("GET", "/v1/tenants/nobody", nil).problem(t, 404, "not_found")
	r.call("POST", "/v1/tenants", map[string]any{"name": "acme-1"}).problem(t, 409, "name_taken")
	r.call("POST", "/v1/tenants", map[string]any{"name": "Acme"}).problem(t, 422, "invalid_request")
	for limit, bad := range map[string]any{"max_sandboxes": 1.5, "job_rate": 0, "job_burst": 0} { // the schema lets them pass
		r.call("POST", "/v1/tenants", map[string]any{"name": "acme-2", limit: bad}).problem(t, 422, "invalid_request")
	}
}

// TestProviderKeysOverHTTP: an operator says which secret of a tenant is its key of a provider, and the secret stays.
func TestProviderKeysOverHTTP(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	own := bearer(r.call("POST", "/v1/tenants", map[string]any{"name": "acme"}).want(t, 201).text("key"))
	_, err := r.store.PutSecret(t.Context(), "acme", "E2B_KEY", []byte("sealed"))
	must(0, err)(t)
	set := func(keys map[string]string) answer {
		return r.call("PATCH", "/v1/tenants/acme", map[string]any{"provider_keys": keys})
	}
	if a := set(map[string]string{"e2b": "E2B_KEY"}).want(t, 200); a.text("provider_keys.e2b") != "E2B_KEY" {
		t.Errorf("set: %s", a.raw)
	}
	for name, keys := range map[string]map[string]string{
		"no such provider": {"nowhere": "E2B_KEY"}, "one without keys": {"docker": "E2B_KEY"}, "no such secret": {"e2b": "e2b_0123456789abcdef"},
		"no name": {"daytona": "dtn_0123 456789"},
	} {
		p := set(keys).problem(t, 422, "invalid_request")
		if strings.Contains(p.raw, "456789") {
			t.Errorf("%s: what may be a key is in the answer: %s", name, p.raw)
		}
	}
	r.call("PATCH", "/v1/tenants/acme", map[string]any{"provider_keys": map[string]string{"e2b": ""}}, own...).problem(t, 403, "scope_missing")
	r.call("DELETE", "/v1/secrets/E2B_KEY", nil, own...).problem(t, 409, "secret_in_use")
	if a := r.call("GET", "/v1/tenants/acme", nil).want(t, 200); a.text("provider_keys.e2b") != "E2B_KEY" {
		t.Errorf("refused changes: %s", a.raw)
	}
	set(map[string]string{"e2b": ""}).want(t, 200)
	r.call("DELETE", "/v1/secrets/E2B_KEY", nil, own...).want(t, 204)
}

// TestNarrowScopes: a key with a narrow scope reaches what that names, and nothing else.
func TestNarrowScopes(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	made := r.call("POST", "/v1/sandboxes", map[string]any{}).want(t, 202)
	box, job := made.text("sandbox.id"), made.text("job.id")
	calls := map[string][][2]string{
		models.ScopeJobs:      {{"GET", "/v1/jobs"}, {"GET", "/v1/jobs/" + job}, {"GET", "/v1/jobs/" + job + "/history"}, {"POST", "/v1/jobs/" + job + "/cancel"}},
		models.ScopeFiles:     {{"GET", "/v1/sandboxes/" + box + "/files/raw?path=a"}, {"PUT", "/v1/sandboxes/" + box + "/files/raw?path=a"}},
		models.ScopeTemplates: {{"GET", "/v1/templates"}, {"PUT", "/v1/templates/x"}},
		models.ScopeWebhooks:  {{"GET", "/v1/webhooks/secret"}},
		models.ScopeAdmin:     {{"GET", "/v1/keys"}, {"GET", "/v1/users"}},
		models.ScopeOperator:  {{"GET", "/v1/tenants"}},
		models.ScopeSandboxes: {
			{"GET", "/v1/sandboxes"},
			{"POST", "/v1/sandboxes"},
			{"POST", "/v1/jobs"},
			{"POST", "/v1/run"},
			{"GET", "/v1/sandboxes/" + box},
			{"POST", "/v1/sandboxes/" + box + "/exec"},
			{"DELETE", "/v1/sandboxes/" + box},
			{"GET", "/v1/schedules"},
			{"GET", "/v1/usage"},
		},
	}
	part := map[string]bool{models.ScopeJobs: true, models.ScopeFiles: true, models.ScopeTemplates: true, models.ScopeWebhooks: true}
	for mine := range calls {
		key := must(r.store.CreateKey(t.Context(), "default", "only "+mine, []string{mine}))(t)
		r.call("GET", "/v1/me", nil, bearer(key)...).want(t, 200)
		for scope, all := range calls {
			opens := mine == scope || mine == models.ScopeSandboxes && part[scope] || mine == models.ScopeOperator && scope == models.ScopeAdmin
			for _, c := range all {
				if opens && c[0] == "DELETE" {
					continue // the others need the sandbox
				}
				a := r.call(c[0], c[1], nil, bearer(key)...)
				if refused := a.status == 403 && a.text("code") == "scope_missing"; refused == opens || a.status == 401 {
					t.Errorf("%s may do %s %s: %v; the answer: %d %s", mine, c[0], c[1], opens, a.status, a.raw)
				}
			}
		}
	}
}

func TestRotateKey(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	first := r.call("POST", "/v1/keys", map[string]any{"name": "agents", "expires_in_seconds": 7200}).want(t, 201)
	rotate := func(id string, body any, as ...string) answer {
		return r.call("POST", "/v1/keys/"+id+"/rotate", body, as...)
	}
	id := first.text("key.id")
	second := rotate(id, map[string]any{"overlap_seconds": 60}).want(t, 201)
	if second.text("key.name") != "agents" || second.text("text") == first.text("text") {
		t.Errorf("rotated: %s", second.raw)
	}
	for _, a := range []answer{first, second} {
		r.call("GET", "/v1/sandboxes", nil, bearer(a.text("text"))...).want(t, 200)
	}
	if a := rotate(id, nil).problem(t, 409, "key_replaced"); !strings.Contains(a.raw, second.text("key.id")) {
		t.Errorf("rotated again: %s", a.raw)
	}
	left := r.number(t, "SELECT extract(epoch FROM expires_at - now()) FROM api_keys WHERE id = '"+id+"'")
	life := r.number(t, "SELECT extract(epoch FROM expires_at - created_at) FROM api_keys WHERE id = '"+second.text("key.id")+"'")
	if left > 60 || life < 7199 || life > 7201 {
		t.Errorf("the old key has %v s, the new one a life of %v s", left, life)
	}
	r.sql("UPDATE api_keys SET expires_at = now() WHERE id = '" + id + "'")
	newRigOn(t, r.dsn).call("GET", "/v1/sandboxes", nil, bearer(first.text("text"))...).problem(t, 401, "unauthorized")
	third := rotate(second.text("key.id"), nil).want(t, 201)
	r.call("DELETE", "/v1/keys/"+third.text("key.id"), nil).want(t, 200)
	rotate(third.text("key.id"), nil).problem(t, 409, "key_ended")
	rotate("key_"+strings.Repeat("0", 26), nil).problem(t, 404, "not_found")

	boss := must(r.store.CreateKey(t.Context(), "default", "boss", []string{models.ScopeAdmin}))(t)
	chief := must(r.store.CreateKey(t.Context(), "default", "chief", []string{models.ScopeOperator}))(t)
	chiefID := must(r.store.Authenticate(t.Context(), chief))(t).ID
	rotate(chiefID, nil, bearer(boss)...).problem(t, 403, "scope_missing") // it would get an operator's key
}

// TestKeysOfAUserOpenNoMoreThanTheRole, also after the role became a lesser one.
func TestKeysOfAUserOpenNoMoreThanTheRole(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	user := r.addUser(t, "ada", models.RoleAdmin)
	token := r.login(t, "ada", "TestPass123!").want(t, 200).text("access_token")
	key := func(name string, scopes ...string) answer {
		return r.call("POST", "/v1/keys", map[string]any{"name": name, "scopes": scopes}, bearer(token)...)
	}
	plain := key("plain", "sandboxes", "files").want(t, 201).text("text")
	boss := key("boss", "sandboxes", "admin").want(t, 201)
	if boss.text("key.user") != user.ID {
		t.Errorf("the key does not say whose it is: %s", boss.raw)
	}
	r.call("PATCH", "/v1/users/"+user.ID, map[string]any{"role": "member"}).want(t, 200)
	fresh := newRigOn(t, r.dsn) // another process, which has seen neither key yet
	fresh.call("GET", "/v1/sandboxes", nil, bearer(plain)...).want(t, 200)
	fresh.call("GET", "/v1/sandboxes", nil, bearer(boss.text("text"))...).problem(t, 401, "unauthorized")
	key("again", "admin").problem(t, 403, "scope_missing") // by this process, which takes the user for an admin a little longer
	if _, err := r.store.MakeKey(t.Context(), "default", models.NewKey{Name: "x", Scopes: []string{models.ScopeOperator}, User: user.ID}); !errors.Is(err, models.ErrBeyondRole) {
		t.Errorf("a member's key for an operator: %v", err)
	}
	if _, err := r.store.MakeKey(t.Context(), "default", models.NewKey{Name: "x", Scopes: []string{models.ScopeSandboxes}, User: "usr_nobody"}); !errors.Is(err, models.ErrNotFound) {
		t.Errorf("a key of nobody: %v", err)
	}
}

// TestTokensEndStreams: a terminal ticket of a login ends with it.
func TestTokensEndStreams(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	user := r.addUser(t, "ada", models.RoleMember)
	login, _, err := r.store.LogIn(t.Context(), user.ID, user.PasswordHash)
	check(t, err)
	box := r.call("POST", "/v1/sandboxes", map[string]any{}).want(t, 202).text("sandbox.id")
	ticket := func() string {
		plain, _, err := r.store.IssueTicket(t.Context(), models.TerminalTicket{TenantID: "default", KeyID: login.ID, SandboxID: box, Terminal: "t"}, time.Minute)
		check(t, err)
		return plain
	}
	first, second := ticket(), ticket()
	must(r.store.UseTicket(t.Context(), first, models.TicketUse{Sandbox: box, Own: true}))(t)
	if ended := must(r.store.RevokedKeys(t.Context(), []string{login.ID}))(t); len(ended) > 0 {
		t.Errorf("a live login counts as revoked: %v", ended)
	}
	check(t, r.store.EndLogin(t.Context(), login.ID))
	if _, err := r.store.UseTicket(t.Context(), second, models.TicketUse{Sandbox: box, Own: true}); err == nil {
		t.Error("a ticket outlives its login")
	}
	if ended := must(r.store.RevokedKeys(t.Context(), []string{login.ID}))(t); len(ended) != 1 {
		t.Errorf("an ended login counts as valid")
	}
}

func TestSecretsOverHTTP(t *testing.T) {
	t.Parallel()
	v := must(vault.New(vault.NewKey()))(t)
	r := newRig(t, func(c *web.Config) { c.Secrets = secrets.New(c.Store, v) })
	put := func(name string, body any, as ...string) answer {
		return r.call("PUT", "/v1/secrets/"+name, body, as...)
	}
	first := put("token", map[string]any{"value": "s3cret-1"}).want(t, 200)
	second := put("token", map[string]any{"value": "s3cret-2"}).want(t, 200)
	list := r.call("GET", "/v1/secrets", nil).want(t, 200)
	for _, a := range []answer{first, second, list} {
		if strings.Contains(a.raw, "s3cret") || !strings.Contains(a.raw, "token") {
			t.Errorf("an answer: %s", a.raw)
		}
	}
	r.call("GET", "/v1/secrets/token", nil).problem(t, 405, "method_not_allowed")
	put("token", map[string]any{"value": ""}).problem(t, 422, "invalid_request")
	put("to%20ken", map[string]any{"value": "x"}).problem(t, 422, "invalid_request")
	put("token", map[string]any{"value": "a\u0000b"}).problem(t, 422, "invalid_request")
	member := must(r.store.CreateKey(t.Context(), "default", "member", []string{models.ScopeSandboxes}))(t)
	put("token", map[string]any{"value": "x"}, bearer(member)...).problem(t, 403, "scope_missing")
	r.sql("INSERT INTO tenants (id, name, webhook_secret) VALUES ('other', 'other', 'whsec_AAAA')")
	foreign := must(r.store.CreateKey(t.Context(), "other", "k", []string{models.ScopeSandboxes, models.ScopeAdmin}))(t)
	r.call("DELETE", "/v1/secrets/token", nil, bearer(foreign)...).problem(t, 404, "not_found")
	theirs := r.call("POST", "/v1/sandboxes", map[string]any{}, bearer(foreign)...).want(t, 202).text("sandbox.id")
	uses := map[string]any{"command": "env", "secrets": map[string]any{"A": "token"}}
	r.call("POST", "/v1/sandboxes/"+theirs+"/exec", uses, bearer(foreign)...).problem(t, 422, "invalid_request")
	mine := r.call("POST", "/v1/sandboxes", map[string]any{}, bearer(member)...).want(t, 202).text("sandbox.id")
	r.call("POST", "/v1/sandboxes/"+mine+"/exec", uses, bearer(member)...).want(t, 202)
	r.call("DELETE", "/v1/secrets/token", nil).want(t, 204)
	r.call("POST", "/v1/sandboxes/"+mine+"/exec", uses, bearer(member)...).problem(t, 422, "invalid_request")
	newRig(t).call("PUT", "/v1/secrets/token", map[string]any{"value": "x"}).problem(t, 501, "secrets_unavailable")
}
