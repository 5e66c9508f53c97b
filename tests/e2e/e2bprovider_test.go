package e2e_test

import (
	"os/exec"
	"strings"
	"testing"
	"time"

	"sandyard/dev/testenv"
)

// TestAnotherSandyardIsAProvider has a whole installation in the place of E2B, and makes sandboxes there through a second one whose
// only provider is e2b. Its worker is killed during a command and a write; each happens once.
func TestAnotherSandyardIsAProvider(t *testing.T) {
	t.Parallel()
	vendor := newRig(t)
	var edge struct{ Addr string }
	decode(t, "{"+vendor.api.Line(&vendor.api.Stderr, `"msg":"edge listens",`), &edge)
	r := newRig(t, "SANDBOX_PROVIDER", "e2b", "E2B_API_KEY", vendor.key, "E2B_API_URL", "http://"+vendor.address,
		"E2B_SANDBOX_URL", "http://"+edge.Addr, "RECONCILE_EVERY", "300ms", "RECONCILE_GRACE", "1s")

	box := r.created(object{"labels": object{"of": "test"}, "env": object{"GREETING": "hello"}, "timeout_seconds": 600}).ID
	if b := r.sandbox(box); b.Provider != "e2b" || len(vendor.living()) != 1 {
		t.Fatalf("the sandbox is of %q, and %d live there", b.Provider, len(vendor.living()))
	}
	if j := r.end(r.start(box, "echo $GREETING; echo aside >&2; exit 3")).succeeded(t); j.Stdout != "hello\n" || j.Stderr != "aside\n" || j.Result.ExitCode != 3 {
		t.Errorf("a command there: %s", j)
	}
	r.file(box, "write", object{"path": "a/b.txt", "content": "one two"}).succeeded(t)
	r.file(box, "edit", object{"path": "a/b.txt", "edits": []object{{"old_string": "two", "new_string": "three"}}}).succeeded(t)
	if j := r.file(box, "read", object{"path": "a/b.txt"}); j.Content != "one three" {
		t.Errorf("the file holds %q", j.Content)
	}
	before := vendor.living()[0].ExpiresAt
	r.end(r.submit("/v1/sandboxes/"+box+"/timeout", object{"timeout_seconds": 3000}).Job).succeeded(t)
	testenv.Eventually(t, "it lives as long there", func() bool { return vendor.living()[0].ExpiresAt.After(before.Add(30 * time.Minute)) })
	r.end(r.submit("/v1/sandboxes/"+box+"/pause", object{}).Job).succeeded(t)
	testenv.Eventually(t, "it is paused there", func() bool { return vendor.living()[0].State == "paused" })
	r.end(r.submit("/v1/sandboxes/"+box+"/resume", object{}).Job).succeeded(t)
	r.call("POST", "/v1/sandboxes/"+box+"/exec", object{"command": "true", "background": true}).problem(t, 501, "unsupported_operation")

	r.killedMeanwhile(box)

	removed := r.created(object{}).ID
	for _, b := range vendor.living() {
		if b.Labels["sandyard_sandbox"] == removed {
			vendor.remove(b.ID)
		}
	}
	testenv.Eventually(t, "its loss is noticed", func() bool { return r.sandbox(removed).State == "lost" })
	r.keeps(vendor.key)
	r.clean()
	testenv.Eventually(t, "nothing is left there", func() bool { return len(vendor.living()) == 0 })
	vendor.clean()
}

// killedMeanwhile kills the worker while a command runs and while a file is written.
func (r *rig) killedMeanwhile(box string) {
	t := r.t
	t.Helper()
	exec := r.start(box, "echo start >>log; echo begun; until [ -e go ]; do sleep 0.1; done; echo done")
	testenv.Eventually(t, "the command runs", func() bool {
		return r.end(r.submit("/v1/sandboxes/"+box+"/files/read", object{"path": "log", "parallel": true}).Job).Content == "start\n"
	})
	content := strings.Repeat("0123456789abcdef", 1<<16)
	write := r.submit("/v1/sandboxes/"+box+"/files/write", object{"path": "big", "content": content, "parallel": true}).Job
	r.worker.Kill()
	r.startWorker()
	r.end(r.submit("/v1/sandboxes/"+box+"/files/write", object{"path": "go", "content": "", "parallel": true}).Job).succeeded(t)
	if j := r.end(exec).succeeded(t); j.Stdout != "begun\ndone\n" || j.Attempt < 2 {
		t.Errorf("the command of a killed worker: %s", j)
	}
	r.end(write).succeeded(t)
	if j := r.exec(box, "cat log; stat -c %s big; ls -a | grep -c -e '\\.sandyard.*big' -e 'big.*tmp'"); j.Stdout != "start\n1048576\n0\n" {
		t.Errorf("in the sandbox: %q", j.Stdout)
	}
}

// living are the sandboxes that have not ended.
func (r *rig) living() []sandbox {
	r.t.Helper()
	var page struct{ Sandboxes []sandbox }
	decode(r.t, r.call("GET", "/v1/sandboxes?limit=100", nil).want(r.t, 200).raw, &page)
	var live []sandbox
	for _, b := range page.Sandboxes {
		if b.State != "deleted" && b.State != "failed" && b.State != "lost" && b.State != "deleting" {
			live = append(live, b)
		}
	}
	return live
}

// keeps looks for a key in the database and in the logs.
func (r *rig) keeps(key string) {
	t := r.t
	t.Helper()
	dump, err := exec.Command("pg_dump", "--inserts", "--dbname", r.settings["DATABASE_URL"]).Output()
	check(t, err)
	if !strings.Contains(string(dump), "provider_ref") && !strings.Contains(string(dump), "e2b") {
		t.Error("the dump does not name the provider: what does it show?")
	}
	places := map[string]string{"the database": string(dump)}
	r.each(func(p *process) { places["the log of "+p.Name] = p.Stderr.String() })
	for place, text := range places {
		if strings.Contains(text, key) || strings.Contains(text, strings.TrimPrefix(key, "sy_")) {
			t.Errorf("the provider's key is in %s", place)
		}
	}
}
