package web_test

import (
	"encoding/json"
	"net/url"
	"strings"
	"testing"
	"time"

	"sandyard/models"
	"sandyard/tokens"
	"sandyard/web"
)

// newE2B is a rig with E2B's routes and a worker.
func newE2B(t *testing.T) (*rig, *tokens.Signer) {
	t.Helper()
	signer := tokens.New("secret")
	r := newRig(t, func(c *web.Config) { c.Address = tokens.Address{Scheme: "http", Domain: "sandboxes.example"} })
	r.work()
	return r, signer
}

// refused checks that a is an error in E2B's shape.
func (a answer) refused(t *testing.T, status int, part string) {
	t.Helper()
	if a.status != status || a.get("code") != float64(status) || !strings.Contains(a.text("message"), part) || a.text("error_code") == "" || len(a.body) != 3 {
		t.Errorf("answered %d %s, want %d with %q", a.status, a.raw, status, part)
	}
}

func TestE2BLife(t *testing.T) {
	t.Parallel()
	r, signer := newE2B(t)
	made := r.call("POST", "/v2/sandboxes", map[string]any{
		"templateID": "base", "timeout": 300, "metadata": map[string]string{"a key": "ä&=", "": "empty"},
		"envVars": map[string]string{"A": "b"}, "secure": true, "allow_internet_access": true, "autoPause": true, "autoResume": map[string]any{"enabled": true},
	}).want(t, 201)
	id := made.text("sandboxID")
	for field, want := range map[string]any{
		"templateID": "python", "domain": "sandboxes.example", "envdAccessToken": signer.Access(id), "trafficAccessToken": signer.Traffic(id),
	} {
		if made.get(field) != want {
			t.Errorf("%s is %v, want %v", field, made.get(field), want)
		}
	}
	native := r.call("GET", "/v1/sandboxes/"+id, nil).want(t, 200)
	if native.text("state") != "running" || native.get("idle_timeout_seconds") != 0.0 || native.get("on_timeout") != "pause" {
		t.Errorf("as an ordinary sandbox: %s", native.raw)
	}
	detail := r.call("GET", "/sandboxes/"+id, nil).want(t, 200)
	if detail.get("metadata.a key") != "ä&=" || detail.get("state") != "running" || detail.get("lifecycle.onTimeout") != "pause" ||
		detail.get("lifecycle.autoResume") != true || native.get("auto_resume") != true {
		t.Errorf("detail: %s", detail.raw)
	}
	r.call("POST", "/sandboxes/"+id+"/resume", map[string]any{"timeout": 60}).refused(t, 409, "already running")
	r.call("POST", "/sandboxes/"+id+"/pause", nil).want(t, 204)
	r.call("POST", "/sandboxes/"+id+"/pause", map[string]any{"memory": true}).refused(t, 409, "already paused")
	r.call("POST", "/sandboxes/"+id+"/timeout", map[string]any{"timeout": 60}).refused(t, 404, "")
	r.call("POST", "/v2/sandboxes/"+id+"/connect", map[string]any{"timeout": 900}).want(t, 201)
	r.endsIn(id, 900)
	if again := r.call("POST", "/sandboxes/"+id+"/connect", map[string]any{"timeout": 100}).want(t, 200); again.text("envdAccessToken") == "" {
		t.Errorf("connect: %s", again.raw)
	}
	r.endsIn(id, 900)
	r.call("POST", "/sandboxes/"+id+"/refreshes", map[string]any{"duration": 1200}).want(t, 204)
	r.endsIn(id, 1200)
	r.call("POST", "/sandboxes/"+id+"/timeout", map[string]any{"timeout": 60}).want(t, 204)
	r.endsIn(id, 60)
	r.call("DELETE", "/sandboxes/"+id, nil).want(t, 204)
	for _, call := range [][2]string{
		{"DELETE", ""},
		{"GET", ""},
		{"POST", "/pause"},
		{"POST", "/connect"},
		{"POST", "/timeout"},
		{"GET", "/logs"},
		{"GET", "/metrics"},
		{"POST", "/snapshots"},
		{"POST", "/fork"},
	} {
		r.call(call[0], "/sandboxes/"+id+call[1], map[string]any{"timeout": 60}).refused(t, 404, "")
	}
}

func (r *rig) endsIn(id string, seconds float64) {
	r.t.Helper()
	end := must(time.Parse(time.RFC3339, r.call("GET", "/sandboxes/"+id, nil).want(r.t, 200).text("endAt")))(r.t)
	if left := time.Until(end).Seconds(); left > seconds || left < seconds-30 {
		r.t.Errorf("it ends in %.0f s, want %.0f", left, seconds)
	}
}

func TestE2BRefusals(t *testing.T) {
	t.Parallel()
	r, _ := newE2B(t)
	create := func(body any, headers ...string) answer { return r.call("POST", "/sandboxes", body, headers...) }
	base := func(field string, v any) map[string]any { return map[string]any{"templateID": "base", field: v} }
	create(base("timeout", 10), "Authorization", "", "X-API-Key", "").refused(t, 401, "no API key")
	create(base("timeout", 10), "Authorization", "", "X-API-Key", "e2b_"+strings.Repeat("0", 40)).refused(t, 401, "unknown")
	create(map[string]any{"templateID": "nothing"}).refused(t, 404, "template 'nothing' not found")
	create("{").refused(t, 400, "")
	create(base("timeout", "x")).refused(t, 400, "")
	create(base("timeout", 86401)).refused(t, 400, "86400")
	create(base("metadata", map[string]string{"a": strings.Repeat("x", 20000)})).refused(t, 400, "metadata")
	create(`{"templateID": "base", "metadata": {"a": "\u0000"}}`).refused(t, 400, "")
	create(base("timeout", -1)).refused(t, 400, "timeout must not be negative")
	for field, v := range map[string]any{
		"volumeMounts": []any{map[string]any{"name": "v", "path": "/v"}}, "mcp": map[string]any{"browserbase": map[string]any{}},
		"iam": map[string]any{"tokens": map[string]any{"aws": map[string]any{"audience": "a", "tokenType": "JWT-SVID"}}},
	} {
		create(base(field, v)).refused(t, 400, field+" is not supported")
	}
	for field, v := range map[string]any{
		"maskRequestHost": "localhost:${PORT}", "httpsPorts": []int{8443}, "rules": map[string]any{"a.example": []any{}},
		"egressProxy": map[string]any{"address": "a.example:1080"}, "dnsServers": []string{"192.0.2.1"},
	} {
		create(base("network", map[string]any{field: v})).refused(t, 400, "network."+field+" is not supported")
	}
	r.call("GET", "/sandboxes/sbnone", nil).refused(t, 404, "")
	r.call("GET", "/v2/sandboxes?state=unknown", nil).refused(t, 400, "state")
	r.call("GET", "/v2/sandboxes?limit=0", nil).refused(t, 400, "limit")
	for _, query := range []string{"metadata=%25zz", "nextToken=x", "nextToken=1_", "order=up", "startedAfter=yesterday", "limit=101"} {
		name, _, _ := strings.Cut(query, "=")
		r.call("GET", "/v2/sandboxes?"+query, nil).refused(t, 400, name)
	}
	r.call("PUT", "/sandboxes/sbnone/network", map[string]any{}).refused(t, 404, "")
	for _, path := range []string{"/snapshots", "/templates/base", "/v2/templates", "/v3/templates", "/volumes", "/secrets", "/sandboxes/sbnone/unheard-of"} {
		r.call("GET", path, nil).refused(t, 501, "there is no route at this path")
		r.call("GET", path, nil, "Authorization", "", "X-API-Key", "").refused(t, 401, "no API key")
	}
	if rows := r.rows(); rows != "0 sandboxes, 0 jobs" {
		t.Errorf("refused requests left %s", rows)
	}
}

func TestE2BKeys(t *testing.T) {
	t.Parallel()
	r, _ := newE2B(t)
	key := must(r.store.CreateE2BKey(t.Context(), "default", "sdk", []string{models.ScopeSandboxes}))(t)
	if !strings.HasPrefix(key, "e2b_") || len(key) != len("e2b_")+40 {
		t.Errorf("key %q", key)
	}
	for _, path := range []string{"/v2/sandboxes", "/v1/sandboxes"} {
		r.call("GET", path, nil, "Authorization", "", "X-API-Key", key).want(t, 200)
	}
	operator := must(r.store.CreateE2BKey(t.Context(), "default", "operator", []string{models.ScopeOperator}))(t)
	r.call("GET", "/v2/sandboxes", nil, "Authorization", "", "X-API-Key", operator).refused(t, 403, "scope")
}

func TestE2BList(t *testing.T) {
	t.Parallel()
	r, _ := newE2B(t)
	var ids []string
	for range 3 {
		made := r.call("POST", "/sandboxes", map[string]any{"templateID": "python", "timeout": 300, "metadata": map[string]string{"m": "a&b"}}).want(t, 201)
		ids = append(ids, made.text("sandboxID"))
	}
	r.call("POST", "/sandboxes", map[string]any{"templateID": "python", "timeout": 300}).want(t, 201)
	r.call("POST", "/sandboxes/"+ids[0]+"/pause", nil).want(t, 204)

	query := "metadata=" + url.QueryEscape(url.Values{"m": {"a&b"}}.Encode())
	first, got := r.listed("/v2/sandboxes?limit=2&" + query)
	if want := ids[2] + " running," + ids[1] + " running"; got != want {
		t.Errorf("first page %s, want %s", got, want)
	}
	if n := first.header.Get("X-Total-Running"); n != "2" {
		t.Errorf("%s are running, want 2", n)
	}
	last, got := r.listed("/v2/sandboxes?limit=2&nextToken=" + first.header.Get("X-Next-Token") + "&" + query)
	if want := ids[0] + " paused"; got != want || last.header.Get("X-Next-Token") != "" {
		t.Errorf("last page %s with next %q, want %s", got, last.header.Get("X-Next-Token"), want)
	}
	if _, got := r.listed("/v2/sandboxes?state=paused&" + query); got != ids[0]+" paused" {
		t.Errorf("paused: %s", got)
	}
	if _, got := r.listed("/v2/sandboxes?state=running,paused"); strings.Count(got, " ") != 4 {
		t.Errorf("all: %s", got)
	}
	if _, got := r.listed("/sandboxes?" + query); got != ids[2]+" running,"+ids[1]+" running" {
		t.Errorf("list without pages: %s", got)
	}
}

func (r *rig) listed(path string) (answer, string) {
	r.t.Helper()
	a := r.call("GET", path, nil).want(r.t, 200)
	var list []struct{ SandboxID, State string }
	check(r.t, json.Unmarshal([]byte(a.raw), &list))
	var parts []string
	for _, b := range list {
		parts = append(parts, b.SandboxID+" "+b.State)
	}
	return a, strings.Join(parts, ",")
}

// TestE2BQuota: a sandbox made by one front counts for the other.
func TestE2BQuota(t *testing.T) {
	t.Parallel()
	r, _ := newE2B(t)
	for range 100 {
		r.sandbox(map[string]any{})
	}
	r.call("POST", "/sandboxes", map[string]any{"templateID": "base"}).refused(t, 429, "maximum number of concurrent sandboxes (100)")
}
