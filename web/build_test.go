package web_test

import (
	"encoding/base64"
	"strings"
	"testing"
)

// TestBuildsThatGrowAreRefused before anything is made of the few bytes that ask for so many.
func TestBuildsThatGrowAreRefused(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	copies := object{
		"dockerfile": "FROM a" + strings.Repeat("\nCOPY big /x/", 30),
		"files":      []object{{"path": "big", "content": base64.StdEncoding.EncodeToString(make([]byte, 1<<20)), "encoding": "base64"}},
	}
	for says, body := range map[string]object{
		"longer than 32 KiB":  {"dockerfile": "FROM a\nENV A=0123456789\n" + strings.Repeat("ENV A=$A$A\n", 20)},
		"copy each file once": copies,
		"more than 200 steps": {"dockerfile": "FROM a" + strings.Repeat("\nRUN x", 201)},
	} {
		a := r.call("POST", "/v1/templates/mine/builds", body).problem(t, 422, "invalid_request")
		if !strings.Contains(a.text("detail"), "body.recipe line ") || !strings.Contains(a.text("detail"), says) || len(a.raw) > 2000 {
			t.Errorf("want %q: %s", says, a.raw)
		}
	}
	if rows := r.rows(); rows != "0 sandboxes, 0 jobs" {
		t.Errorf("written down: %s", rows)
	}
}
