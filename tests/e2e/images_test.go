package e2e_test

import (
	"context"
	"net/http"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"sandyard/dev/testenv"
)

// withImage is an installation with one more template, or skips the test where its image is missing.
func withImage(t *testing.T, template string) *rig {
	t.Helper()
	t.Parallel()
	name := "sandyard/" + template + ":default"
	r := prepare(t, "SANDBOX_TEMPLATES", "python="+image+","+template+"="+name)
	if _, err := r.engine.api.ImageInspect(t.Context(), name); err != nil {
		t.Skipf("skipped: no image %s; make image TEMPLATE=%s makes it: %v", name, template, err)
	}
	r.startAll()
	return r
}

// boxOf makes a sandbox of a template.
func (r *rig) boxOf(template string, more object) string {
	r.t.Helper()
	body := object{"template": template}
	for name, value := range more {
		body[name] = value
	}
	made := r.submit("/v1/sandboxes", body)
	r.end(made.Job).succeeded(r.t)
	return made.Sandbox.ID
}

// toolsInside is a client of the tools that a sandbox serves itself, at its mcp_url.
func (r *rig) toolsInside(box string) toolUser {
	r.t.Helper()
	var shown struct {
		MCPURL string `json:"mcp_url"`
	}
	decode(r.t, r.call("GET", "/v1/sandboxes/"+box, nil).want(r.t, 200).raw, &shown)
	client := mcp.NewClient(&mcp.Implementation{Name: "agent", Version: "1"}, nil)
	s, err := client.Connect(context.Background(), &mcp.StreamableClientTransport{
		Endpoint: shown.MCPURL, HTTPClient: &http.Client{Transport: r.edgeTransport()}, DisableStandaloneSSE: true,
	}, nil)
	check(r.t, err)
	r.t.Cleanup(func() { s.Close() })
	return toolUser{r.t.(*testing.T), s}
}

// says runs commands, each of which must exit with 0 and write what is wanted to stdout.
func (r *rig) says(box string, wanted map[string]string) {
	r.t.Helper()
	for command, want := range wanted {
		if j := r.exec(box, command).succeeded(r.t); j.Result.ExitCode != 0 || !strings.Contains(j.Stdout, want) {
			r.t.Errorf("%s: want %q, got %s", command, want, j)
		}
	}
}

// listener answers 404 to every request, and writes down which there were.
const listener = `
import http.server
class H(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        self.rfile.read(int(self.headers.get("content-length") or 0))
        with open("/tmp/seen", "a") as f:
            print(self.command, self.path, self.headers.get("authorization"), file=f)
        self.send_error(404)
    do_GET = do_HEAD = do_DELETE = do_POST
    def log_message(self, *a): pass
http.server.ThreadingHTTPServer(("127.0.0.1", 8000), H).serve_forever()`

// agentFinds runs an agent in a sandbox of its template against a server that knows no model and no tools, with and
// without the variables that say where Sandyard's tools are.
func (r *rig) agentFinds(template, command string) string {
	r.t.Helper()
	box := r.boxOf(template, nil)
	r.exec(box, "cat >listener.py", object{"stdin": listener}).succeeded(r.t)
	r.exec(box, "python3 listener.py", object{"background": true}).succeeded(r.t)
	run := `until curl -s localhost:8000 >/dev/null; do sleep 0.1; done; : >/tmp/seen; cd /tmp
		` + command + ` </dev/null >/tmp/said 2>&1; cat /tmp/seen`
	for _, with := range []bool{true, false} {
		env := object{"SANDYARD_URL": "http://localhost:8000"}
		if with {
			env["SANDYARD_API_KEY"] = "sy_tools"
		}
		j := r.exec(box, run, object{"env": env, "timeout_seconds": 120}).succeeded(r.t)
		if !strings.Contains(j.Stdout, "POST /v1/") {
			r.t.Errorf("%s asks no model: %s, %s", template, j, r.exec(box, "cat /tmp/said"))
		}
		if got := strings.Contains(j.Stdout, "POST /mcp Bearer sy_tools\n"); got != with {
			r.t.Errorf("%s with the key %v: asks for tools %v, %s", template, with, got, j)
		}
	}
	return box
}

// TestClaudeCode shows that Claude Code of the template claude-code asks for Sandyard's tools.
func TestClaudeCode(t *testing.T) {
	testenv.Long(t, "it takes many seconds and 2 GiB of memory")
	r := withImage(t, "claude-code")
	box := r.agentFinds("claude-code", "ANTHROPIC_API_KEY=x ANTHROPIC_BASE_URL=http://localhost:8000 claude -p hello")
	r.says(box, map[string]string{"claude --version": "(Claude Code)", "git --version": "git", "python3 -V": "Python 3."})
	r.clean()
}

// TestCodex shows that Codex of the template codex asks for Sandyard's tools.
func TestCodex(t *testing.T) {
	testenv.Long(t, "it takes many seconds and 2 GiB of memory")
	r := withImage(t, "codex")
	box := r.agentFinds("codex", `codex exec --skip-git-repo-check -c model_provider='"none"' \
		-c model_providers.none.name='"none"' -c model_providers.none.base_url='"http://localhost:8000/v1"' hello`)
	r.says(box, map[string]string{"codex --version": "codex-cli ", "cat /tmp/said": "sandbox: danger-full-access"})
	r.clean()
}

// TestCloud asks the programs of the template cloud for their versions, and loads the libraries.
func TestCloud(t *testing.T) {
	testenv.Long(t, "it takes many seconds and 1 GiB of memory")
	r := withImage(t, "cloud")
	r.says(r.boxOf("cloud", nil), map[string]string{
		"aws --version": "aws-cli/", "aws ec2 describe-instances --generate-cli-skeleton": "InstanceIds",
		"az version": `"azure-cli": "`, "az vm create --help": "az vm create",
		"kubectl version --client --short": "Client Version: v1.",
		`python3 -c 'from google.cloud import bigquery, compute, pubsub, run, secretmanager, storage
print(storage.__version__)'`: ".",
	})
	r.clean()
}

// TestAllInOne uses what the template all-in-one has at once: the editor, the browser tools and Node.js with npm.
func TestAllInOne(t *testing.T) {
	testenv.Long(t, "it takes many seconds and 4 GiB of memory")
	r := withImage(t, "all-in-one")
	a := r.toolUser("all&template=all-in-one&tools=core,browser")
	a.call("file_write", object{"file": "index.html", "content": "<title>Here</title>one page"})
	a.call("shell_exec", object{"command": "python3 -m http.server 8000", "background": true})
	a.call("shell_exec", object{"command": "until curl -sf localhost:8000 >/dev/null; do sleep 0.1; done"})
	page := a.see("browser_open", object{"url": "http://localhost:8000/"})
	if page.Title != "Here" || page.Text != "one page" {
		t.Errorf("the browser shows %+v", page)
	}
	if e := r.editorOf(page.Box); !strings.Contains(e.page, "vscode-workbench-web-configuration") {
		t.Errorf("the editor shows %.1000s", e.page)
	}
	inside := r.toolsInside(page.Box)
	if run := inside.call("shell_exec", object{"command": "echo 1; echo 2 >&2; cat index.html"}); run.Stdout != "1\n2\n<title>Here</title>one page" {
		t.Errorf("the tools at mcp_url answer %+v", run)
	}
	if run := inside.call("javascript_execute", object{"code": "console.log(6 * 7)"}); run.Stdout != "42\n" {
		t.Errorf("JavaScript at mcp_url: %+v", run)
	}
	r.says(page.Box, map[string]string{
		"node --version": "v24.", "npm --version": "11.", "npx --version": "11.", "python3 -V": "Python 3.",
		"git --version":         "git version",
		"code-server --version": "4.", "readlink /proc/$(pgrep -fo ^/opt/code-server)/exe": "/opt/code-server/",
		`python3 -c 'from playwright.sync_api import sync_playwright as s
with s() as p:
    browser = p.chromium.launch()
    page = browser.new_page()
    page.set_content("<title>T</title>")
    print(page.title(), browser.version)'`: "T 1",
	})
	r.clean()
}
