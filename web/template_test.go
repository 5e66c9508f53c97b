package web_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"sandyard/jobs"
	"sandyard/models"
	"sandyard/tokens"
	"sandyard/web"
)

type object = map[string]any

func TestTemplateIsKeptAndReplaced(t *testing.T) {
	t.Parallel()
	r := newRig(t, offering("runsc"))
	body := object{
		"name": "mine", "image": "fake-mine", "start_command": "fake:sleep 1h", "ports": []int{8000}, "env": object{"A": "1"},
		"work_dir": "/data", "runtime": "runsc", "resources": object{"memory_mb": 256}, "maximum": object{"memory_mb": 512},
		"ready": object{"tcp": object{"port": 8000}, "timeout_seconds": 5}, "pool": object{"min": 1, "max": 2},
	}
	made := r.call("POST", "/v1/templates", body).want(t, 201)
	r.call("POST", "/v1/templates", body).problem(t, 409, "name_taken")
	got := r.call("GET", "/v1/templates/mine", nil).want(t, 200)
	for path, want := range map[string]any{
		"image": "fake-mine", "start_command": "fake:sleep 1h", "env.A": "1", "work_dir": "/data", "runtime": "runsc", "pool.max": 2.0,
		"resources.memory_mb": 256.0, "ready.tcp.port": 8000.0, "version": 1.0, "shared": false, "default": false, "declared": false,
	} {
		if got.get(path) != want || made.get(path) != want {
			t.Errorf("%s is %v and was made as %v, want %v", path, got.get(path), made.get(path), want)
		}
	}
	put := r.call("PUT", "/v1/templates/mine", object{"image": "fake-two"}).want(t, 200)
	if put.get("version") != 2.0 || put.get("image") != "fake-two" || put.get("start_command") != nil {
		t.Errorf("replaced: %s", put.raw)
	}
	if names := templateNames(r); names != "mine node python" {
		t.Errorf("listed: %s", names)
	}
	r.call("DELETE", "/v1/templates/mine", nil).want(t, 200)
	r.call("GET", "/v1/templates/mine", nil).problem(t, 404, "not_found")
	r.call("DELETE", "/v1/templates/mine", nil).problem(t, 404, "not_found")
}

func templateNames(r *rig) string {
	r.t.Helper()
	var names []string
	for _, item := range r.call("GET", "/v1/templates", nil).want(r.t, 200).get("templates").([]any) {
		names = append(names, item.(map[string]any)["name"].(string))
	}
	return strings.Join(names, " ")
}

func TestTemplateHoldsForNewSandboxes(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.work()
	r.call("PUT", "/v1/templates/mine", object{"image": "fake-one", "env": object{"A": "template", "B": "template"}}).want(t, 200)
	old := r.call("POST", "/v1/sandboxes?wait=60s", object{"template": "mine", "env": object{"B": "own"}}).want(t, 200)
	r.call("PUT", "/v1/templates/mine", object{
		"image": "fake-two", "resources": object{"memory_mb": 256, "cpus": 2}, "maximum": object{"memory_mb": 300},
	}).want(t, 200)
	box := r.call("POST", "/v1/sandboxes?wait=60s", object{"template": "mine"}).want(t, 200)
	if box.get("sandbox.image") != "fake-two" || box.get("sandbox.resources.memory_mb") != 256.0 || box.get("sandbox.resources.cpus") != 2.0 {
		t.Errorf("the new sandbox: %s", box.raw)
	}
	if now := r.call("GET", "/v1/sandboxes/"+old.text("sandbox.id"), nil); now.get("image") != "fake-one" || now.get("state") != "running" {
		t.Errorf("the old sandbox: %s", now.raw)
	}
	env := r.call("POST", "/v1/sandboxes/"+old.text("sandbox.id")+"/exec?wait=60s", object{"command": "fake:env A; fake:env B"}).want(t, 200)
	if got := env.text("job.stdout"); got != "templateown" {
		t.Errorf("its environment: %q", got)
	}
	r.call("POST", "/v1/sandboxes", object{"template": "mine", "memory_mb": 400}).problem(t, 422, "invalid_request")
	if a := r.call("POST", "/v1/sandboxes", object{"template": "other"}).problem(t, 422, "invalid_request"); !strings.Contains(a.text("detail"), "[mine node python]") {
		t.Errorf("detail: %s", a.raw)
	}
	if gone := r.call("DELETE", "/v1/templates/mine", nil).want(t, 200); gone.get("sandboxes") != 2.0 {
		t.Errorf("deleted: %s", gone.raw)
	}
	if now := r.call("GET", "/v1/sandboxes/"+old.text("sandbox.id"), nil); now.get("state") != "running" {
		t.Errorf("without its template: %s", now.raw)
	}
}

func TestSharedTemplatesAreTheOperators(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	user := must(r.store.CreateKey(context.Background(), "default", "user", []string{models.ScopeSandboxes}))(t)
	r.sql(`INSERT INTO tenants (id, name, webhook_secret) VALUES ('other', 'other', 'whsec_x')`)
	other := must(r.store.CreateKey(context.Background(), "other", "other", []string{models.ScopeSandboxes}))(t)
	shared := object{"image": "fake-shared", "shared": true}
	r.call("PUT", "/v1/templates/tools", shared, "Authorization", "Bearer "+user).problem(t, 403, "scope_missing")
	pool := object{"name": "pooled", "image": "fake-mine", "pool": object{"min": 1}}
	r.call("PUT", "/v1/templates/pooled", object{"image": "fake-mine", "pool": object{"min": 1}}, "Authorization", "Bearer "+user).problem(t, 403, "scope_missing")
	r.call("POST", "/v1/templates", pool, "Authorization", "Bearer "+user).problem(t, 403, "scope_missing")
	r.call("PUT", "/v1/templates/tools", shared).want(t, 200)
	r.call("PUT", "/v1/templates/tools", object{"image": "fake-mine"}, "Authorization", "Bearer "+user).want(t, 200)
	r.call("PUT", "/v1/templates/private", object{"image": "fake-mine"}, "Authorization", "Bearer "+user).want(t, 200)
	if a := r.call("GET", "/v1/templates/tools", nil).want(t, 200); a.get("image") != "fake-mine" || a.get("shared") != false {
		t.Errorf("a tenant's own does not hide the shared one: %s", a.raw)
	}
	if a := r.call("GET", "/v1/templates/tools", nil, "Authorization", "Bearer "+other).want(t, 200); a.get("image") != "fake-shared" {
		t.Errorf("another tenant sees %s", a.raw)
	}
	r.call("GET", "/v1/templates/private", nil, "Authorization", "Bearer "+other).problem(t, 404, "not_found")
	r.call("POST", "/v1/sandboxes", object{"template": "private"}, "Authorization", "Bearer "+other).problem(t, 422, "invalid_request")
	r.call("DELETE", "/v1/templates/tools?shared=true", nil, "Authorization", "Bearer "+other).problem(t, 403, "scope_missing")
	r.call("DELETE", "/v1/templates/tools?shared=true", nil).want(t, 200)
	if a := r.call("GET", "/v1/templates/tools", nil).want(t, 200); a.get("image") != "fake-mine" {
		t.Errorf("the tenant's own went too: %s", a.raw)
	}
}

func TestDeclaredTemplates(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	ctx := context.Background()
	declare := func(image string) {
		t.Helper()
		check(t, r.store.Declare(ctx, []models.Template{{Name: "python", Image: image}}))
	}
	image := func() any { return r.call("GET", "/v1/templates/python", nil).want(t, 200).get("image") }
	declare("fake-1")
	declare("fake-1")
	if image() != "fake-1" {
		t.Errorf("declared: %v", image())
	}
	r.call("PUT", "/v1/templates/python", object{"image": "fake-changed", "shared": true}).want(t, 200)
	declare("fake-1")
	if image() != "fake-changed" {
		t.Errorf("a restart has undone the operator's change: %v", image())
	}
	declare("fake-2")
	if image() != "fake-2" {
		t.Errorf("the changed configuration is not heard: %v", image())
	}
	r.call("DELETE", "/v1/templates/python?shared=true", nil).problem(t, 409, "template_declared")
	check(t, r.store.Declare(ctx, nil))
	r.call("DELETE", "/v1/templates/python?shared=true", nil).want(t, 200)
}

func TestTemplatesHaveAQuota(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.sql("UPDATE tenants SET max_templates = 2")
	body := object{"image": "fake-mine"}
	r.call("PUT", "/v1/templates/one", body).want(t, 200)
	r.call("POST", "/v1/templates", object{"name": "two", "image": "fake-mine"}).want(t, 201)
	for _, refused := range []answer{
		r.call("PUT", "/v1/templates/three", body),
		r.call("POST", "/v1/templates", object{"name": "three", "image": "fake-mine"}),
		r.call("POST", "/v1/templates/three/builds", object{"script": "true", "from": "fake"}),
	} {
		a := refused.problem(t, 429, "limit_reached")
		if a.text("limit") != "max_templates" || a.get("used") != 2.0 || a.get("max") != 2.0 {
			t.Errorf("the limit is told as %s", a.raw)
		}
	}
	r.call("PUT", "/v1/templates/one", body).want(t, 200)
	r.call("POST", "/v1/templates", object{"name": "one", "image": "fake-mine"}).problem(t, 409, "name_taken")
	r.call("POST", "/v1/templates/one/builds", object{"script": "true", "from": "fake"}).want(t, 202)
	r.call("PUT", "/v1/templates/shared", object{"image": "fake-mine", "shared": true}).want(t, 200)
	r.call("DELETE", "/v1/templates/two", nil).want(t, 200)
	r.call("PUT", "/v1/templates/three", body).want(t, 200)
}

func TestListsOfTemplates(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	want := []string{"a-b", "a.b", "a0", "a_b", "ab", "node", "python", "tools", "z"} // node and python are declared
	for _, name := range []string{"z", "a_b", "ab", "a0", "a.b", "a-b", "tools", "python"} {
		r.call("PUT", "/v1/templates/"+name, object{"image": "fake-mine"}).want(t, 200)
	}
	r.call("PUT", "/v1/templates/tools", object{"image": "fake-shared", "shared": true}).want(t, 200)
	for _, limit := range []int{1, 2, 4, 9, 100} {
		var got []string
		for cursor := ""; ; {
			page := r.call("GET", fmt.Sprintf("/v1/templates?limit=%d%s", limit, cursor), nil).want(t, 200)
			list, _ := page.get("templates").([]any)
			for _, item := range list {
				x, _ := item.(object)
				got = append(got, fmt.Sprint(x["name"]))
				if x["name"] == "tools" && x["image"] != "fake-mine" {
					t.Errorf("a tenant's own does not hide the shared one: %v", x)
				}
			}
			if page.text("next_cursor") == "" || len(list) != limit {
				break
			}
			cursor = "&cursor=" + page.text("next_cursor")
		}
		if !slices.Equal(got, want) {
			t.Errorf("by %d: %v, want %v", limit, got, want)
		}
	}
	r.call("GET", "/v1/templates?limit=101", nil).problem(t, 422, "invalid_request")
	r.call("GET", "/v1/templates?cursor=No", nil).problem(t, 422, "invalid_request")
}

func TestUnknownTemplateNamesFew(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	for n := range 30 {
		r.call("PUT", fmt.Sprintf("/v1/templates/%s%02d", strings.Repeat("n", 60), n), object{"image": "fake-mine"}).want(t, 200)
	}
	a := r.call("POST", "/v1/sandboxes", object{"template": "other"}).problem(t, 422, "invalid_request")
	if !strings.Contains(a.text("detail"), "nnn00 ") || !strings.Contains(a.text("detail"), "GET /v1/templates") || len(a.text("detail")) > 1500 {
		t.Errorf("detail: %s", a.raw)
	}
}

func TestInvalidTemplates(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	for _, bad := range []object{
		{"image": ""},
		{"image": "two words"},
		{"image": "i", "work_dir": "rel"},
		{"image": "i", "ports": []int{0}},
		{"image": "i", "mcp_port": 70000},
		{"image": "i", "env": object{"A=B": "c"}},
		{"image": "i", "ready": object{}},
		{"image": "i", "ready": object{"command": "x", "tcp": object{"port": 1}}},
		{"image": "i", "ready": object{"command": "x", "timeout_seconds": 1e6}},
		{"image": "i", "ready": object{"http": object{"port": 80, "path": "x"}}},
		{"image": "i", "resources": object{"memory_mb": 512}, "maximum": object{"memory_mb": 256}},
		{"image": "i", "resources": object{"memory_mb": 1}},
		{"image": "i", "pool": object{"min": -1}},
		{"image": "i", "start_command": "a\x00b"},
		{"image": "i", "colour": "red"},
	} {
		r.call("PUT", "/v1/templates/bad", bad).problem(t, 422, "invalid_request")
	}
	r.call("PUT", "/v1/templates/Bad", object{"image": "i"}).problem(t, 422, "invalid_request")
	if names := templateNames(r); names != "node python" {
		t.Errorf("listed: %s", names)
	}
}

// TestTokensOfPortsAreNotStored: a job's answer has the URL and the token, its row has neither.
func TestTokensOfPortsAreNotStored(t *testing.T) {
	t.Parallel()
	signer := tokens.New("secret")
	r := newInsideRig(t, func(c *web.Config) {
		c.Address = tokens.Address{Scheme: "http", Domain: "boxes.test"}
		c.Jobs = jobs.NewClient(c.Store, c.Queue, jobs.Catalog{
			Providers: []string{"fake"}, Images: []string{"*"}, Templates: map[string]string{"python": "fake-python"}, Template: "python",
			Edge: tokens.Address{Scheme: "http", Domain: "boxes.test"},
		}, c.Log)
	})
	opened := r.call("POST", "/v1/sandboxes/"+r.box+"/ports?wait=60s", object{"port": 8000}).want(t, 200)
	id, token := opened.text("job.result.id"), signer.Port(r.box, opened.text("job.result.id"))
	url := "http://8000-" + r.box + ".boxes.test/?sandyard_token=" + token
	if opened.text("job.result.token") != token || opened.text("job.result.url") != url {
		t.Errorf("the answer: %s", opened.raw)
	}
	for _, path := range []string{"/v1/jobs/" + opened.text("job.id"), "/v1/jobs?kind=port", "/v1/sandboxes/" + r.box + "/ports"} {
		if a := r.call("GET", path, nil).want(t, 200); !strings.Contains(a.raw, url) {
			t.Errorf("%s: %s", path, a.raw)
		}
	}
	public := r.call("POST", "/v1/sandboxes/"+r.box+"/ports?wait=60s", object{"port": 8001, "public": true}).want(t, 200)
	if got := public.text("job.result.url"); got != "http://8001-"+r.box+".boxes.test/" || strings.Contains(public.raw, `"token"`) {
		t.Errorf("a public port: %s", public.raw)
	}
	list, err := r.store.Jobs(t.Context(), "default", models.JobFilter{Sandbox: r.box, Kind: "port", Limit: 10})
	check(t, err)
	for _, j := range list {
		if len(j.Result) == 0 || len(j.Input) > 0 || strings.Contains(string(j.Result), "http") || strings.Contains(string(j.Result), "pt_") {
			t.Errorf("stored: %s and %s", j.Result, j.Input)
		}
	}
	if len(list) != 2 || id == "" {
		t.Errorf("%d jobs, grant %q", len(list), id)
	}
}

func TestSandboxesSayWhereTheirToolsAre(t *testing.T) {
	t.Parallel()
	signer := tokens.New("secret")
	r := newRig(t, func(c *web.Config) { c.Address = tokens.Address{Scheme: "http", Domain: "boxes.test"} })
	r.work()
	r.call("PUT", "/v1/templates/tools", object{"image": "fake", "mcp_port": 6060, "vscode_port": 9000, "ports": []int{6060, 9000}}).want(t, 200)
	box := r.call("POST", "/v1/sandboxes?wait=60s", object{"template": "tools"}).want(t, 200)
	id := box.text("sandbox.id")
	listed := func() map[string]string {
		urls := map[string]string{}
		ports, _ := r.call("GET", "/v1/sandboxes/"+id+"/ports", nil).want(t, 200).get("ports").([]any)
		for _, p := range ports {
			p, _ := p.(map[string]any)
			urls[fmt.Sprint(p["port"])] = fmt.Sprint(p["url"], p["expires_at"])
		}
		return urls
	}
	urls := listed()
	for path, port := range map[string]string{"sandbox.mcp_url": "6060", "sandbox.vscode_url": "9000"} {
		want, got := "http://"+port+"-"+id+".boxes.test/?sandyard_token=pt_", box.text(path)
		if !strings.HasPrefix(got, want) || strings.Contains(got, signer.Traffic(id)) || urls[port] != got+"<nil>" {
			t.Errorf("%s is %q, listed as %q", path, got, urls[port])
		}
	}
	if r.call("DELETE", "/v1/sandboxes/"+id+"/ports/9000", nil).want(t, 200); len(listed()) != 1 || listed()["6060"] == "" {
		t.Errorf("after one was revoked there are %v", listed())
	}
	shown := func(a answer, path string) {
		t.Helper()
		if a.get(path+"vscode_url") != nil || a.text(path+"mcp_url") != box.text("sandbox.mcp_url") {
			t.Errorf("after one was revoked it is %s", a.raw)
		}
	}
	shown(r.call("GET", "/v1/sandboxes/"+id, nil).want(t, 200), "")
	shown(r.call("POST", "/v1/sandboxes/"+id+"/exec?wait=60s", object{"command": "fake:stdout x"}).want(t, 200), "sandbox.")
	r.call("DELETE", "/v1/sandboxes/"+id+"/ports/6060/"+models.ToolGrant(models.MCP, id), nil).want(t, 200)
	if a := r.call("GET", "/v1/sandboxes", nil).want(t, 200); strings.Contains(a.raw, "mcp_url") || strings.Contains(a.raw, "vscode_url") {
		t.Errorf("after both were revoked they are listed: %s", a.raw)
	}
	if plain := r.call("POST", "/v1/sandboxes", object{}).want(t, 202); plain.get("sandbox.mcp_url") != nil || plain.get("sandbox.vscode_url") != nil {
		t.Errorf("a sandbox without tools: %s", plain.raw)
	}
	r.call("DELETE", "/v1/sandboxes/"+id+"?wait=60s", nil).want(t, 200)
	if gone := r.call("GET", "/v1/sandboxes/"+id, nil).want(t, 200); gone.get("mcp_url") != nil || len(listed()) != 0 {
		t.Errorf("a sandbox that is gone: %s", gone.raw)
	}
}

func TestTemplateSaysWhatItsSandboxesReach(t *testing.T) {
	t.Parallel()
	r, _ := newE2B(t)
	r.call("PUT", "/v1/templates/pip", object{"image": "fake-pip", "egress": object{"allow": []string{"pypi.org:443"}, "deny": []string{"*.pypi.org"}}}).want(t, 200)
	r.call("PUT", "/v1/templates/bad", object{"image": "fake-pip", "egress": object{"allow": []string{"http://pypi.org"}}}).problem(t, 422, "invalid_request")
	allowed := func(id string) string {
		t.Helper()
		return fmt.Sprint(r.call("GET", "/v1/sandboxes/"+id+"/egress", nil).want(t, 200).get("egress"))
	}
	for want, body := range map[string]object{
		"map[allow:[pypi.org:443] deny:[*.pypi.org]]": {"template": "pip"},
		"map[allow:[example.com]]":                    {"template": "pip", "egress": object{"allow": []string{"example.com"}}},
		"map[allow:[*]]":                              {"template": "pip", "network": true},
		"map[]":                                       {"template": "pip", "egress": object{}},
	} {
		if got := allowed(r.call("POST", "/v1/sandboxes", body).want(t, 202).text("sandbox.id")); got != want {
			t.Errorf("%v may reach %s, want %s", body, got, want)
		}
	}
	for want, body := range map[string]object{
		"map[allow:[pypi.org:443] deny:[*.pypi.org]]": {"templateID": "pip"},
		"map[allow:[*] allow_first:true]":             {"templateID": "pip", "allow_internet_access": true},
		"map[]":                                       {"templateID": "pip", "allow_internet_access": false},
	} {
		if got := allowed(r.call("POST", "/v2/sandboxes", body).want(t, 201).text("sandboxID")); got != want {
			t.Errorf("of E2B's client %v may reach %s, want %s", body, got, want)
		}
	}
}
