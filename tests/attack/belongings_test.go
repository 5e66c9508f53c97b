//go:build attack

package attack

import (
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"strings"
	"testing"
	"time"
)

// belongings are what the neighbour owns.
type belongings struct {
	ids   map[string][]string // by what stands before them in a path
	image string              // of its own build
	state func(t *testing.T) string
}

func (o *belongings) add(what string, ids ...string) { o.ids[what] = append(o.ids[what], ids...) }

// settle gives the neighbour one of everything, each with a marker in it.
func (n *neighbour) settle() {
	t, mark := n.rig.t, n.rig.markers.of
	n.owns = belongings{ids: map[string][]string{}}
	n.heart = n.box(t, object{"memory_mb": 128, "disk_mb": 32, "timeout_seconds": 3600})
	made := into[accepted](t, n.post("/v1/sandboxes?wait=60s", object{
		"key": mark("key"), "labels": object{"team": mark("label"), "user": mark("user")}, "env": object{"SECRET": mark("env")},
		"memory_mb": 128, "disk_mb": 32,
	}))
	box := made.Sandbox.ID
	n.owns.add("sandboxes", box, n.heart)
	n.owns.add("sandbox", box) // of Daytona's API
	n.owns.add("toolbox", box)
	n.owns.add("jobs", made.Job.ID)
	n.work(box)
	n.open(box)
	n.plan(box)
	n.build()
	n.owns.add("keys", into[struct {
		Keys []struct{ ID string }
	}](t, n.get("/v1/keys")).Keys[0].ID)
	who := n.post("/v1/users", object{"name": mark("person"), "password": mark("password"), "role": "admin"})
	n.owns.add("users", into[struct{ ID string }](t, who).ID)
	n.owns.add("tenants", "default")
	if a := n.do(request{method: "PUT", path: "/v1/secrets/token", body: object{"value": mark("token")}}); !a.ok() {
		t.Errorf("write a secret: %v", a)
	}
	n.owns.add("secrets", "token")
	n.owns.state = func(t *testing.T) string { return n.fingerprint(t, box) }
	for _, what := range []string{
		"files", "nodes", "grant", "port", "processes", "session", "command", "signed-preview-url",
		"autostop", "autopause", "autodelete", "ttl",
	} {
		n.owns.ids[what] = append(n.owns.ids[what], "nothing")
	}
	n.rig.mustKnow(t)
}

// work leaves files, output and programs that run.
func (n *neighbour) work(box string) {
	t, mark := n.rig.t, n.rig.markers.of
	at := "/v1/sandboxes/" + box
	for path, body := range map[string]object{
		"/files/write": {"path": "secret.txt", "content": mark("file")},
		"/exec":        {"command": "echo " + mark("stdout") + "; echo " + mark("stderr") + " >&2; cat secret.txt"},
	} {
		out := into[accepted](t, n.post(at+path+"?wait=60s", body))
		n.owns.add("jobs", out.Job.ID)
	}
	back := into[accepted](t, n.post(at+"/exec?wait=60s", object{"command": "echo " + mark("background") + "; sleep 3000", "background": true}))
	n.owns.add("jobs", back.Job.ID)
	n.owns.add("execs", back.Job.ID)
	context := into[accepted](t, n.post(at+"/code/contexts?wait=60s", object{"language": "python"}))
	if id, ok := context.Job.Result["id"].(string); ok {
		n.owns.add("contexts", id)
	} else if id, ok := context.Job.Result["context"].(string); ok {
		n.owns.add("contexts", id)
	} else {
		t.Errorf("a context has no id: %v", context.Job.Result)
	}
}

// open opens a port.
func (n *neighbour) open(box string) {
	t := n.rig.t
	answer := n.post("/v1/sandboxes/"+box+"/ports", object{"port": 8000})
	if !answer.ok() {
		t.Errorf("open a port: %v", answer)
	}
	n.owns.add("ports", "8000")
}

// plan leaves templates and schedules.
func (n *neighbour) plan(box string) {
	t, mark := n.rig.t, n.rig.markers.of
	name := "vault" + strings.ToLower(rand.Text()[:6])
	if a := n.do(request{method: "PUT", path: "/v1/templates/" + name, body: object{"image": image, "env": object{"SECRET": mark("template")}}}); !a.ok() {
		t.Errorf("make a template: %v", a)
	}
	n.owns.add("templates", name)
	answer := n.post("/v1/schedules", object{
		"name": mark("schedule"), "interval_seconds": 86400,
		"job": object{"sandbox_id": box, "kind": "exec", "args": object{"command": "echo " + mark("plan")}},
	})
	n.owns.add("schedules", into[struct{ ID string }](t, answer).ID)
}

// build makes an image with a secret in it.
func (n *neighbour) build() {
	t, mark := n.rig.t, n.rig.markers.of
	name := "built" + strings.ToLower(rand.Text()[:6])
	answer := n.post("/v1/templates/"+name+"/builds?wait=100s", object{
		"dockerfile": "FROM " + image + "\nENV SECRET=" + mark("imageenv") + "\nCOPY s.txt /opt/secret.txt\nRUN echo " + mark("log") + "\n",
		"files":      []object{{"path": "s.txt", "content": base64.StdEncoding.EncodeToString([]byte(mark("image"))), "encoding": "base64"}},
		"memory_mb":  256, "disk_mb": 64,
	})
	out := into[accepted](t, answer)
	if j := n.end(t, out.Job.ID); j.State != "succeeded" {
		t.Fatalf("the neighbour's build: %v", j)
	}
	n.owns.add("jobs", out.Job.ID)
	n.owns.add("templates", name)
	page := into[struct {
		Builds []struct{ ID, Image string }
	}](t, n.get("/v1/templates/"+name+"/builds"))
	n.owns.add("builds", page.Builds[0].ID)
	n.owns.image = page.Builds[0].Image
}

// fingerprint is what must not have changed by an attack.
func (n *neighbour) fingerprint(t *testing.T, box string) string {
	t.Helper()
	var b strings.Builder
	file := into[accepted](t, n.post("/v1/sandboxes/"+box+"/files/read?wait=30s", object{"path": "secret.txt"}))
	fmt.Fprintln(&b, "file:", n.end(t, file.Job.ID).Content)
	for _, id := range n.owns.ids["sandboxes"] {
		fmt.Fprintln(&b, id, n.get("/v1/sandboxes/"+id).text("state"))
	}
	exec := n.owns.ids["execs"][0]
	fmt.Fprintln(&b, "exec:", n.get("/v1/sandboxes/"+box+"/execs/"+exec).text("state"))
	for _, name := range n.owns.ids["templates"] {
		a := n.get("/v1/templates/" + name)
		fmt.Fprintln(&b, "template:", name, a.status, a.text("image"))
	}
	for _, id := range n.owns.ids["schedules"] {
		a := n.get("/v1/schedules/" + id)
		fmt.Fprintln(&b, "schedule:", a.status, a.text("state"))
	}
	fmt.Fprintln(&b, "user:", n.get("/v1/users/"+n.owns.ids["users"][0]).text("role"))
	fmt.Fprintln(&b, "secrets:", n.get("/v1/secrets").head)
	ports := n.get("/v1/sandboxes/" + box + "/ports")
	fmt.Fprintln(&b, "ports:", ports.status, strings.Count(ports.head, "8000") > 0)
	return b.String()
}

// eventually waits until ok holds.
func (r *rig) eventually(t testing.TB, limit time.Duration, what string, ok func() bool) bool {
	t.Helper()
	deadline, tick := time.NewTimer(limit), time.NewTicker(20*time.Millisecond)
	defer deadline.Stop()
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-deadline.C:
			t.Errorf("waited %v in vain: %s", limit, what)
			return false
		}
	}
	return true
}

// count answers a question for a number.
func (r *rig) count(t testing.TB, question string, args ...any) int {
	t.Helper()
	var n int
	must(t, r.db.QueryRow(t.Context(), question, args...).Scan(&n))
	return n
}
