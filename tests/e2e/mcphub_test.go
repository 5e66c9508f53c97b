package e2e_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// otherServer is an MCP server in Python without a library: over its standard input, or over HTTP at a port, with the
// answers as events. Its tools return what they got, a picture and an error; one never ends.
const otherServer = `
import base64, http.server, json, os, sys, time

ANY = {"type": "object"}
TOOLS = [{"name": "echo", "description": "Says it again", "inputSchema": ANY}, {"name": "dot", "inputSchema": ANY}]
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR4nGNgAAIAAAUAAeUn3vwAAAAASUVORK5CYII="

def call(name, args):
    if name == "dot":
        return {"content": [{"type": "image", "data": PIXEL, "mimeType": "image/png"}]}
    if name == "slow":
        time.sleep(600)
    if name == "die":
        print("has no more", file=sys.stderr)
        os._exit(7)
    text = json.dumps(args) + os.environ.get("WORD", "")
    return {"content": [{"type": "text", "text": text}], "structuredContent": args, "isError": name != "echo"}

def answer(m):
    about = {"capabilities": {"tools": {}}, "serverInfo": {"name": "x", "version": "1"}}
    result = {
        "initialize": lambda p: {"protocolVersion": p["protocolVersion"], **about},
        "tools/list": lambda p: {"tools": TOOLS[1:]} if p.get("cursor") else {"tools": TOOLS[:1], "nextCursor": "2"},
        "tools/call": lambda p: call(p["name"], p["arguments"]),
    }.get(m["method"])
    end = {"result": result(m.get("params", {}))} if result else {"error": {"code": -32601, "message": "unknown"}}
    return {"jsonrpc": "2.0", "id": m["id"], **end}

class Handler(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        m = json.loads(self.rfile.read(int(self.headers["content-length"])))
        if self.headers["authorization"] != "Bearer secret word":
            return self.send_error(401, "who are you")
        self.send_response(200 if "id" in m else 202)
        self.send_header("content-type", "text/event-stream")
        self.send_header("mcp-session-id", "s1")
        self.end_headers()
        if "id" in m:
            self.wfile.write(b'event: message\ndata: {"jsonrpc": "2.0", "method": "notifications/message"}\n\n')
            self.wfile.write(f"data: {json.dumps(answer(m))}\n\n".encode())
    def log_message(self, *a): pass

if len(sys.argv) > 1:
    http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
print("ready")
for line in sys.stdin:
    m = json.loads(line)
    if "method" in m and "id" in m:
        print('{"jsonrpc": "2.0", "id": "p", "method": "ping"}', json.dumps(answer(m)), sep="\n", flush=True)
`

const otherServers = `{"mcpServers": {
	"mine": {"command": "python3", "args": ["server.py"], "env": {"WORD": " and ${NOBODY:-more}"}},
	"web": {"type": "http", "url": "http://localhost:8000/mcp", "headers": {"Authorization": "Bearer ${WORD}"}},
	"stranger": {"type": "http", "url": "http://localhost:8000/mcp"},
	"far": {"url": "http://10.1.2.3/mcp"}, "none": {"command": "no-such-program"},
	"old": {"type": "sse", "url": "http://localhost/sse"}, "unset": {"command": "python3", "args": ["${NOBODY}"]}
}}`

// hub is what the tools for other servers answer.
type hub struct {
	Servers []struct{ Name, Transport, Target string }
	Tools   []struct {
		Name        string
		InputSchema json.RawMessage
	}
	Text       string
	Structured object
	IsError    bool `json:"is_error"`
	Error      struct{ Code, Message string }

	images int
}

func (a toolUser) ask(tool string, args object) (out hub) {
	a.t.Helper()
	res, err := a.session.CallTool(context.Background(), &mcp.CallToolParams{Name: tool, Arguments: args})
	check(a.t, err)
	raw, err := json.Marshal(res.StructuredContent)
	check(a.t, err)
	decode(a.t, string(raw), &out)
	if res.IsError != (out.Error.Code != "") {
		a.t.Errorf("%s: isError is %v: %s", tool, res.IsError, raw)
	}
	for _, c := range res.Content {
		if _, is := c.(*mcp.ImageContent); is {
			out.images++
		}
	}
	return out
}

// TestToolsOfOtherServers reaches the servers that a file in the sandbox names: programs and URLs, good and bad ones.
func TestToolsOfOtherServers(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	box := r.created(object{"key": "mcp:hub", "env": object{"WORD": "secret word"}, "network": true})
	a := r.toolUser("hub&tools=core,mcp")
	bare := a.ask("mcp_list_servers", nil)
	if bare.Error.Code != "mcp_failed" || !strings.Contains(bare.Error.Message, "/workspace has no .mcp.json; write one") {
		t.Errorf("without a file: %+v", bare)
	}
	a.call("file_write", object{"file": ".mcp.json", "content": otherServers})
	a.call("file_write", object{"file": "server.py", "content": otherServer})
	a.call("shell_exec", object{"command": "python3 server.py 8000", "background": true})
	a.call("shell_exec", object{"command": "until curl -s localhost:8000 >/dev/null; do sleep 0.1; done"})
	listed := a.ask("mcp_list_servers", nil)
	if s := listed.Servers; len(s) != 7 || s[0].Target != "python3 server.py" || s[1].Transport != "http" {
		t.Errorf("servers: %+v", listed)
	}
	for _, server := range []string{"mine", "web"} {
		found := a.ask("mcp_list_tools", object{"server_name": server})
		if s := found.Tools; len(s) != 2 || s[0].Name != "echo" || string(s[1].InputSchema) != `{"type":"object"}` {
			t.Errorf("tools of %s: %+v", server, found)
		}
		echo := a.ask("mcp_execute", object{"server_name": server, "tool_name": "echo", "arguments": object{"a": "ä"}})
		more := map[string]string{"mine": " and more", "web": "secret word"}[server]
		if want := `{"a": "\u00e4"}` + more + "\n"; echo.Text != want || echo.Structured["a"] != "ä" || echo.IsError {
			t.Errorf("%s answers %+v, want %q", server, echo, want)
		}
		bad := a.ask("mcp_execute", object{"server_name": server, "tool_name": "bad"})
		if !bad.IsError || !strings.HasPrefix(bad.Text, "The tool reports an error.") {
			t.Errorf("an error of a tool of %s: %+v", server, bad)
		}
		if got := a.ask("mcp_execute", object{"server_name": server, "tool_name": "dot"}); got.images != 1 {
			t.Errorf("a picture of %s: %+v", server, got)
		}
	}
	a.otherServersFail()
	if got := r.exec(box.ID, "pgrep -fc '[s]erver.py$'"); got.Stdout != "0\n" {
		t.Errorf("programs of servers live on after their calls: %s", got)
	}
	r.clean()
}

// otherServersFail asks servers that cannot answer.
func (a toolUser) otherServersFail() {
	a.t.Helper()
	for what, want := range map[string]string{
		"nobody echo":   "has no server 'nobody'",
		"stranger echo": "status 401",
		"far echo":      "no sandbox may reach it",
		"none echo":     "'no-such-program' does not start",
		"old echo":      "type 'sse' is not supported",
		"unset echo":    "NOBODY, which is not set",
		"mine die":      "exit code 7: has no more",
		"mine slow":     "not answered within 1 seconds",
	} {
		server, tool, _ := strings.Cut(what, " ")
		args := object{"server_name": server, "tool_name": tool}
		if tool == "slow" {
			args["timeout"] = 1
		}
		got := a.ask("mcp_execute", args)
		if got.Error.Code != "mcp_failed" || !strings.Contains(got.Error.Message, want) {
			a.t.Errorf("%s: %+v, want %q", what, got, want)
		}
	}
}
