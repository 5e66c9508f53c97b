//go:build attack

package attack

import (
	"bytes"
	"context"
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

// caller makes requests with one API key. It may be used concurrently.
type caller struct {
	rig   *rig
	key   string
	token string // of a login, for routes that take no key
	http  *http.Client
}

// request is one to be made. Its body is nil, text, bytes, a reader, or is written as JSON.
type request struct {
	method, path string
	body         any
	header       []string // name, value, …
	host         string   // empty = the API's address
	as           string   // the header Host
	large        bool     // the answer may be larger than maxAnswer
	patience     time.Duration
}

// reply is what came back; err says that nothing did.
type reply struct {
	to     string
	status int
	header http.Header
	size   int64
	head   string // its beginning
	leak   string // what of the neighbour it held
	err    error
}

// kept bounds what a reply keeps of its body.
const kept = 1 << 20

func (c *caller) do(q request) reply {
	ctx, cancel := context.WithTimeout(context.Background(), orElse(q.patience, patience))
	defer cancel()
	out := reply{to: q.method + " " + q.path}
	content, err := reader(q.body)
	if err != nil {
		return out.failed(err)
	}
	req, err := http.NewRequestWithContext(ctx, q.method, "http://"+orElse(q.host, c.rig.api)+q.path, content)
	if err != nil {
		return out.failed(err)
	}
	if sized, ok := content.(interface{ Len() int }); ok {
		req.ContentLength = int64(sized.Len())
	}
	req.Header.Set("Authorization", "Bearer "+c.key)
	if c.token != "" && strings.HasPrefix(q.path, "/agent/") { // which knows no keys
		req.Header.Set("Authorization", "Bearer "+c.token)
	}
	req.Header.Set("Content-Type", "application/json")
	for i := 0; i+1 < len(q.header); i += 2 {
		req.Header.Set(q.header[i], q.header[i+1])
	}
	req.Host = orElse(q.as, req.Host)
	res, err := c.http.Do(req)
	if err != nil {
		return out.failed(err)
	}
	defer res.Body.Close()
	out.status, out.header = res.StatusCode, res.Header
	return c.read(out, res.Body)
}

// read takes the answer in, looks for what must not be in it, and keeps its beginning.
func (c *caller) read(out reply, body io.Reader) reply {
	var head strings.Builder
	search := c.rig.markers.search()
	chunk := make([]byte, 64<<10)
	if strings.HasPrefix(out.header.Get("Content-Type"), "text/event-stream") {
		body = io.LimitReader(body, 0) // it has no end
	}
	for name, values := range out.header {
		search.look([]byte(name + strings.Join(values, " ")))
	}
	for {
		n, err := body.Read(chunk)
		out.size += int64(n)
		search.look(chunk[:n])
		if room := kept - head.Len(); room > 0 {
			head.Write(chunk[:min(n, room)])
		}
		if err == io.EOF {
			break
		}
		if err != nil {
			out.err = err
			break
		}
	}
	out.head, out.leak = head.String(), search.found
	return out
}

func (r reply) failed(err error) reply {
	r.err = err
	return r
}

func reader(body any) (io.Reader, error) {
	switch b := body.(type) {
	case nil:
		return nil, nil
	case string:
		return strings.NewReader(b), nil
	case []byte:
		return bytes.NewReader(b), nil
	case io.Reader:
		return b, nil
	}
	b, err := json.Marshal(body)
	return bytes.NewReader(b), err
}

func orElse[T comparable](v, or T) T {
	var none T
	if v == none {
		return or
	}
	return v
}

// job is what the attacks read of a job's document.
type job struct {
	ID, Kind, State string
	SandboxID       string `json:"sandbox_id"`
	Error           *struct{ Code, Message string }
	Stdout, Stderr  string
	Content         string
	Result          map[string]any
}

func (j job) ended() bool { return j.State != "queued" && j.State != "running" }

func (j job) String() string {
	why := ""
	if j.Error != nil {
		why = fmt.Sprintf(" (%s: %.200s)", j.Error.Code, j.Error.Message)
	}
	return j.Kind + " " + j.State + why
}

// accepted is the answer to a submission.
type accepted struct {
	Job     job
	Sandbox struct{ ID, State, Image string }
}

// text reads a field of a reply's JSON, such as code.
func (r reply) text(field string) string {
	var all map[string]any
	if json.Unmarshal([]byte(r.head), &all) != nil {
		return ""
	}
	text, _ := all[field].(string)
	return text
}

func (r reply) String() string {
	if r.err != nil {
		return fmt.Sprintf("%s: %v", r.to, r.err)
	}
	return fmt.Sprintf("%.120s: %d %s", r.to, r.status, orElse(r.text("code"), fmt.Sprintf("%.120s", r.head)))
}

func (r reply) ok() bool { return r.err == nil && r.status >= 200 && r.status < 300 }

// into decodes a reply that must be good.
func into[T any](t testing.TB, r reply) T {
	t.Helper()
	var out T
	if !r.ok() {
		t.Fatalf("%s: %.2000s", r, r.head)
	}
	if err := json.Unmarshal([]byte(r.head), &out); err != nil {
		t.Fatalf("%s: %v in %.300s", r.to, err, r.head)
	}
	return out
}

// post submits something.
func (c *caller) post(path string, body any, header ...string) reply {
	return c.do(request{method: "POST", path: path, body: body, header: header})
}

func (c *caller) get(path string) reply { return c.do(request{method: "GET", path: path}) }

// end waits for a job's end.
func (c *caller) end(t testing.TB, id string) job {
	t.Helper()
	deadline := time.Now().Add(2 * time.Minute)
	for {
		j := into[job](t, c.do(request{method: "GET", path: "/v1/jobs/" + id + "?wait=20s", large: true, patience: time.Minute}))
		if j.ended() || time.Now().After(deadline) {
			return j
		}
	}
}

// box makes a sandbox that runs.
func (c *caller) box(t testing.TB, wish object) string {
	t.Helper()
	made := into[accepted](t, c.post("/v1/sandboxes?wait=60s", wish))
	if made.Job.State != "succeeded" {
		t.Fatalf("a sandbox to work with: %v", made.Job)
	}
	return made.Sandbox.ID
}

// exec runs a command to its end.
func (c *caller) exec(t testing.TB, box, command string) job {
	t.Helper()
	out := into[accepted](t, c.post("/v1/sandboxes/"+box+"/exec?wait=60s", object{"command": command}))
	return c.end(t, out.Job.ID)
}

// live lists the tenant's sandboxes that have not ended.
func (c *caller) live(t testing.TB) []string {
	t.Helper()
	rows, err := c.rig.db.Query(context.Background(), `SELECT s.id FROM sandboxes s JOIN api_keys k USING (tenant_id)
		WHERE k.name = $1 AND s.ended_at IS NULL`, c.name())
	must(t, err)
	defer rows.Close()
	var ids []string
	for rows.Next() {
		var id string
		must(t, rows.Scan(&id))
		ids = append(ids, id)
	}
	return ids
}

func (c *caller) name() string {
	if c == c.rig.neighbour.caller {
		return "neighbour"
	}
	return "intruder"
}
