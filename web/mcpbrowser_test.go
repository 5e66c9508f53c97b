package web_test

import (
	"testing"

	"sandyard/models"
)

// TestMCPBrowserIsRefused: what a browser could never do is refused before a command is run, and where there is none the answer
// says where there is one.
func TestMCPBrowserIsRefused(t *testing.T) {
	t.Parallel()
	r := newInsideRig(t)
	k := r.talk("?tools=browser")
	for _, args := range []object{{"url": "localhost:8000"}, {"url": "javascript:alert(1)"}, {"url": "/page"}, {"url": "http://%"}} {
		k.refused("browser_open", args, "invalid_request", "must be a whole URL")
	}
	k.refused("browser_open", object{"url": "http://localhost", "wait_until": "noon"}, "invalid_request", "must be load")
	k.refused("browser_screenshot", object{"timeout": 16}, "invalid_request", "must be between 1 and 15")
	k.refused("browser_action", object{}, "invalid_request", "action_type is missing")
	if n := len(must(r.store.Jobs(t.Context(), "default", models.JobFilter{Kind: "exec", Limit: 10}))(t)); n > 0 {
		t.Errorf("%d commands were run", n)
	}
	k.refused("browser_info", nil, "no_browser", "?template=browser")
}
