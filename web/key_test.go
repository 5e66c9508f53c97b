package web_test

import (
	"strings"
	"testing"

	"sandyard/models"
)

func TestKeysOverHTTP(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	as := func(text string) []string { return []string{"Authorization", "Bearer " + text} }
	made := r.call("POST", "/v1/keys", map[string]any{"name": "agents", "scopes": []string{"sandboxes", "admin"}, "expires_in_seconds": 3600}).want(t, 201)
	admin, id := made.text("text"), made.text("key.id")
	if !strings.HasPrefix(admin, made.text("key.begins")) || made.text("key.expires_at") == "" || made.get("key.last_used_at") != nil {
		t.Errorf("the new key: %s", made.raw)
	}
	r.call("GET", "/v1/sandboxes", nil, as(admin)...).want(t, 200)
	if list := r.call("GET", "/v1/keys", nil, as(admin)...).want(t, 200); !strings.Contains(list.raw, id) || strings.Contains(list.raw, admin) {
		t.Errorf("the list: %s", list.raw)
	}
	plain := r.call("POST", "/v1/keys", map[string]any{"name": "plain"}, as(admin)...).want(t, 201)
	if scopes, _ := plain.get("key.scopes").([]any); len(scopes) != 1 || scopes[0] != "sandboxes" || plain.get("key.expires_at") != nil {
		t.Errorf("a key that asks for nothing: %s", plain.raw)
	}
	for _, call := range [][2]string{{"GET", "/v1/keys"}, {"DELETE", "/v1/keys/" + id}} {
		r.call(call[0], call[1], nil, as(plain.text("text"))...).problem(t, 403, "scope_missing")
	}
	create := func(key string, body map[string]any) answer { return r.call("POST", "/v1/keys", body, as(key)...) }
	create(plain.text("text"), map[string]any{"name": "x"}).problem(t, 403, "scope_missing")
	create(admin, map[string]any{"name": "x", "scopes": []string{"operator"}}).problem(t, 403, "scope_missing") // more than it has
	create(admin, map[string]any{"name": "plain"}).problem(t, 409, "name_taken")
	create(admin, map[string]any{"name": "a\tb"}).problem(t, 422, "invalid_request")
	create(admin, map[string]any{"name": ""}).problem(t, 422, "invalid_request")
	create(admin, map[string]any{"name": "x", "scopes": []string{"everything"}}).problem(t, 422, "invalid_request")
	create(admin, map[string]any{"name": "x", "scopes": []string{"admin", "admin"}}).problem(t, 422, "invalid_request")
	create(admin, map[string]any{"name": "x", "expires_in_seconds": 0.5}).problem(t, 422, "invalid_request")
	r.sql("INSERT INTO tenants (id, name, webhook_secret) VALUES ('other', 'other', 'whsec_AAAA')")
	foreign := must(r.store.CreateKey(t.Context(), "other", "k", []string{models.ScopeSandboxes, models.ScopeAdmin}))(t)
	r.call("DELETE", "/v1/keys/"+id, nil, as(foreign)...).problem(t, 404, "not_found")
	if list := r.call("GET", "/v1/keys", nil, as(foreign)...).want(t, 200); strings.Contains(list.raw, id) {
		t.Errorf("another tenant's list: %s", list.raw)
	}
	gone := r.call("DELETE", "/v1/keys/"+plain.text("key.id"), nil, as(admin)...).want(t, 200)
	if gone.text("revoked_at") == "" || r.call("DELETE", "/v1/keys/"+plain.text("key.id"), nil, as(admin)...).want(t, 200).text("revoked_at") != gone.text("revoked_at") {
		t.Errorf("revoked: %s", gone.raw)
	}
	create(admin, map[string]any{"name": "plain"}).want(t, 201) // the name is free again
}
