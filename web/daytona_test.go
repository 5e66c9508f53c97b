package web_test

import (
	"bytes"
	"encoding/json"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/getkin/kin-openapi/openapi3"

	"sandyard/jobs"
	"sandyard/tokens"
	"sandyard/web"
)

const (
	daytonaBoxes   = "/daytona/api/sandbox"
	daytonaToolbox = "/daytona/toolbox/"
)

// newDaytona is a rig with a worker, its gateway and an edge's address.
func newDaytona(t *testing.T) *rig {
	t.Helper()
	r := newRig(t, func(c *web.Config) { c.Address = tokens.Address{Scheme: "http", Domain: "sandboxes.example"} })
	r.workWithGateway(tokens.New("secret"), r.provider, "here")
	return r
}

// daytonaDoc reads Daytona's schemas once. A field that a schema does not know is an error.
var daytonaDoc = sync.OnceValues(func() (openapi3.Schemas, error) { //nolint:gochecknoglobals // a constant
	doc, err := openapi3.NewLoader().LoadFromFile("testdata/daytona/operations.json")
	if err != nil {
		return nil, err
	}
	for _, s := range doc.Components.Schemas {
		if s.Value.AdditionalProperties.Has == nil && s.Value.AdditionalProperties.Schema == nil && len(s.Value.Properties) > 0 {
			s.Value.AdditionalProperties.Has = openapi3.Ptr(false)
		}
	}
	return doc.Components.Schemas, nil
})

// daytona checks that an answer has a status and is what a schema of Daytona's says. A name in brackets is a list.
func (a answer) daytona(t *testing.T, status int, schema string) answer {
	t.Helper()
	if err := a.follows(schema); a.status != status || err != nil {
		t.Errorf("answered %d %s, want %d %s: %v", a.status, a.raw, status, schema, err)
	}
	return a
}

func (a answer) follows(schema string) error {
	all, err := daytonaDoc()
	if err != nil {
		return err
	}
	var body any
	if err := json.Unmarshal([]byte(a.raw), &body); err != nil {
		return err
	}
	one := all[strings.Trim(schema, "[]")].Value
	if strings.HasPrefix(schema, "[") {
		one = openapi3.NewArraySchema().WithItems(one)
	}
	return one.VisitJSON(body, openapi3.VisitAsResponse())
}

// refusedByAPI and refusedByToolbox check errors in the shapes of Daytona's two parts.
func (a answer) refusedByAPI(t *testing.T, status int, part string) {
	t.Helper()
	if a.status != status || a.get("statusCode") != float64(status) || !strings.Contains(a.text("message"), part) ||
		a.text("error") != http.StatusText(status) || a.text("path") == "" || a.text("timestamp") == "" || len(a.body) != 5 {
		t.Errorf("answered %d %s, want %d with %q", a.status, a.raw, status, part)
	}
}

func (a answer) refusedByToolbox(t *testing.T, status int, code, part string) {
	t.Helper()
	delete(a.body, "error") // which the schema does not know, and older clients read
	raw, _ := json.Marshal(a.body)
	a.raw = string(raw)
	a.daytona(t, status, "ToolboxErrorResponse")
	if a.text("code") != code || !strings.Contains(a.text("message"), part) {
		t.Errorf("answered %s, want %s with %q", a.raw, code, part)
	}
}

func TestDaytonaSandboxes(t *testing.T) {
	t.Parallel()
	r := newDaytona(t)
	create := map[string]any{
		"name": "first", "labels": map[string]any{"code-toolbox-language": "python"}, "env": map[string]any{"A": "b"}, "autoStopInterval": 30,
		"autoDeleteInterval": 60, "networkAllowList": "198.51.100.0/24", "domainAllowList": "example.com, *.example.org", "ttlMinutes": 600, "disk": 2,
	}
	box := r.call("POST", daytonaBoxes, create).daytona(t, 200, "Sandbox")
	id := box.text("id")
	for field, want := range map[string]any{
		"name": "first", "state": "started", "autoStopInterval": 30.0, "autoDeleteInterval": 60.0, "networkAllowList": "198.51.100.0/24",
		"domainAllowList": "example.com,*.example.org", "env.A": "b", "disk": 2.0, "toolboxProxyUrl": r.url + "/daytona/toolbox", "networkBlockAll": false,
	} {
		if box.get(field) != want {
			t.Errorf("%s is %v, want %v: %s", field, box.get(field), want, box.raw)
		}
	}
	one := daytonaBoxes + "/first"
	if got := r.call("GET", one, nil).daytona(t, 200, "Sandbox"); got.text("id") != id {
		t.Errorf("by name: %s", got.raw)
	}
	r.call("POST", daytonaBoxes, create).refusedByAPI(t, 409, "exists already")
	r.call("PUT", one+"/labels", map[string]any{"labels": map[string]any{"team": "a"}}).daytona(t, 200, "SandboxLabels")
	second := r.call("POST", daytonaBoxes, map[string]any{"labels": map[string]any{"team": "a"}, "networkBlockAll": true}).daytona(t, 200, "Sandbox")
	if second.text("name") != second.text("id") || second.get("autoStopInterval") != 15.0 || second.get("networkBlockAll") != true ||
		second.get("disk") != 0.25 {
		t.Errorf("without a name: %s", second.raw)
	}
	page := r.call("GET", daytonaBoxes+`?labels={"team":"a"}&limit=1`, nil).daytona(t, 200, "ListSandboxesResponse")
	if page.text("nextCursor") != second.text("id") {
		t.Fatalf("first page: %s", page.raw)
	}
	page = r.call("GET", daytonaBoxes+`?limit=1&states=started&cursor=`+page.text("nextCursor"), nil).daytona(t, 200, "ListSandboxesResponse")
	if !strings.Contains(page.raw, id) || !strings.Contains(page.raw, `"nextCursor":null`) || !strings.Contains(page.raw, `"team":"a"`) {
		t.Errorf("second page: %s", page.raw)
	}
	r.call("POST", one+"/autostop/0", nil).daytona(t, 200, "Sandbox")
	if got := r.call("POST", one+"/autodelete/-1", nil).daytona(t, 200, "Sandbox"); got.get("autoStopInterval") != 0.0 || got.get("autoDeleteInterval") != -1.0 {
		t.Errorf("never: %s", got.raw)
	}
	r.call("POST", one+"/last-activity", nil).want(t, 201)
	r.call("GET", one+"/ports/3000/preview-url", nil).refusedByAPI(t, 400, "no edge")
	r.call("POST", one+"/ports/3000/signed-preview-url/wrong/expire", nil).refusedByAPI(t, 400, "not a valid token")
	r.call("GET", one+"/toolbox-proxy-url", nil).daytona(t, 200, "ToolboxProxyUrl")
	if got := r.call("POST", one+"/stop", nil).daytona(t, 200, "Sandbox"); got.text("state") != "stopped" {
		t.Errorf("stopped: %s", got.raw)
	}
	r.call("POST", daytonaToolbox+id+"/process/execute", map[string]any{"command": "x"}).refusedByToolbox(t, 409, "CONFLICT", "stopped; start it first")
	if got := r.call("POST", one+"/start", nil).daytona(t, 200, "Sandbox"); got.text("state") != "started" {
		t.Errorf("started: %s", got.raw)
	}
	if got := r.call("DELETE", one, nil).daytona(t, 200, "Sandbox"); got.text("state") != "destroyed" {
		t.Errorf("deleted: %s", got.raw)
	}
	r.call("GET", daytonaBoxes+"/"+id, nil).refusedByAPI(t, 404, "no such sandbox")
}

// TestDaytonaLives: a time to live counts from now on, also while the sandbox is stopped, and is no longer than the operator's.
func TestDaytonaLives(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(c *web.Config) {
		c.Jobs = jobs.NewClient(c.Store, c.Queue, jobs.Catalog{
			Providers: []string{"fake"}, Templates: map[string]string{"python": "fake-python"}, Template: "python",
			Lifetime: jobs.Span{Most: 2 * time.Hour},
		}, c.Log)
	})
	r.work()
	one := daytonaBoxes + "/" + r.call("POST", daytonaBoxes, map[string]any{"ttlMinutes": 60}).daytona(t, 200, "Sandbox").text("id")
	left := func(path string) time.Duration {
		t.Helper()
		a := r.call("POST", one+path, nil).daytona(t, 200, "Sandbox")
		return time.Until(must(time.Parse(time.RFC3339, a.text("autoDestroyAt")))(t)).Round(10 * time.Minute)
	}
	for _, c := range []struct {
		path string
		want time.Duration
	}{{"/ttl/90", 90 * time.Minute}, {"/ttl/10", 10 * time.Minute}, {"/stop", 10 * time.Minute}, {"/ttl/30", 30 * time.Minute}, {"/ttl/600", 2 * time.Hour}, {"/ttl/0", 2 * time.Hour}} {
		if got := left(c.path); got != c.want {
			t.Errorf("after %s it lives for %v, want %v", c.path, got, c.want)
		}
	}
	r.call("POST", one+"/ttl/-1", nil).refusedByAPI(t, 400, "negative")
	r.call("POST", one+"/ttl/soon", nil).refusedByAPI(t, 400, "whole number")
	r.call("POST", daytonaBoxes+"/nobody/ttl/1", nil).refusedByAPI(t, 404, "no such sandbox")

	free := newDaytona(t)
	one = daytonaBoxes + "/" + free.call("POST", daytonaBoxes, map[string]any{"ttlMinutes": 60}).text("id")
	if a := free.call("POST", one+"/ttl/0", nil).daytona(t, 200, "Sandbox"); a.get("autoDestroyAt") != nil {
		t.Errorf("without an end: %s", a.raw)
	}
	for _, minutes := range []int64{200_000_000, 307_445_735, 1<<31 - 1} { // more than a time.Duration holds
		free.call("POST", one+"/ttl/"+strconv.FormatInt(minutes, 10), nil).refusedByAPI(t, 400, "525600")
		free.call("POST", daytonaBoxes, map[string]any{"ttlMinutes": minutes}).refusedByAPI(t, 400, "31536000")
	}
}

func TestDaytonaRefuses(t *testing.T) {
	t.Parallel()
	r := newDaytona(t)
	for part, body := range map[string]map[string]any{
		"volumes is not supported":        {"volumes": []any{map[string]any{"volumeId": "v"}}},
		"secrets is not supported":        {"secrets": []any{map[string]any{"A": "b"}}},
		"gpu is not supported":            {"gpu": 1},
		"a user other than user":          {"user": "root"},
		"build a template with POST":      {"buildInfo": map[string]any{"dockerfileContent": "FROM a\nRUN b\n"}},
		"between 0 and 1440":              {"autoStopInterval": 1441},
		"ttlMinutes must not be negative": {"ttlMinutes": -1},
		"snapshot":                        {"snapshot": "unheard-of"},
		"body.cpu must be a whole number": {"cpu": "many"},
		"networkAllowList":                {"networkAllowList": "no address"},
	} {
		a := r.call("POST", daytonaBoxes, body)
		if a.status != 404 {
			a.refusedByAPI(t, 400, part)
		} else {
			a.refusedByAPI(t, 404, part)
		}
	}
	if rows := r.rows(); rows != "0 sandboxes, 0 jobs" {
		t.Errorf("refused requests left %s", rows)
	}
	r.call("GET", daytonaBoxes, nil, "Authorization", "Bearer wrong").refusedByAPI(t, 401, "unknown or revoked")
	r.call("GET", daytonaBoxes+"?minCpu=1", nil).refusedByAPI(t, 400, "filter minCpu")
	r.call("GET", daytonaBoxes+"?labels=x", nil).refusedByAPI(t, 400, "JSON object")
	r.call("GET", daytonaBoxes+"?limit=201", nil).refusedByAPI(t, 400, "between 1 and 200")
	r.call("GET", daytonaBoxes+"?states=archived", nil).refusedByAPI(t, 400, "creating, started or stopped")
	r.call("GET", "/daytona/api/volumes", nil).refusedByAPI(t, 501, "does not offer")
	r.call("POST", daytonaBoxes+"/nobody/start", nil).refusedByAPI(t, 404, "no such sandbox")
	id := r.call("POST", daytonaBoxes, nil).want(t, 200).text("id")
	r.call("POST", daytonaBoxes+"/"+id+"/autostop/soon", nil).refusedByAPI(t, 400, "whole number")
	r.call("GET", daytonaBoxes+"/"+id+"/ports/70000/preview-url", nil).refusedByAPI(t, 400, "65535")
	r.call("GET", daytonaBoxes+"/"+id+"/ports/80/signed-preview-url?expiresInSeconds=86401", nil).refusedByAPI(t, 400, "86400")
	box := daytonaToolbox + id
	r.call("POST", box+"/process/execute", map[string]any{}).refusedByToolbox(t, 400, "BAD_REQUEST", "command")
	r.call("POST", box+"/process/execute", map[string]any{"command": "x", "timeout": 3601}).refusedByToolbox(t, 400, "BAD_REQUEST", "3600")
	r.call("POST", box+"/process/code-run", map[string]any{"code": "x", "language": "typescript"}).refusedByToolbox(t, 400, "BAD_REQUEST", "typescript")
	r.call("POST", box+"/process/session", map[string]any{"sessionId": "../x"}).refusedByToolbox(t, 400, "BAD_REQUEST", "sessionId")
	r.call("GET", box+"/process/session/..;x", nil).refusedByToolbox(t, 404, "NOT_FOUND", "no such session")
	r.call("GET", box+"/files/info?path=nothing", nil).refusedByToolbox(t, 404, "FILE_NOT_FOUND", "")
	r.call("GET", box+"/files/info", nil).refusedByToolbox(t, 400, "BAD_REQUEST", "query.path is missing")
	r.call("POST", box+"/files/bulk-upload", map[string]any{}).refusedByToolbox(t, 400, "BAD_REQUEST", "multipart/form-data")
	clone := map[string]any{"url": "https://example.com/a.git", "path": "a", "username": "u", "password": "p\nquit=1"}
	r.call("POST", box+"/git/clone", clone).refusedByToolbox(t, 400, "BAD_REQUEST", "one line")
	r.call("GET", box+"/process/pty", nil).refusedByToolbox(t, 501, "INTERNAL_SERVER_ERROR", "does not offer")
	r.call("GET", daytonaToolbox+"nobody/files/info?path=x", nil).refusedByToolbox(t, 404, "NOT_FOUND", "no such sandbox")
}

// TestDaytonaFiles: what a form holds is what comes back, and one wrong file of many spoils no other.
func TestDaytonaFiles(t *testing.T) {
	t.Parallel()
	r := newDaytona(t)
	box := daytonaToolbox + r.call("POST", daytonaBoxes, nil).want(t, 200).text("id")
	var body bytes.Buffer
	form := multipart.NewWriter(&body)
	for file, path := range map[string]string{"files[0]": "dir/a", "files[1]": "/etc/shadow"} {
		check(t, form.WriteField(file+".path", path))
		part := must(form.CreateFormFile(file+".file", path))(t)
		must(part.Write([]byte{0, 255, 'x'}))(t)
	}
	check(t, form.Close())
	r.call("POST", box+"/files/bulk-upload", body.String(), "Content-Type", form.FormDataContentType()).
		refusedByToolbox(t, 400, "BAD_REQUEST", "/etc/shadow: ")
	r.call("GET", box+"/files/info?path=dir/a", nil).daytona(t, 200, "ToolboxFileInfo")
	r.call("GET", box+"/files?path=dir", nil).daytona(t, 200, "[ToolboxFileInfo]")
	if a := r.call("GET", box+"/files/download?path=dir/a", nil).want(t, 200); a.raw != "\x00\xffx" {
		t.Errorf("downloaded %q", a.raw)
	}
	a := r.call("POST", box+"/files/bulk-download", map[string]any{"paths": []string{"dir/a", "dir/none"}})
	_, params, err := mime.ParseMediaType(a.header.Get("Content-Type"))
	check(t, err)
	parts := multipart.NewReader(strings.NewReader(a.raw), params["boundary"])
	for _, want := range []string{"file \x00\xffx", `error {"statusCode":404`} {
		part := must(parts.NextPart())(t)
		if got := part.FormName() + " " + string(must(io.ReadAll(part))(t)); a.status != 200 || !strings.HasPrefix(got, want) {
			t.Errorf("part %d %q, want %q", a.status, got, want)
		}
	}
}

// TestDaytonaSchemasAreHeldTo: a small difference from Daytona's document is found.
func TestDaytonaSchemasAreHeldTo(t *testing.T) {
	t.Parallel()
	r := newDaytona(t)
	box := r.call("POST", daytonaBoxes, nil).daytona(t, 200, "Sandbox")
	for _, change := range [][2]string{
		{`"toolboxProxyUrl"`, `"toolboxProxyURL"`}, {`"state":"started"`, `"state":"running"`}, {`"gpu":0`, `"gpu":"0"`}, {`"labels":{}`, `"labels":null`},
	} {
		wrong := box
		if wrong.raw = strings.Replace(box.raw, change[0], change[1], 1); wrong.raw == box.raw || wrong.follows("Sandbox") == nil {
			t.Errorf("%s for %s passes in %s", change[1], change[0], box.raw)
		}
	}
}
