package web_test

import (
	"encoding/json"
	"regexp"
	"strings"
	"testing"

	dto "github.com/prometheus/client_model/go"

	"sandyard/web"
)

func TestOpenAPIDocument(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	a := r.call("GET", "/openapi.json", nil, "Authorization", "").want(t, 200)
	var doc struct {
		OpenAPI    string
		Paths      map[string]map[string]map[string]any
		Components struct{ Schemas map[string]any }
	}
	check(t, json.Unmarshal([]byte(a.raw), &doc))
	if !strings.HasPrefix(doc.OpenAPI, "3.1.") {
		t.Errorf("version %s", doc.OpenAPI)
	}
	seen := map[any]bool{}
	for path, operations := range doc.Paths {
		for method, op := range operations {
			if op["summary"] == nil || op["operationId"] == nil || seen[op["operationId"]] || op["tags"] == nil {
				t.Errorf("%s %s is not described: %v", method, path, op)
			}
			seen[op["operationId"]] = true
			if (strings.HasPrefix(path, "/v1/") && !strings.HasPrefix(path, "/v1/login")) == (op["security"] == nil) {
				t.Errorf("%s %s: security is %v", method, path, op["security"])
			}
			if responses := op["responses"].(map[string]any); responses["default"] == nil {
				t.Errorf("%s %s says nothing about errors", method, path)
			}
		}
	}
	for _, ref := range regexp.MustCompile(`"#/components/schemas/([^"]+)"`).FindAllStringSubmatch(a.raw, -1) {
		if doc.Components.Schemas[ref[1]] == nil {
			t.Errorf("a reference leads nowhere: %s", ref[1])
		}
	}
	for _, want := range []string{
		"/v1/sandboxes", "/v1/sandboxes/{id}/exec", "/v1/sandboxes/{id}/files/read", "/v1/jobs/{id}/deliveries",
		"/v1/run", "/v1/providers", "/v1/templates", "/v1/webhooks/secret", "/healthz", "/readyz",
	} {
		if doc.Paths[want] == nil {
			t.Errorf("%s is not described", want)
		}
	}
	if yaml := r.call("GET", "/openapi.yaml", nil).want(t, 200); !strings.Contains(yaml.raw, "openapi: 3.1.") {
		t.Errorf("unexpected YAML: %.200s", yaml.raw)
	}
}

// TestDescribedOperationsExist calls every operation of the document without a key: a route that is missing would
// answer 404, one that needs no key 200.
func TestDescribedOperationsExist(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	var doc struct {
		Paths map[string]map[string]any
	}
	check(t, json.Unmarshal([]byte(r.call("GET", "/openapi.json", nil).raw), &doc))
	for path, operations := range doc.Paths {
		for method := range operations {
			url := strings.ReplaceAll(path, "{id}", "x")
			a := r.call(strings.ToUpper(method), url, nil)
			if a.text("code") == "route_not_found" || a.status == 405 || a.status >= 500 {
				t.Errorf("%s %s: %s", method, path, a.raw)
			}
			if path != "/v1/login" && path != "/v1/login/refresh" && strings.HasPrefix(path, "/v1/") {
				headers := []string{"Authorization", ""}
				if strings.HasSuffix(path, "/terminal") { // where what is no handshake is refused first
					headers = append(headers, "Connection", "Upgrade", "Upgrade", "websocket", "Sec-WebSocket-Version", "13", "Sec-WebSocket-Key", "AAAAAAAAAAAAAAAAAAAAAA==")
				}
				r.call(strings.ToUpper(method), url, nil, headers...).problem(t, 401, "unauthorized")
			}
		}
	}
}

func TestReferencePageNeedsNoOtherHost(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	page := r.call("GET", "/docs", nil, "Authorization", "").want(t, 200)
	policy := page.header.Get("Content-Security-Policy")
	if !strings.HasPrefix(policy, "default-src 'none'") || strings.Contains(policy, "http") || strings.Contains(policy, "*") {
		t.Errorf("the page may load from elsewhere: %s", policy)
	}
	links := regexp.MustCompile(`(?:src|href|spec-url)="([^"]+)"`).FindAllStringSubmatch(page.raw, -1)
	if len(links) < 2 {
		t.Errorf("the page loads nothing: %s", page.raw)
	}
	for _, link := range links {
		if !strings.HasPrefix(link[1], "/") || strings.HasPrefix(link[1], "//") {
			t.Errorf("the page loads %s", link[1])
			continue
		}
		r.call("GET", link[1], nil, "Authorization", "").want(t, 200)
	}
}

// TestTheSkillNamesCoreTools: an agent that reads the skill has the tools that its table names.
func TestTheSkillNamesCoreTools(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	page := r.call("GET", "/skill.md", nil, "Authorization", "").want(t, 200)
	if media := page.header.Get("Content-Type"); media != "text/markdown; charset=utf-8" {
		t.Errorf("the skill is %s", media)
	}
	offered := map[string]bool{}
	for _, tool := range must(r.talk("").session.ListTools(t.Context(), nil))(t).Tools {
		offered[tool.Name] = true
	}
	named := 0
	for _, row := range regexp.MustCompile(`(?m)^\|[^|]*\|(.*)\|$`).FindAllStringSubmatch(page.raw, -1) {
		for _, tool := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(row[1], -1) {
			if named++; !offered[tool[1]] {
				t.Errorf("the skill names %s, which is no tool of the core set", tool[1])
			}
		}
	}
	if named < 12 {
		t.Errorf("the skill names %d tools", named)
	}
}

func TestCatalog(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	if a := r.call("GET", "/v1/templates", nil).want(t, 200); !strings.Contains(a.raw, `{"name":"python","image":"fake-python","default":true,"shared":true,"declared":true,`) {
		t.Errorf("unexpected templates: %s", a.raw)
	}
	if a := r.call("GET", "/v1/providers", nil).want(t, 200); !strings.Contains(a.raw, `"provider":"fake","exec":"native"`) {
		t.Errorf("unexpected providers: %s", a.raw)
	}
	if a := r.call("GET", "/v1/webhooks/secret", nil).want(t, 200); !strings.HasPrefix(a.text("secret"), "whsec_") {
		t.Errorf("unexpected secret: %s", a.raw)
	}
}

func TestRequestIDs(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	if a := r.call("GET", "/healthz", nil, "X-Request-ID", "mine-1"); a.header.Get("X-Request-ID") != "mine-1" {
		t.Errorf("not kept: %v", a.header)
	}
	if !strings.Contains(r.log.String(), `"request_id":"mine-1"`) || !strings.Contains(r.log.String(), `"route":"/healthz"`) {
		t.Errorf("not logged: %s", r.log)
	}
	for _, bad := range []string{"", "a b", strings.Repeat("x", 129)} {
		if got := r.call("GET", "/healthz", nil, "X-Request-ID", bad).header.Get("X-Request-ID"); len(got) != 36 {
			t.Errorf("%q became %q", bad, got)
		}
	}
}

type brokenGatherer struct{}

func (brokenGatherer) Gather() ([]*dto.MetricFamily, error) { panic("the secret is in the log") }

func TestPanicIsToldOnlyToTheLog(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(c *web.Config) { c.Metrics, c.PublicMetrics = brokenGatherer{}, true })
	a := r.call("GET", "/metrics", nil).problem(t, 500, "internal_error")
	if strings.Contains(a.raw, "secret") || strings.Contains(a.raw, "goroutine") {
		t.Errorf("the cause is shown: %s", a.raw)
	}
	if log := r.log.String(); !strings.Contains(log, "the secret is in the log") || !strings.Contains(log, a.text("request_id")) {
		t.Errorf("the cause is not logged: %s", log)
	}
}

// TestTheRootLeadsToTheReference: who opens the server in a browser finds out what it is.
func TestTheRootLeadsToTheReference(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	a := r.call("GET", "/", nil, "Authorization", "")
	if a.status != 302 && !strings.Contains(a.raw, "redoc") {
		t.Errorf("the root is answered %d %.100s", a.status, a.raw)
	}
	r.call("GET", "/favicon.ico", nil, "Authorization", "").want(t, 204)
	if policy := r.call("GET", "/healthz", nil).header.Get("Content-Security-Policy"); !strings.Contains(policy, "frame-ancestors 'none'") {
		t.Errorf("an answer may be framed: %q", policy)
	}
}
