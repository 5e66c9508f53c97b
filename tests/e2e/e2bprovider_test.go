package e2e_test

import (
	"os/exec"
	"strings"
	"testing"
	"time"

	"sandyard/dev/testenv"
	"sandyard/vault"
)

// TestAnotherSandyardIsAProvider has a whole installation in the place of E2B, and makes sandboxes there through a second one whose
// only provider is e2b. Its worker is killed during a command and a write; each happens once.
func TestAnotherSandyardIsAProvider(t *testing.T) {
	t.Parallel()
	vendor := newRig(t)
	var edge struct{ Addr string }
	decode(t, "{"+vendor.api.Line(&vendor.api.Stderr, `"msg":"edge listens",`), &edge)
	vendor.provides(t, "e2b", object{"setup": object{"script": "echo two >prepared"}},
		"E2B_API_KEY", vendor.key, "E2B_API_URL", "http://"+vendor.address, "E2B_SANDBOX_URL", "http://"+edge.Addr)
}

// TestAnotherSandyardIsADaytona does the same with the provider daytona, and clones a repository there with a secret.
func TestAnotherSandyardIsADaytona(t *testing.T) {
	t.Parallel()
	from := newOrigin(t)
	vendor := newRig(t, "EGRESS_ALLOW_CIDRS", "127.0.0.2/31")
	vendor.call("PUT", "/v1/templates/tools", object{ // the repository is no part of what is open to all
		"image": "sandyard/python:default", "egress": object{"allow": from.hosts},
	}).want(t, 200)
	vendor.provides(t, "daytona", object{
		"network": true, "git": object{"url": from.url + "/tools.git", "secret": "GIT"},
		"setup": object{"script": "cat tools/hello >prepared"},
	}, "DAYTONA_API_KEY", vendor.key, "DAYTONA_SERVER_URL", "http://"+vendor.address+"/daytona/api", "DAYTONA_SNAPSHOT", "tools")
}

// provides runs an installation whose only provider has this one in the vendor's place. What is to be prepared in the first
// sandbox there leaves a file.
func (r *rig) provides(t *testing.T, provider string, wish object, settings ...string) {
	t.Helper()
	vendor := r
	r = newRig(t, append(settings, "SANDBOX_PROVIDER", provider, "SECRETS_KEY", vault.NewKey(),
		"RECONCILE_EVERY", "300ms", "RECONCILE_GRACE", "1s")...)
	r.call("PUT", "/v1/secrets/GIT", object{"value": gitToken}).want(t, 200)

	wish["labels"], wish["env"], wish["timeout_seconds"] = object{"of": "test"}, object{"GREETING": "hello"}, 600
	box := r.created(wish).ID
	if b := r.sandbox(box); b.Provider != provider || len(vendor.living()) != 1 {
		t.Fatalf("the sandbox is of %q, and %d live there", b.Provider, len(vendor.living()))
	}
	if j := r.end(r.start(box, "cat prepared; echo $GREETING; echo aside >&2; exit 3")).succeeded(t); j.Stdout != "two\nhello\n" || j.Stderr != "aside\n" || j.Result.ExitCode != 3 {
		t.Errorf("a command there: %s", j)
	}
	r.file(box, "write", object{"path": "a/b.txt", "content": "one two"}).succeeded(t)
	r.file(box, "edit", object{"path": "a/b.txt", "edits": []object{{"old_string": "two", "new_string": "three"}}}).succeeded(t)
	if j := r.file(box, "read", object{"path": "a/b.txt"}); j.Content != "one three" {
		t.Errorf("the file holds %q", j.Content)
	}
	before := vendor.living()[0].end()
	r.end(r.submit("/v1/sandboxes/"+box+"/timeout", object{"timeout_seconds": 3000}).Job).succeeded(t)
	testenv.Eventually(t, "it lives as long there", func() bool { return vendor.living()[0].end().After(before.Add(30 * time.Minute)) })
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

// end is when a sandbox ends by itself.
func (b sandbox) end() time.Time {
	if b.DiesAt != nil {
		return *b.DiesAt
	}
	return b.ExpiresAt
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
