package web_test

import (
	"testing"

	"sandyard/models"
)

func TestNodesAreTheOperators(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.work()
	user := must(r.store.CreateKey(t.Context(), "default", "user", []string{models.ScopeSandboxes}))(t)
	for method, path := range map[string]string{"GET": "/v1/nodes", "POST": "/v1/nodes/n1/drain"} {
		r.call(method, path, nil, "Authorization", "Bearer "+user).problem(t, 403, "scope_missing")
	}
	list := r.call("GET", "/v1/nodes", nil).want(t, 200)
	node := list.get("nodes").([]any)[0].(map[string]any)
	if node["state"] != "live" || node["provider"] != "fake" || node["host"] == "" {
		t.Errorf("listed: %s", list.raw)
	}
	id := node["id"].(string)
	if a := r.call("POST", "/v1/nodes/"+id+"/drain", nil).want(t, 200); a.get("state") != "draining" || a.get("draining_at") == nil {
		t.Errorf("drained: %s", a.raw)
	}
	if a := r.call("POST", "/v1/nodes/"+id+"/undrain", nil).want(t, 200); a.get("state") != "live" || a.get("draining_at") != nil {
		t.Errorf("not drained any more: %s", a.raw)
	}
	r.call("POST", "/v1/nodes/"+id+"/drain?leave=true", nil).want(t, 200)
	r.call("POST", "/v1/nodes/"+id+"/undrain", nil).problem(t, 404, "not_found")
	r.call("POST", "/v1/nodes/nobody/drain", nil).problem(t, 404, "not_found")
}
