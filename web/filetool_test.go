package web_test

import (
	"strings"
	"testing"
)

func TestFileTools(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.work()
	box := r.sandbox(map[string]any{})
	type body = map[string]any
	steps := []struct {
		kind string
		args body
		want []string // in the job
	}{
		{
			"write_many",
			body{"files": []body{{"path": "a.txt", "content": "one\ntwo\x00"}, {"path": "../out", "content": "x"}, {"path": "s/b.txt", "content": "AP8=", "encoding": "base64", "mode": "0600"}}},
			[]string{`"failed":1`, `{"path":"../out","error":{"code":"invalid_path"`, `"mode":"0600"`, `"state":"succeeded"`},
		},
		{
			"edit",
			body{"path": "a.txt", "edits": []body{{"old_string": "two\x00", "new_string": "2"}, {"old_string": "bmU=", "new_string": "AP8K", "encoding": "base64"}, {"old_string": "2", "new_string": "two two"}}},
			[]string{`"replaced":[1,1,1]`, `"size":12`},
		},
		{"edit", body{"path": "a.txt", "edits": []body{{"old_string": "two", "new_string": "2"}}}, []string{`"code":"text_ambiguous"`, "2 times", `"retryable":false`, `"state":"failed"`}},
		{"edit", body{"path": "a.txt", "edits": []body{{"old_string": "three", "new_string": "3"}}}, []string{`"code":"text_not_found"`}},
		{"edit", body{"path": "a.txt", "edits": []body{{"old_string": "two", "count": 2}}}, []string{`"replaced":[2]`, `"size":6`}},
		{
			"read_many",
			body{"paths": []string{"a.txt", "none", "s/b.txt"}},
			[]string{`{"path":"none","size":0,"error":{"code":"file_not_found"`, `"content":"bwD/Cgog"`, `"content":"AP8=","content_encoding":"base64"`, `"failed":1`},
		},
		{"write_many", body{"files": []body{{"path": "s/c.go", "content": "func main() {\n\treturn\n}"}, {"path": ".h", "content": "return"}}}, []string{`"failed":0`}},
		{"glob", body{"pattern": "**/*.{go,txt}"}, []string{`"path":"/workspace/a.txt"`, `"path":"/workspace/s/b.txt"`, `"path":"/workspace/s/c.go"`, `"truncated":false`}},
		{"glob", body{"pattern": "**", "limit": 1}, []string{`"truncated":true`}},
		{"glob", body{"pattern": "*", "path": "s", "hidden": true}, []string{`"name":"c.go"`}},
		{"grep", body{"pattern": `return$`, "include": "*.go", "context": 1}, []string{`"line":2`, `"column":2`, `"text":"\treturn"`, `"before":["func main() {"]`, `"after":["}"]`, `"searched":1`, `"binary_skipped":0`}},
		{"grep", body{"pattern": "(", "fixed": true, "path": "s/c.go"}, []string{`"column":10`}},
		{"grep", body{"pattern": "("}, []string{`"code":"invalid_argument"`, "RE2"}},
	}
	var read string
	for i, step := range steps {
		path, sent := "/v1/sandboxes/"+box+"/files/"+strings.ReplaceAll(step.kind, "_", "-"), step.args
		if i%2 == 1 {
			path, sent = "/v1/jobs", body{"sandbox_id": box, "kind": step.kind, "args": step.args}
		}
		a := r.call("POST", path+"?wait=30s", sent).want(t, 200)
		if step.kind == "read_many" {
			read = a.text("job.id")
		}
		for _, want := range step.want {
			if !strings.Contains(a.raw, want) {
				t.Errorf("%s %v: no %s in %s", step.kind, step.args, want, a.raw)
			}
		}
	}
	list := r.call("GET", "/v1/jobs?kind=read_many", nil).want(t, 200)
	if strings.Contains(list.raw, "bwD/") || !strings.Contains(list.raw, `"size":6`) {
		t.Errorf("a list holds a file's bytes, or not its size: %s", list.raw)
	}
	if job := r.call("GET", "/v1/jobs/"+read, nil).want(t, 200); !strings.Contains(job.raw, `"content":"bwD/`) {
		t.Errorf("the job does not hold the files' bytes: %s", job.raw)
	}
}
