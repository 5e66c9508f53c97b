package e2e_test

import (
	"encoding/base64"
	"encoding/hex"
	"os/exec"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"sandyard/dev/testenv"
)

// gitServer hands out what is below its directory to one user.
const gitServer = `
import base64, http.server
class H(http.server.SimpleHTTPRequestHandler):
    def do_GET(self):
        if self.headers.get("Authorization") != "Basic " + base64.b64encode(open("login", "rb").read()).decode():
            self.send_response(401)
            self.send_header("WWW-Authenticate", "Basic")
            self.send_header("Content-Length", "0")
            return self.end_headers()
        super().do_GET()
http.server.ThreadingHTTPServer(("127.0.0.1", 8418), H).serve_forever()
`

// TestDaytonasGitLogin: git gets a login by Daytona's contract, which then is in no row, log or answer, nor in the
// sandbox.
func TestDaytonasGitLogin(t *testing.T) {
	t.Parallel()
	const user, token = "anna-5e1f", "hunter2-0c7d41"
	r := newRig(t)
	box := r.created(object{}).ID
	r.exec(box, `git init -q -b main repo && cd repo && git config user.name a && git config user.email a@example.com &&
		git commit -q --allow-empty -m first && git clone -q --bare . ../served.git &&
		git -C ../served.git update-server-info`).succeeded(t)
	// The server learns the login in pieces, so that no job has it.
	r.exec(box, "printf %s%s:%s%s "+user[:3]+" "+user[3:]+" "+token[:5]+" "+token[5:]+" >login").succeeded(t)
	r.exec(box, gitServer, object{"command": nil, "argv": []string{"python3", "-c", gitServer}, "background": true})
	testenv.Eventually(t, "the repository is served", func() bool {
		return strings.Contains(r.exec(box, "cat /proc/net/tcp").Stdout, ":20E2")
	})
	git := "/daytona/toolbox/" + box + "/git"
	var answers []string
	ask := func(path string, body object, status int) string {
		t.Helper()
		a := r.call("POST", git+path, body).want(t, status)
		answers = append(answers, string(a.raw))
		return string(a.raw)
	}
	// A home directory of the sandbox's variables is not where the API writes.
	r.call("PATCH", "/v1/sandboxes/"+box+"/env?wait=30s", object{"env": object{"HOME": "/tmp"}}).want(t, 200)
	clone := object{"url": "http://127.0.0.1:8418/served.git", "path": "copy", "username": user, "password": token}
	ask("/clone", clone, 200)
	ask("/pull", object{"path": "copy", "username": user, "password": token}, 200)
	clone["path"], clone["password"] = "other", token+"x"
	if text := ask("/clone", clone, 401); !strings.Contains(text, "GIT_AUTH_FAILED") {
		t.Errorf("a wrong password is answered %s", text)
	}
	clone["password"] = token + "\n"
	ask("/clone", clone, 400)
	if log := r.exec(box, "git -C copy log --format=%s").succeeded(t).Stdout; log != "first\n" {
		t.Errorf("the clone has %q", log)
	}
	left := r.exec(box, `cat /tmp/.daytona-logins/* copy/.git/config ~/.git* 2>/dev/null; cat /proc/[0-9]*/environ`).Stdout
	if strings.Contains(left, token[:7]) {
		t.Errorf("the login stays in the sandbox: %q", left)
	}
	places := map[string]string{"the answers": strings.Join(answers, "\n"), "Redis": r.redisDump()}
	dump, err := exec.Command("pg_dump", "--inserts", "--dbname", r.settings["DATABASE_URL"]).Output()
	check(t, err)
	if places["the database"] = string(dump); !strings.Contains(string(dump), "served.git") {
		t.Error("the dump does not have the repository's URL: what does it show?")
	}
	r.each(func(p *process) { places["the log of "+p.Name] = p.Stderr.String() })
	for place, text := range places {
		for _, secret := range []string{user, token} {
			coded := base64.StdEncoding.EncodeToString([]byte(secret))[:12]
			for _, form := range []string{secret, hex.EncodeToString([]byte(secret)), coded} {
				if strings.Contains(text, form) {
					t.Errorf("%s is in %s", form, place)
				}
			}
		}
	}
	r.clean()
}

// redisDump is all that stands in Redis.
func (r *rig) redisDump() string {
	r.t.Helper()
	options, err := redis.ParseURL(r.settings["REDIS_URL"])
	check(r.t, err)
	rdb := redis.NewClient(options)
	defer rdb.Close()
	var all strings.Builder
	keys := rdb.Scan(r.t.Context(), 0, "*", 0).Iterator()
	for keys.Next(r.t.Context()) {
		text, err := rdb.Dump(r.t.Context(), keys.Val()).Result()
		if err != nil && err != redis.Nil { //nolint:errorlint // it is never wrapped
			r.t.Fatal(err)
		}
		all.WriteString(keys.Val() + " " + text + "\n")
	}
	check(r.t, keys.Err())
	return all.String()
}
