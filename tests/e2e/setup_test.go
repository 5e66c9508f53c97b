package e2e_test

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"sandyard/dev/testenv"
	"sandyard/vault"
)

// origin serves a repository to whoever has the token, and a file that appears when open is called.
type origin struct {
	url    string
	hosts  []string // its own, and that of a server to which /moved/ leads
	commit string
	open   func()
}

const gitToken = "tok-5f3a9c"

func newOrigin(t *testing.T) origin {
	t.Helper()
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip("skipped: this machine has no git to make a repository with")
	}
	dir := t.TempDir()
	git := func(args ...string) string {
		cmd := exec.Command("git", append([]string{"-C", dir, "-c", "user.name=a", "-c", "user.email=a@b.test", "-c", "init.defaultBranch=main"}, args...)...)
		cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null")
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("git %v: %v: %s", args, err, out)
		}
		return strings.TrimSpace(string(out))
	}
	git("init", "-q", "work")
	for _, text := range []string{"one\n", "two\n"} {
		must(t, os.WriteFile(filepath.Join(dir, "work", "hello"), []byte(text), 0o600))
		git("-C", "work", "add", "hello")
		git("-C", "work", "commit", "-q", "-m", text)
		if text == "one\n" {
			git("-C", "work", "tag", "v1")
		}
	}
	o := origin{commit: git("-C", "work", "rev-parse", "HEAD")}
	git("clone", "-q", "--bare", "work", "tools.git")
	git("-C", "tools.git", "update-server-info")
	opened := make(chan struct{})
	o.open = sync.OnceFunc(func() { close(opened) })
	files := http.FileServer(http.Dir(dir))
	l, err := net.Listen("tcp", "127.0.0.2:0") // programs in sandboxes go straight to 127.0.0.1, which is their own
	must(t, err)
	elsewhere, err := net.Listen("tcp", "127.0.0.3:0")
	must(t, err)
	srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if rest, ok := strings.CutPrefix(r.URL.Path, "/moved/"); ok {
			http.Redirect(w, r, "http://"+elsewhere.Addr().String()+"/"+rest+"?"+r.URL.RawQuery, http.StatusFound)
			return
		}
		if r.Host == elsewhere.Addr().String() {
			if _, password, _ := r.BasicAuth(); password != "" {
				t.Errorf("another server was sent %q", password)
			}
		}
		if r.URL.Path == "/open" {
			select {
			case <-opened:
				fmt.Fprint(w, "open")
			default:
				http.NotFound(w, r)
			}
			return
		}
		if user, password, _ := r.BasicAuth(); user != "x-access-token" || password != gitToken {
			w.Header().Set("WWW-Authenticate", `Basic realm="tools"`)
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		files.ServeHTTP(w, r)
	})}
	go func() { _ = srv.Serve(l) }()
	go func() { _ = srv.Serve(elsewhere) }()
	t.Cleanup(func() { _ = srv.Close() })
	o.url, o.hosts = "http://"+l.Addr().String(), []string{l.Addr().String(), elsewhere.Addr().String()}
	return o
}

// TestSandboxesArePrepared clones a repository with a secret and runs a script before anybody uses a sandbox. What they write can
// be followed, also over the death of the worker; nothing runs twice, and a failure fails the create.
func TestSandboxesArePrepared(t *testing.T) {
	t.Parallel()
	from := newOrigin(t)
	r := newRig(t, "SECRETS_KEY", vault.NewKey(), "EGRESS_ALLOW_CIDRS", "127.0.0.2/31")
	r.call("PUT", "/v1/secrets/GIT", object{"value": gitToken}).want(t, 200)
	egress := object{"allow": from.hosts}
	setup := func(script string) object { return object{"script": script, "env": object{"WHO": "me"}} }

	box := r.created(object{
		"egress": egress, "git": object{"url": from.url + "/tools.git", "ref": "v1", "secret": "GIT"},
		"setup": setup("cat tools/hello > made; echo ready for $WHO; echo aside >&2"),
	}).ID
	if log := r.setupLog(box); !strings.Contains(log, "Cloning into 'tools'") || !strings.HasSuffix(log, "ready for me\naside\n") {
		t.Errorf("the log is %q", log)
	}
	out := r.end(r.start(box, "cat made; env; git -C tools config --list; cat tools/.git/config; cat /proc/[0-9]*/environ 2>/dev/null")).succeeded(t).Stdout
	if !strings.HasPrefix(out, "one\n") || strings.Contains(out, gitToken) || strings.Contains(out, "WHO=me") {
		t.Errorf("in the sandbox: %s", out)
	}

	at := r.created(object{
		"egress": egress, "git": object{"url": from.url + "/tools.git", "ref": from.commit, "path": "src/t", "secret": "GIT"},
	}).ID
	if out := r.end(r.start(at, "cat src/t/hello; git -C src/t rev-parse HEAD")).succeeded(t).Stdout; out != "two\n"+from.commit+"\n" {
		t.Errorf("the commit's content is %q", out)
	}

	for code, wish := range map[string]object{
		"exit code 3: no luck": {"setup": setup("echo no luck; exit 3")},
		"exit code 128":        {"egress": egress, "git": object{"url": from.url + "/nothing.git", "secret": "GIT"}},
		"exit code 128: ":      {"egress": egress, "git": object{"url": from.url + "/moved/tools.git", "secret": "GIT"}},
		"within 1s":            {"setup": object{"script": "sleep 100", "timeout_seconds": 1}},
	} {
		j := r.end(r.submit("/v1/sandboxes", wish).Job)
		if j.State != "failed" || j.Error == nil || j.Error.Code != "setup_failed" || !strings.Contains(j.Error.Message, code) {
			t.Errorf("%v: %s", wish, j)
		}
		if state := r.sandbox(j.SandboxID).State; state != "failed" {
			t.Errorf("%v: the sandbox is %s", wish, state)
		}
	}
	r.preparedOverADeath(from, egress)
	r.clean()
}

// preparedOverADeath kills the worker while a script runs.
func (r *rig) preparedOverADeath(from origin, egress object) {
	t := r.t
	t.Helper()
	made := r.submit("/v1/sandboxes", object{"egress": egress, "setup": object{"script": fmt.Sprintf(`echo begun
		until python3 -c 'import urllib.request as u; u.urlopen("%s/open")' 2>/dev/null; do sleep 0.1; done; echo done`, from.url)}})
	testenv.Eventually(t, "the script has begun", func() bool { return r.setupLog(made.Sandbox.ID) == "begun\n" })
	r.worker.Kill()
	r.startWorker()
	from.open()
	if j := r.end(made.Job).succeeded(t); j.Attempt < 2 {
		t.Errorf("it took no second attempt: %s", j)
	}
	log, state := r.followed(made.Sandbox.ID)
	if whole := r.setupLog(made.Sandbox.ID); log != "begun\ndone\n" || log != whole || state != "running" {
		t.Errorf("the log is %q, whoever follows is told %q and %s", whole, log, state)
	}
}

// setupLog reads what prepared a sandbox.
func (r *rig) setupLog(box string) string {
	r.t.Helper()
	return r.call("GET", "/v1/sandboxes/"+box+"/setup-log", nil).want(r.t, 200).raw
}

// followed is what somebody is told who follows it until the sandbox has been made.
func (r *rig) followed(box string) (log, state string) {
	r.t.Helper()
	for event := range strings.SplitSeq(r.call("GET", "/v1/sandboxes/"+box+"/setup-log?follow=true", nil).want(r.t, 200).raw, "\n\n") {
		_, data, _ := strings.Cut(event, "data: ")
		switch {
		case strings.Contains(event, "event: log"):
			var piece string
			decode(r.t, data, &piece)
			log += piece
		case strings.Contains(event, "event: end"):
			var end struct{ State string }
			decode(r.t, data, &end)
			state = end.State
		}
	}
	return log, state
}
