package web_test

import (
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"strings"
	"testing"

	"sandyard/web"
)

type badRequest struct {
	path, body string
	status     int
	code       string
	at         string // part of the detail
}

// badBodies are about JSON and about what every submission may have.
func badBodies(id string) map[string]badRequest {
	exec := "/v1/sandboxes/" + id + "/exec"
	return map[string]badRequest{
		"no body":               {exec, ``, 400, "body_missing", "JSON object"},
		"half a body":           {exec, `{"command":`, 400, "invalid_json", "byte 11"},
		"line of the mistake":   {exec, "{\n\"command\": nope}", 400, "invalid_json", "line 2"},
		"two bodies":            {exec, `{"command":"x"}{}`, 400, "invalid_json", "more than one"},
		"NaN":                   {exec, `{"command":"x","timeout_seconds":NaN}`, 400, "invalid_json", "'N'"},
		"raw control character": {exec, "{\"command\":\"a\x00b\"}", 400, "invalid_json", ""},
		"not UTF-8":             {exec, "{\"command\":\"\xff\"}", 400, "invalid_utf8", "base64"},
		"array":                 {exec, `[]`, 422, "invalid_request", "body"},
		"deep":                  {exec, strings.Repeat("[", 20000), 400, "invalid_json", ""},
		"unknown field":         {exec, `{"command":"x","tiemout":1}`, 422, "invalid_request", "body.tiemout"},
		"wrong type":            {exec, `{"command":7}`, 422, "invalid_request", "body.command"},
		"NUL in command":        {exec, `{"command":"a\u0000b"}`, 422, "invalid_request", "body.command"},
		"NUL in argv":           {exec, `{"argv":["a","b\u0000"]}`, 422, "invalid_request", "body.argv[1]"},
		"NUL in a name":         {exec, `{"command":"x","env":{"A\u0000":"b"}}`, 422, "invalid_request", "body.env"},
		"nothing to run":        {exec, `{}`, 422, "invalid_request", "body.command"},
		"command and argv":      {exec, `{"command":"x","argv":["x"]}`, 422, "invalid_request", "body.command"},
		"huge number":           {exec, `{"command":"x","timeout_seconds":1e999}`, 422, "invalid_request", "1e999"},
		"huge integer":          {exec, `{"command":"x","max_output_bytes":1e30}`, 422, "invalid_request", "max_output_bytes"},
		"half an integer":       {exec, `{"command":"x","max_output_bytes":1.5}`, 422, "invalid_request", "body.max_output_bytes"},
		"negative":              {exec, `{"command":"x","timeout_seconds":-1}`, 422, "invalid_request", "body.timeout_seconds"},
		"too long a timeout":    {exec, `{"command":"x","timeout_seconds":86401}`, 422, "invalid_request", "86400"},
		"variable's name":       {exec, `{"command":"x","env":{"A=B":"c"}}`, 422, "invalid_request", "body.env"},
		"stdin":                 {exec, `{"command":"x","stdin":"*","stdin_encoding":"base64"}`, 422, "invalid_request", "body.stdin"},
		"encoding":              {exec, `{"command":"x","stdin":"*","stdin_encoding":"rot13"}`, 422, "invalid_request", "stdin_encoding"},
		"priority":              {exec, `{"command":"x","priority":101}`, 422, "invalid_request", "body.priority"},
		"callback":              {exec, `{"command":"x","callback_url":"ftp://example.com"}`, 422, "invalid_request", "body.callback_url"},
		"callback inside":       {exec, `{"command":"x","callback_url":"http://169.254.169.254/x"}`, 422, "invalid_request", "body.callback_url"},
		"callback with a user":  {exec, `{"command":"x","callback_url":"https://a:b@example.com/"}`, 422, "invalid_request", "body.callback_url"},
		"deadline":              {exec, `{"command":"x","queue_deadline_seconds":1e300}`, 422, "invalid_request", "queue_deadline_seconds"},
		"wait":                  {exec + "?wait=121", `{"command":"x"}`, 422, "invalid_request", "query.wait"},
		"wait, no time":         {exec + "?wait=soon", `{"command":"x"}`, 422, "invalid_request", "query.wait"},
		"wait, no number":       {exec + "?wait=NaN", `{"command":"x"}`, 422, "invalid_request", "query.wait"},
		"wait, negative":        {exec + "?wait=-1s", `{"command":"x"}`, 422, "invalid_request", "query.wait"},
		"unknown sandbox":       {"/v1/sandboxes/sb0/exec", `{"command":"x"}`, 404, "not_found", ""},
		"path":                  {"/v1/sandboxes/%00/exec", `{"command":"x"}`, 422, "invalid_request", "url"},
		"path, not UTF-8":       {"/v1/sandboxes/%ff/exec", `{"command":"x"}`, 422, "invalid_request", "url"},
	}
}

// badWishes are about the fields of each operation.
func badWishes(id string) map[string]badRequest {
	create, run, job := "/v1/sandboxes", "/v1/run", "/v1/jobs"
	files := "/v1/sandboxes/" + id + "/files/"
	long := strings.Repeat("x", 5000)
	return map[string]badRequest{
		"template":              {create, `{"template":"cobol"}`, 422, "invalid_request", "python"},
		"template and image":    {create, `{"template":"python","image":"fake"}`, 422, "invalid_request", "body.image"},
		"provider":              {create, `{"provider":"mars"}`, 422, "invalid_request", "body.provider"},
		"memory":                {create, `{"memory_mb":-1}`, 422, "invalid_request", "body.memory_mb"},
		"label":                 {create, `{"labels":{"a b":"c"}}`, 422, "invalid_request", "body.labels"},
		"NUL in a label":        {create, `{"labels":{"content":"\u0000"}}`, 422, "invalid_request", "body.labels"},
		"on_timeout":            {create, `{"on_timeout":"explode"}`, 422, "invalid_request", "body.on_timeout"},
		"key":                   {create, `{"key":"` + long + `"}`, 422, "invalid_request", "body.key"},
		"file path":             {files + "write", `{"path":"` + long + `"}`, 422, "invalid_request", "body.path"},
		"no path":               {files + "write", `{"content":"x"}`, 422, "invalid_request", "path"},
		"file mode":             {files + "write", `{"path":"x","mode":"9"}`, 422, "invalid_request", "body.mode"},
		"base64":                {files + "write", `{"path":"x","content":"?","encoding":"base64"}`, 422, "invalid_request", "body.content"},
		"depth":                 {files + "list", `{"depth":17}`, 422, "invalid_request", "body.depth"},
		"file verb":             {files + "eat", `{}`, 404, "route_not_found", ""},
		"too many files":        {run, `{"command":"x","files":[` + strings.Repeat(`{"path":"x"},`, 100) + `{"path":"x"}]}`, 422, "invalid_request", "body.files"},
		"a run's file":          {run, `{"command":"x","files":[{"path":"x","mode":"zz"}]}`, 422, "invalid_request", "mode"},
		"a run without command": {run, `{}`, 422, "invalid_request", "body.command"},
		"a run with a key":      {run, `{"command":"x","key":"mine"}`, 422, "invalid_request", "body.key"},
		"kind":                  {job, `{"sandbox_id":"` + id + `","kind":"dance"}`, 422, "invalid_request", "body.kind"},
		"create as a job":       {job, `{"sandbox_id":"` + id + `","kind":"create"}`, 422, "invalid_request", "body.kind"},
		"args":                  {job, `{"sandbox_id":"` + id + `","kind":"exec","args":{"comand":"x"}}`, 422, "invalid_request", "comand"},
		"args' type":            {job, `{"sandbox_id":"` + id + `","kind":"exec","args":[]}`, 422, "invalid_request", "body.args"},
		"timeout":               {"/v1/sandboxes/" + id + "/timeout", `{"timeout_seconds":0.5}`, 422, "invalid_request", "timeout_seconds"},
		"pause":                 {"/v1/sandboxes/" + id + "/pause", `{"hard":true}`, 422, "invalid_request", "body.hard"},
	}
}

func TestBadRequestsWriteNothing(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	id := r.sandbox(map[string]any{})
	before := r.rows()
	all := badBodies(id)
	maps.Copy(all, badWishes(id))
	for name, c := range all {
		t.Run(name, func(t *testing.T) {
			a := r.call("POST", c.path, c.body).problem(t, c.status, c.code)
			if !strings.Contains(a.text("detail"), c.at) {
				t.Errorf("the detail does not name %s: %s", c.at, a.text("detail"))
			}
			if len(a.raw) > 3000 {
				t.Errorf("the answer has %d bytes", len(a.raw))
			}
			if c.status == 422 && (a.get("errors") == nil) {
				t.Errorf("no field is named: %s", a.raw)
			}
		})
	}
	if after := r.rows(); after != before {
		t.Errorf("bad requests were written down: %s, before %s", after, before)
	}
}

func TestBadHeadersAndQueries(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	body := map[string]any{}
	r.call("POST", "/v1/sandboxes", body, "Content-Type", "text/plain").problem(t, 415, "unsupported_media_type")
	r.call("POST", "/v1/sandboxes", body, "Content-Encoding", "gzip").problem(t, 415, "unsupported_content_encoding")
	r.call("POST", "/v1/sandboxes", body, "Idempotency-Key", strings.Repeat("k", 256)).problem(t, 422, "invalid_request")
	r.call("POST", "/v1/sandboxes", body, "Idempotency-Key", "\xff").problem(t, 422, "invalid_request")
	r.call("PUT", "/v1/sandboxes", body).problem(t, 405, "method_not_allowed")
	r.call("GET", "/nowhere", nil).problem(t, 404, "route_not_found")
	r.call("GET", "/v1/nowhere", nil).problem(t, 404, "route_not_found")
	r.call("GET", "/v1/sandboxes/"+strings.Repeat("x", 20000), nil).problem(t, 431, "headers_too_large")
	for _, query := range []string{
		"sandboxes?limit=0", "sandboxes?limit=101", "sandboxes?limit=x", "sandboxes?cursor=x", "sandboxes?state=odd",
		"sandboxes?label=x", "sandboxes?key=%00", "sandboxes?key=%ff", "jobs?state=odd", "jobs?kind=odd", "jobs?fields=odd",
		"jobs?cursor=%27", "jobs/job_00000000000000000000000000?wait=999", "jobs/job_00000000000000000000000000?fields=odd",
	} {
		r.call("GET", "/v1/"+query, nil).problem(t, 422, "invalid_request")
	}
	if rows := r.rows(); rows != "0 sandboxes, 0 jobs" {
		t.Errorf("written down: %s", rows)
	}
}

// TestALongHeaderIsAnswered: also to a client that sends all of it before it reads.
func TestALongHeaderIsAnswered(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	conn := must(net.Dial("tcp", strings.TrimPrefix(r.url, "http://")))(t)
	defer conn.Close()
	must(fmt.Fprintf(conn, "GET /%s HTTP/1.1\r\nHost: x\r\n\r\n", strings.Repeat("x", 8<<20)))(t)
	if got := string(must(io.ReadAll(conn))(t)); !strings.Contains(got, "headers_too_large") {
		t.Errorf("unexpected answer: %s", got)
	}
}

func TestOversizedBody(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(c *web.Config) { c.MaxBody = 1 << 20 })
	for _, size := range []int{1<<20 + 1, 8 << 20} {
		body := `{"key":"` + strings.Repeat("x", size) + `"}`
		a := r.call("POST", "/v1/sandboxes", body).problem(t, 413, "body_too_large")
		if a.get("max") != float64(1<<20) || !strings.Contains(a.text("detail"), "1048576") {
			t.Errorf("the limit is not named: %s", a.raw)
		}
	}
	req := must(http.NewRequest("POST", r.url+"/v1/sandboxes", io.LimitReader(endless{}, 8<<20)))(t) // chunked
	req.Header.Set("Authorization", "Bearer "+r.key)
	res, err := r.client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if res.StatusCode != 413 {
		t.Errorf("chunked: %d", res.StatusCode)
	}
	if rows := r.rows(); rows != "0 sandboxes, 0 jobs" {
		t.Errorf("written down: %s", rows)
	}
}

func TestNotHTTP(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	conn := must(net.Dial("tcp", strings.TrimPrefix(r.url, "http://")))(t)
	defer conn.Close()
	must(fmt.Fprint(conn, "HELO there\r\n\r\n"))(t)
	if got := string(must(io.ReadAll(conn))(t)); !strings.Contains(got, "400 Bad Request") || !strings.Contains(got, "malformed_request") {
		t.Errorf("unexpected answer: %s", got)
	}
}

type endless struct{}

func (endless) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = 'x'
	}
	return len(p), nil
}
