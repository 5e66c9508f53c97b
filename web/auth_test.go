package web_test

import (
	"context"
	"encoding/base64"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"sandyard/dev/testenv"
	"sandyard/models"
	"sandyard/web"
)

func TestKeys(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	work := must(r.store.CreateKey(t.Context(), "default", "work", []string{models.ScopeSandboxes}))(t)
	watch := must(r.store.CreateKey(t.Context(), "default", "watch", []string{models.ScopeOperator}))(t)
	basic := func(key string) string { return "Basic " + base64.StdEncoding.EncodeToString([]byte("me:"+key)) }
	for name, c := range map[string]struct {
		path, header, value string
		status              int
		code                string
	}{
		"none":                {"/v1/sandboxes", "X-None", "", 401, "unauthorized"},
		"bearer":              {"/v1/sandboxes", "Authorization", "Bearer " + work, 200, ""},
		"lower case":          {"/v1/sandboxes", "Authorization", "bearer " + work, 200, ""},
		"header":              {"/v1/sandboxes", "X-API-Key", work, 200, ""},
		"unknown":             {"/v1/sandboxes", "X-API-Key", "sy_0123456789012345678901234567890123456789", 401, "unauthorized"},
		"not a key":           {"/v1/sandboxes", "Authorization", "Bearer nonsense", 401, "unauthorized"},
		"basic is no key":     {"/v1/sandboxes", "Authorization", basic(work), 401, "unauthorized"},
		"lacks scope":         {"/v1/sandboxes", "X-API-Key", watch, 403, "scope_missing"},
		"unknown path":        {"/v1/nothing", "X-None", "", 401, "unauthorized"},
		"monitor, none":       {"/monitor", "X-None", "", 401, "unauthorized"},
		"monitor, basic":      {"/monitor/", "Authorization", basic(watch), 200, ""},
		"monitor, data":       {"/monitor/api/queues", "Authorization", basic(watch), 200, ""},
		"monitor, bearer":     {"/monitor/", "Authorization", "Bearer " + watch, 200, ""},
		"monitor, scope":      {"/monitor/api/queues", "Authorization", basic(work), 403, "scope_missing"},
		"monitor, wrong":      {"/monitor/", "Authorization", basic("sy_no"), 401, "unauthorized"},
		"metrics, none":       {"/metrics", "X-None", "", 401, "unauthorized"},
		"metrics, scope":      {"/metrics", "X-API-Key", work, 403, "scope_missing"},
		"metrics":             {"/metrics", "X-API-Key", watch, 200, ""},
		"health needs no key": {"/healthz", "X-None", "", 200, ""},
		"ready needs no key":  {"/readyz", "X-None", "", 200, ""},
		"docs need no key":    {"/docs", "X-None", "", 200, ""},
		"openapi":             {"/openapi.json", "X-None", "", 200, ""},
	} {
		a := r.call("GET", c.path, nil, "Authorization", "", c.header, c.value)
		if c.code == "" {
			if a.status != c.status {
				t.Errorf("%s: status %d: %s", name, a.status, a.raw)
			}
			continue
		}
		a.problem(t, c.status, c.code)
		scheme := "Bearer"
		if strings.HasPrefix(c.path, "/m") {
			scheme = "Basic"
		}
		if got := a.header.Get("WWW-Authenticate"); a.status == 401 && !strings.HasPrefix(got, scheme) {
			t.Errorf("%s: WWW-Authenticate is %q", name, got)
		}
	}
	for _, key := range []string{work, watch, r.key} {
		if strings.Contains(r.log.String(), key) {
			t.Error("a key stands in the log")
		}
	}
}

// TestUseOfAKeyIsWrittenDown also sends it in E2B's spelling.
func TestUseOfAKeyIsWrittenDown(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.call("GET", "/v1/sandboxes", nil, "Authorization", "Bearer "+models.E2BSpelling(r.key)).want(t, 200)
	testenv.Eventually(t, "the use of the key", func() bool {
		keys := must(r.store.Keys(t.Context(), "default", 1))(t)
		return keys[0].LastUsedAt != nil
	})
}

func TestMonitorCannotChangeAnything(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.sandbox(map[string]any{})
	if a := r.call("GET", "/monitor/api/queues", nil); !strings.Contains(a.raw, `"queue":"fake"`) {
		t.Errorf("the monitor does not see the queue: %s", a.raw)
	}
	if a := r.call("DELETE", "/monitor/api/queues/fake?force=true", nil); a.status != 405 {
		t.Errorf("deleting a queue answers %d", a.status)
	}
}

func TestMetricsWithoutAKeyIfConfigured(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(c *web.Config) { c.PublicMetrics = true })
	r.call("GET", "/metrics", nil, "Authorization", "").want(t, 200)
}

func TestTenantsDoNotSeeEachOther(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	conn := must(pgx.Connect(context.Background(), r.dsn))(t)
	must(conn.Exec(t.Context(), "INSERT INTO tenants (id, name, webhook_secret) VALUES ('other', 'other', 'whsec_b3RoZXI=')"))(t)
	check(t, conn.Close(t.Context()))
	other := must(r.store.CreateKey(t.Context(), "other", "key", []string{models.ScopeSandboxes}))(t)
	box := r.call("POST", "/v1/sandboxes", map[string]any{"key": "mine"}).want(t, 202)
	id, job := box.text("sandbox.id"), box.text("job.id")
	as := func(method, path string, body any) answer {
		return r.call(method, path, body, "Authorization", "Bearer "+other)
	}
	for _, c := range [][2]string{
		{"GET", "/v1/sandboxes/" + id},
		{"GET", "/v1/sandboxes/" + id + "/files/raw?path=f"},
		{"PUT", "/v1/sandboxes/" + id + "/files/tree?path=f"},
		{"DELETE", "/v1/sandboxes/" + id},
		{"DELETE", "/v1/sandboxes/" + id + "?force=true"},
		{"POST", "/v1/sandboxes/" + id + "/pause"},
		{"GET", "/v1/jobs/" + job},
		{"GET", "/v1/jobs/" + job + "?wait=5s"},
		{"POST", "/v1/jobs/" + job + "/cancel"},
		{"POST", "/v1/jobs/" + job + "/retry"},
		{"GET", "/v1/jobs/" + job + "/deliveries"},
	} {
		foreign := as(c[0], c[1], nil).problem(t, 404, "not_found")
		unknown := as(c[0], strings.NewReplacer(id, "sb00000000000000000000000000", job, "job_00000000000000000000000000").Replace(c[1]), nil)
		if foreign.text("detail") != unknown.text("detail") || unknown.status != 404 {
			t.Errorf("%v tells foreign from unknown: %s %s", c, foreign.raw, unknown.raw)
		}
	}
	as("POST", "/v1/sandboxes/"+id+"/exec", `{"command":"fake:exit 0"}`).problem(t, 404, "not_found")
	for _, path := range []string{"/v1/sandboxes?key=mine", "/v1/jobs?sandbox_id=" + id} {
		if a := as("GET", path, nil).want(t, 200); strings.Contains(a.raw, id) {
			t.Errorf("%s shows another tenant's rows: %s", path, a.raw)
		}
	}
	if a := as("GET", "/v1/webhooks/secret", nil).want(t, 200); a.text("secret") != "whsec_b3RoZXI=" {
		t.Errorf("unexpected secret: %s", a.raw)
	}
	if a := r.call("GET", "/v1/sandboxes/"+id, nil).want(t, 200); a.text("state") != "creating" || a.text("desired") != "running" {
		t.Errorf("another tenant has changed the sandbox: %s", a.raw)
	}
}

func TestRevokedKeyEnds(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	key := must(r.store.CreateKey(t.Context(), "default", "short", []string{models.ScopeSandboxes}))(t)
	conn := must(pgx.Connect(context.Background(), r.dsn))(t)
	must(conn.Exec(t.Context(), "UPDATE api_keys SET revoked_at = now() WHERE name = 'short'"))(t)
	check(t, conn.Close(t.Context()))
	r.call("GET", "/v1/sandboxes", nil, "Authorization", "Bearer "+key).problem(t, 401, "unauthorized")
}
