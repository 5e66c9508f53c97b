package e2e_test

import (
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
)

// serves is a template whose sandboxes serve their name over HTTP, after a moment in which nobody listens.
func serves(name string, ready object) object {
	return object{
		"image": image, "env": object{"NAME": name}, "work_dir": "/srv/site", "ports": []int{9000}, "vscode_port": 9000, "ready": ready,
		"start_command": `sleep 0.3; echo "$NAME $(pwd)" >index.html; exec python3 -m http.server -b 127.0.0.1 9000`,
	}
}

func TestTemplateServesItsTools(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	for name, ready := range map[string]object{
		"over-http": {"http": object{"port": 9000, "path": "/index.html"}}, "over-tcp": {"tcp": object{"port": 9000}},
		"by-command": {"command": "python3 -c 'import socket; socket.create_connection((\"127.0.0.1\", 9000))'"},
	} {
		r.call("PUT", "/v1/templates/"+name, serves(name, ready)).want(t, 200)
		var made struct {
			Job     job
			Sandbox struct {
				sandbox
				VSCodeURL string `json:"vscode_url"`
			}
		}
		decode(t, r.call("POST", "/v1/sandboxes?wait=100s", object{"template": name}).want(t, 200).raw, &made)
		if made.Job.State != "succeeded" {
			t.Fatalf("%s: %v", name, made.Job)
		}
		if got := r.browse(made.Sandbox.VSCodeURL); got != name+" /srv/site\n" {
			t.Errorf("%s: %s shows %q", name, made.Sandbox.VSCodeURL, got)
		}
		if got := r.browse(strings.Split(made.Sandbox.VSCodeURL, "?")[0]); !strings.Contains(got, "private") {
			t.Errorf("%s: without the token it shows %q", name, got)
		}
		r.remove(made.Sandbox.ID)
	}
}

func TestTemplateThatFailsLeavesNothing(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.call("PUT", "/v1/templates/broken", object{
		"image": image, "start_command": "echo no such file >&2; exit 4", "ready": object{"tcp": object{"port": 9000}},
	}).want(t, 200)
	var made struct{ Job job }
	decode(t, r.call("POST", "/v1/sandboxes?wait=100s", object{"template": "broken"}).want(t, 200).raw, &made)
	if made.Job.State != "failed" || made.Job.code() != "template_not_ready" || !strings.Contains(made.Job.Error.Message, "exit code 4: no such file") {
		t.Errorf("the create: %v", made.Job)
	}
}

// browse fetches a URL of the edge, wherever this one listens.
func (r *rig) browse(text string) string {
	r.t.Helper()
	u, err := url.Parse(text)
	if err != nil || u.Host == "" {
		r.t.Fatalf("URL %q: %v", text, err)
	}
	var edge struct{ Addr string }
	decode(r.t, "{"+r.api.Line(&r.api.Stderr, `"msg":"edge listens",`), &edge)
	req, err := http.NewRequestWithContext(r.t.Context(), http.MethodGet, text, nil)
	if err != nil {
		r.t.Fatal(err)
	}
	req.Host, req.URL.Host = u.Host, edge.Addr
	answer, err := r.http.Do(req)
	if err != nil {
		r.t.Fatal(err)
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		r.t.Fatal(err)
	}
	return string(body)
}
