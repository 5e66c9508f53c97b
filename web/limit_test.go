package web_test

import (
	"strings"
	"testing"

	"sandyard/passes"
	"sandyard/web"
)

func TestLimitsOfResources(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(c *web.Config) { c.E2B = &web.E2B{Signer: passes.New("secret"), Domain: "sandboxes.example"} })
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
