package web_test

import (
	"fmt"
	"strings"
	"testing"

	"sandyard/dev/testenv"
	"sandyard/models"
)

// TestEnvForLaterCommands checks what is set for later commands: from when on it holds, for what, and how much fits.
func TestEnvForLaterCommands(t *testing.T) {
	t.Parallel()
	r := newInsideRig(t)
	box := "/v1/sandboxes/" + r.sandbox(map[string]any{"env": map[string]string{"BOTH": "created"}})
	said := func(command string, more ...string) string {
		t.Helper()
		body := fmt.Sprintf(`{"command": %q%s}`, command, strings.Join(more, ""))
		return r.call("POST", box+"/exec?wait=30s", body).want(t, 200).text("job.stdout")
	}
	change := func(method, body string) answer {
		t.Helper()
		return r.call(method, box+"/env?wait=30s", body).want(t, 200)
	}
	before := r.call("POST", box+"/exec", map[string]any{"command": "fake:sleep 300ms; fake:env KEPT"}).
		want(t, 202).
		text("job.id")
	a := change("PATCH", `{"env": {"KEPT": "it's", "BOTH": "set", "EMPTY": ""}}`)
	if a.text("job.state") != "succeeded" ||
		fmt.Sprint(a.get("job.result")) != "map[removed:[] set:[BOTH EMPTY KEPT]]" {
		t.Errorf("the change: %s", a.raw)
	}
	if got := r.call("GET", "/v1/jobs/"+before, nil).want(t, 200); got.text("state") != "succeeded" ||
		got.text("stdout") != "" {
		t.Errorf("a command that was submitted before: %s", got.raw)
	}
	if got := said("fake:env KEPT; fake:stdout ,; fake:env BOTH"); got != "it's,set" {
		t.Errorf("a later command says %q", got)
	}
	if got := said("fake:env KEPT; fake:stdout ,; fake:env BOTH", `, "env": {"KEPT": "own"}`); got != "own,set" {
		t.Errorf("a command with an environment of its own says %q", got)
	}
	r.call("POST", box+"/pause?wait=30s", nil).want(t, 200)
	r.call("POST", box+"/resume?wait=30s", nil).want(t, 200)
	cell := r.call("POST", box+"/code?wait=30s", map[string]any{"language": "python", "code": "fake:env KEPT"}).
		want(t, 200)
	if cell.text("job.stdout") != "it's" {
		t.Errorf("a context that was started later: %s", cell.raw)
	}
	if a := change("PATCH", `{"env": {"BOTH": null, "NEVER": null}}`); fmt.Sprint(
		a.get("job.result"),
	) != "map[removed:[BOTH NEVER] set:[]]" {
		t.Errorf("a removal: %s", a.raw)
	}
	if got := said("fake:env BOTH"); got != "created" {
		t.Errorf("after the removal a command says %q", got)
	}
	change("PUT", `{"env": {"OTHER": "1"}}`)
	if a := r.call("GET", box+"/env", nil).want(t, 200); fmt.Sprint(a.get("env")) != "map[OTHER:1]" {
		t.Errorf("what is set: %s", a.raw)
	}
	change("PUT", `{"env": {}}`)
	if a := r.call("GET", box+"/env", nil).want(t, 200); fmt.Sprint(a.get("env")) != "map[]" {
		t.Errorf("nothing is left: %s", a.raw)
	}
	r.call("DELETE", box+"?wait=30s", nil).want(t, 200) // with the context
}

func TestEnvIsBounded(t *testing.T) {
	t.Parallel()
	r := newInsideRig(t)
	box := "/v1/sandboxes/" + r.box
	for _, body := range []string{
		`{}`, `{"env": {}}`, `{"env": {"": "x"}}`, `{"env": {"A B": "x"}}`, `{"env": {"1A": "x"}}`,
		`{"env": {"A=": "x"}}`, `{"env": {"A": 1}}`, `{"env": {"A": "\u0000"}}`,
		`{"env": {"` + strings.Repeat("A", 256) + `": "x"}}`, `{"env": {"A": "` + strings.Repeat("x", 128<<10) + `"}}`,
		`{"env": {"A": "x"}, "replace": true}`,
		`{"env": {"A": "` + strings.Repeat("x", 128<<10-2) + `"}}`, // which the kernel gives to no program
	} {
		if a := r.call("PATCH", box+"/env", body); a.status != 422 || a.text("code") != "invalid_request" {
			t.Errorf("%.80s: answered %.200s", body, a.raw)
		}
	}
	largest := `{"env": {"A": "` + strings.Repeat("x", 128<<10-3) + `"}}`
	for _, body := range []string{largest, `{"env": {"A": null}}`} {
		if a := r.call("PATCH", box+"/env?wait=30s", body).want(t, 200); a.text("job.state") != "succeeded" {
			t.Fatalf("%.80s: answered %.200s", body, a.raw)
		}
	}
	set := func(from, to, size int) answer {
		many := map[string]string{}
		for i := from; i < to; i++ {
			many[fmt.Sprintf("V%04d", i)] = strings.Repeat("x", size)
		}
		return r.call("PATCH", box+"/env?wait=30s", map[string]any{"env": many}).want(t, 200)
	}
	if a := set(0, 200, 300); a.text("job.state") != "succeeded" {
		t.Fatalf("200 variables of 300 bytes: %s", a.raw)
	}
	for what, a := range map[string]answer{"too many": set(200, 257, 1), "too large": set(200, 250, 2000)} {
		if a.text("job.state") != "failed" || a.text("job.error.code") != "env_too_large" ||
			!strings.Contains(a.raw, "nothing was changed") {
			t.Errorf("%s: %s", what, a.raw)
		}
	}
	if a := r.call("GET", box+"/env", nil).want(t, 200); len(a.get("env").(map[string]any)) != 200 {
		t.Errorf("after the refused changes there are %d variables", len(a.get("env").(map[string]any)))
	}
	if a := set(0, 200, 301); a.text("job.state") != "succeeded" {
		t.Errorf("a change of what there is: %s", a.raw)
	}
	r.call("DELETE", box+"?wait=30s", nil).want(t, 200)
	testenv.Eventually(t, "the sandbox is gone", func() bool { return r.counted("delete", models.Succeeded) == 1 })
	if a := r.call("PATCH", box+"/env?wait=30s", `{"env": {"A": "x"}}`); a.status != 409 && a.status != 410 {
		t.Errorf("a sandbox that has ended: %s", a.raw)
	}
}
