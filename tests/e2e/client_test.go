package e2e_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"
)

// object is a JSON object.
type object map[string]any

// sandbox is what the tests read of a sandbox's document.
type sandbox struct {
	Provider     string
	ID           string
	Key          string
	State        string
	Desired      string
	Template     string
	Image        string
	Labels       map[string]string
	ExpiresAt    time.Time  `json:"expires_at"`
	DiesAt       *time.Time `json:"dies_at"`
	LastActiveAt time.Time  `json:"last_active_at"`
	EndReason    string     `json:"end_reason"`
	ReplacedBy   string     `json:"replaced_by"`
}

// job is what the tests read of a job's document.
type job struct {
	ID              string
	Kind            string
	State           string
	SandboxID       string `json:"sandbox_id"`
	Attempt         int
	Error           *struct{ Code, Message string }
	Result          result
	Stdout          string
	StdoutEncoding  string `json:"stdout_encoding"`
	Stderr          string
	Content         string
	ContentEncoding string `json:"content_encoding"`
	RetryOf         string `json:"retry_of"`
	Timings         struct {
		FinishedAt time.Time `json:"finished_at"`
	}
}

// result holds the fields of all kinds' results.
type result struct {
	ExitCode        int `json:"exit_code"`
	Signal          string
	TimedOut        bool  `json:"timed_out"`
	StdoutBytes     int64 `json:"stdout_bytes"`
	StdoutTruncated bool  `json:"stdout_truncated"`
	Name            string
	Path            string
	Type            string
	Size            int64
	Mode            string
	Entries         []struct{ Name, Type string }
	Context         string
	ExecutionCount  int  `json:"execution_count"`
	StateLost       bool `json:"state_lost"`
	Existing        bool
	Error           *struct{ Name, Value, Traceback string }
	Results         []struct {
		Main bool
		Data map[string]any
	}
	ExpiresAt time.Time `json:"expires_at"`
}

func (j job) ended() bool { return j.State != "queued" && j.State != "running" }

// code is the error's, or empty.
func (j job) code() string {
	if j.Error == nil {
		return ""
	}
	return j.Error.Code
}

func (j job) String() string {
	return fmt.Sprintf("%s %s is %s at attempt %d, %+v, error %+v, stdout %.300q, stderr %.300q",
		j.Kind, j.ID, j.State, j.Attempt, j.Result, j.Error, j.Stdout, j.Stderr)
}

// succeeded fails the test if the job did not, and returns it.
func (j job) succeeded(t testing.TB) job {
	t.Helper()
	if j.State != "succeeded" {
		t.Fatalf("want a success: %s", j)
	}
	return j
}

// bytes returns what the job read.
func (j job) bytes(t testing.TB) string {
	t.Helper()
	if j.ContentEncoding != "base64" {
		return j.Content
	}
	b, err := base64.StdEncoding.DecodeString(j.Content)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// accepted is the answer to a submission.
type accepted struct {
	Job      job
	Sandbox  sandbox
	Existing bool
}

// answer is what came back.
type answer struct {
	to     string // method and path
	status int
	header http.Header
	raw    string
}

// caller makes requests with one API key. It may be used concurrently.
type caller struct {
	t    testing.TB
	url  func() string // the API may have moved
	key  string
	http *http.Client
}

// call makes a request, with headers as name, value, …; a body that is no string is sent as JSON.
func (c *caller) call(method, path string, body any, headers ...string) answer {
	c.t.Helper()
	a, err := c.try(method, path, body, headers...)
	if err != nil {
		c.t.Fatalf("%s %s: %v", method, path, err)
	}
	return a
}

func (c *caller) try(method, path string, body any, headers ...string) (answer, error) {
	content, err := reader(body)
	if err != nil {
		return answer{}, err
	}
	req, err := http.NewRequest(method, c.url()+path, content)
	if err != nil {
		return answer{}, err
	}
	req.Header.Set("Authorization", "Bearer "+c.key)
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i+1 < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	res, err := c.http.Do(req)
	if err != nil {
		return answer{}, err
	}
	defer res.Body.Close()
	raw, err := io.ReadAll(res.Body)
	return answer{method + " " + path, res.StatusCode, res.Header, string(raw)}, err
}

func reader(body any) (io.Reader, error) {
	switch b := body.(type) {
	case nil:
		return nil, nil
	case string:
		return strings.NewReader(b), nil
	}
	b, err := json.Marshal(body)
	return bytes.NewReader(b), err
}

// want checks the status.
func (a answer) want(t testing.TB, status ...int) answer {
	t.Helper()
	for _, s := range status {
		if a.status == s {
			return a
		}
	}
	t.Fatalf("%s: status %d, want %v: %.2000s", a.to, a.status, status, a.raw)
	return a
}

// problem checks that a is a problem document of that status and code.
func (a answer) problem(t testing.TB, status int, code string) answer {
	t.Helper()
	var p struct{ Type, Code, Detail string }
	decode(t, a.raw, &p)
	if a.status != status || p.Code != code || p.Detail == "" || p.Type == "" ||
		a.header.Get("Content-Type") != "application/problem+json" {
		t.Errorf("%s: want problem %d %s, got status %d, %s: %s", a.to, status, code, a.status, a.header.Get("Content-Type"), a.raw)
	}
	return a
}

func decode(t testing.TB, raw string, into any) {
	t.Helper()
	if err := json.Unmarshal([]byte(raw), into); err != nil {
		t.Fatalf("%v in %.500s", err, raw)
	}
}

// submit makes a request that submits a job and returns its answer.
func (c *caller) submit(path string, body any, headers ...string) accepted {
	c.t.Helper()
	var out accepted
	decode(c.t, c.call("POST", path, body, headers...).want(c.t, 200, 202).raw, &out)
	return out
}

// create makes a sandbox without waiting for it.
func (c *caller) create(wish object) sandbox {
	c.t.Helper()
	return c.submit("/v1/sandboxes", wish).Sandbox
}

// created makes a sandbox and waits until it runs.
func (c *caller) created(wish object) sandbox {
	c.t.Helper()
	made := c.submit("/v1/sandboxes?wait=60s", wish)
	made.Job.succeeded(c.t)
	return made.Sandbox
}

// start submits an exec without waiting for it.
func (c *caller) start(box, command string, more ...object) job {
	c.t.Helper()
	return c.submit("/v1/sandboxes/"+box+"/exec", merge(object{"command": command}, more)).Job
}

// exec runs a command to its end.
func (c *caller) exec(box, command string, more ...object) job {
	c.t.Helper()
	return c.end(c.start(box, command, more...))
}

// file carries out one file operation.
func (c *caller) file(box, verb string, body object) job {
	c.t.Helper()
	return c.end(c.submit("/v1/sandboxes/"+box+"/files/"+verb, body).Job)
}

func merge(body object, more []object) object {
	for _, m := range more {
		for name, value := range m {
			body[name] = value
		}
	}
	return body
}

// end waits for a job's end, as long as it may take on a busy machine.
func (c *caller) end(j job) job {
	c.t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); time.Now().Before(deadline); {
		j = c.job(j.ID, "?wait=30s")
		if j.ended() {
			return j
		}
	}
	c.t.Fatalf("has not ended: %s", j)
	return j
}

func (c *caller) job(id string, query ...string) job {
	c.t.Helper()
	var j job
	decode(c.t, c.call("GET", "/v1/jobs/"+id+strings.Join(query, ""), nil).want(c.t, 200).raw, &j)
	return j
}

func (c *caller) sandbox(id string) sandbox {
	c.t.Helper()
	var b sandbox
	decode(c.t, c.call("GET", "/v1/sandboxes/"+id, nil).want(c.t, 200).raw, &b)
	return b
}

// remove deletes sandboxes, all at once, and waits until they are gone.
func (c *caller) remove(boxes ...string) {
	c.t.Helper()
	var all []job
	for _, id := range boxes {
		var out accepted
		decode(c.t, c.call("DELETE", "/v1/sandboxes/"+id, nil).want(c.t, 200, 202).raw, &out)
		all = append(all, out.Job)
	}
	for _, j := range all {
		c.end(j).succeeded(c.t)
	}
}

// count returns how many jobs are in a state, up to 100.
func (c *caller) count(state string) int {
	c.t.Helper()
	var page struct{ Jobs []job }
	decode(c.t, c.call("GET", "/v1/jobs?limit=100&fields=id&state="+state, nil).want(c.t, 200).raw, &page)
	return len(page.Jobs)
}
