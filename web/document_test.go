package web_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"sandyard/dev/testdb"
	"sandyard/models"
	"sandyard/web"
)

// document is an OpenAPI document in which schemas are looked for that have no bounds.
type document struct {
	schemas map[string]map[string]any
	missing map[string]bool
	seen    map[string]bool
}

// TestRequestsAreBounded: every text, array and map of every request has a bound in the published document.
func TestRequestsAreBounded(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	var doc struct {
		Paths map[string]map[string]struct {
			Parameters []struct {
				Name   string         `json:"name"`
				Schema map[string]any `json:"schema"`
			} `json:"parameters"`
			RequestBody struct {
				Content map[string]struct {
					Schema map[string]any `json:"schema"`
				} `json:"content"`
			} `json:"requestBody"`
		} `json:"paths"`
		Components struct {
			Schemas map[string]map[string]any `json:"schemas"`
		} `json:"components"`
	}
	check(t, json.Unmarshal([]byte(r.call("GET", "/openapi.json", nil).want(t, 200).raw), &doc))
	d := &document{schemas: doc.Components.Schemas, missing: map[string]bool{}, seen: map[string]bool{}}
	bodies := 0
	for path, operations := range doc.Paths {
		for method, op := range operations {
			for _, p := range op.Parameters {
				d.walk(method+" "+path+" "+p.Name, p.Schema)
			}
			if body, ok := op.RequestBody.Content["application/json"]; ok {
				bodies++
				d.walk(method+" "+path, body.Schema)
			}
		}
	}
	if bodies < 20 {
		t.Errorf("%d bodies were found", bodies)
	}
	for _, where := range slices.Sorted(maps.Keys(d.missing)) {
		t.Error("no bound:", where)
	}
}

func (d *document) walk(at string, s map[string]any) {
	if ref, ok := s["$ref"].(string); ok {
		name := ref[strings.LastIndex(ref, "/")+1:]
		if !d.seen[name] {
			d.seen[name] = true
			d.walk(name, d.schemas[name])
		}
		return
	}
	kinds := fmt.Sprint(s["type"])
	if strings.Contains(kinds, "string") {
		d.want(at, s, "maxLength", "enum", "format")
	}
	if items, ok := s["items"].(map[string]any); ok {
		d.want(at, s, "maxItems")
		d.walk(at+"[]", items)
	}
	properties, _ := s["properties"].(map[string]any)
	for name, p := range properties {
		if schema, ok := p.(map[string]any); ok {
			d.walk(at+"."+name, schema)
		}
	}
	if more, ok := s["additionalProperties"]; ok && more != false {
		d.want(at, s, "maxProperties")
		if schema, ok := more.(map[string]any); ok {
			d.walk(at+".*", schema)
		}
	}
	for _, several := range []string{"oneOf", "anyOf", "allOf"} {
		list, _ := s[several].([]any)
		for _, one := range list {
			if schema, ok := one.(map[string]any); ok {
				d.walk(at, schema)
			}
		}
	}
}

func (d *document) want(at string, s map[string]any, any ...string) {
	if !slices.ContainsFunc(any, func(name string) bool { return s[name] != nil }) {
		d.missing[at+" wants "+strings.Join(any, " or ")] = true
	}
}

// TestForeignIDsCostNoQuery: an id of another form is answered before the database is asked, and so is what is too long.
func TestForeignIDsCostNoQuery(t *testing.T) {
	t.Parallel()
	var asked atomic.Int64
	dsn := testdb.New(t)
	r := newRigOn(t, dsn, func(c *web.Config) {
		c.Store = must(models.Open(t.Context(), dsn, 8, models.Limits{Window: 64}, func(_ context.Context, what string, do func() error) error {
			if !strings.Contains(what, "api_keys") && !strings.Contains(what, "audit_log") { // refusals share entries
				asked.Add(1)
			}
			return do()
		}))(t)
		t.Cleanup(func() { c.Store.Close() })
	})
	r.call("GET", "/healthz", nil).want(t, 200)
	asked.Store(0) // of the start
	for _, id := range []string{"x", "%7B", "sb1,sb2", "SB06h0achd7dsnh3o20aebje7jlk", "sb06h0achd7dsnh3o20aebje7jlkk", strings.Repeat("a", 9000), "sb%27%22"} {
		for _, route := range []string{
			"GET /v1/sandboxes/%s", "DELETE /v1/sandboxes/%s", "GET /v1/sandboxes/%s/events", "POST /v1/sandboxes/%s/pause", "GET /v1/jobs/%s",
			"GET /v1/jobs/%s?wait=1s", "POST /v1/jobs/%s/cancel", "POST /v1/jobs/%s/retry", "GET /v1/schedules/%s", "GET /v1/templates/x/builds/%s",
		} {
			method, path, _ := strings.Cut(route, " ")
			r.call(method, fmt.Sprintf(path, id), nil).problem(t, 404, "not_found")
		}
		r.call("POST", "/v1/jobs", map[string]any{"kind": "pause", "sandbox_id": id}).problem(t, 422, "invalid_request")
		r.call("GET", "/v1/jobs?sandbox_id="+id, nil).problem(t, 422, "invalid_request")
	}
	box := "/v1/sandboxes/sb06h0achd7dsnh3o20aebje7jl0"
	long := strings.Repeat("x", 200_000)
	for path, body := range map[string]any{
		box + "/exec":         map[string]any{"argv": slices.Repeat([]string{"x"}, 1001)},
		box + "/exec?":        map[string]any{"argv": []string{long}},
		box + "/exec?wait=1s": map[string]any{"command": long},
		box + "/files/read":   map[string]any{"path": long},
		"/v1/sandboxes":       map[string]any{"image": long},
		"/v1/sandboxes?":      map[string]any{"labels": map[string]string{"a": long}},
		"/v1/jobs":            map[string]any{"sandbox_id": "sb06h0achd7dsnh3o20aebje7jl0", "kind": "exec", "args": map[string]any{"argv": []string{long}}},
		"/v1/jobs?":           map[string]any{"sandbox_id": "sb06h0achd7dsnh3o20aebje7jl0", "kind": "pause", "args": map[string]any{"reason": long}},
		"/v1/jobs?wait=1s":    map[string]any{"sandbox_id": "sb06h0achd7dsnh3o20aebje7jl0", "kind": "list", "args": map[string]any{"path": long}},
		"/v1/templates":       map[string]any{"name": "a", "image": "b", "env": map[string]string{"A": long}},
		box + "/egress":       map[string]any{"allow": slices.Repeat([]string{"a.example"}, 1001)},
	} {
		method := "POST"
		if strings.HasSuffix(path, "/egress") {
			method = "PUT"
		}
		r.call(method, path, body).problem(t, 422, "invalid_request")
	}
	if n := asked.Load(); n > 0 {
		t.Errorf("%d statements for requests that could never be carried out", n)
	}
}
