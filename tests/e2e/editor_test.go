package e2e_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
)

// TestEditor opens the editor of the template code-server at its URL as a browser does: the page, its scripts, and the
// two connections of the workbench, to the server and to an extension host.
func TestEditor(t *testing.T) {
	t.Parallel()
	const editorImage = "sandyard/code-server:default"
	r := prepare(t, "SANDBOX_TEMPLATES", "python="+image+",code-server="+editorImage)
	if _, err := r.engine.api.ImageInspect(t.Context(), editorImage); err != nil {
		t.Skipf("skipped: no image %s; make image TEMPLATE=code-server makes it: %v", editorImage, err)
	}
	r.startAll()
	made := r.submit("/v1/sandboxes", object{"template": "code-server"})
	r.end(made.Job).succeeded(t)
	box := made.Sandbox.ID

	e := r.editorOf(box)
	release := regexp.MustCompile(`stable-([0-9a-f]{40})`).FindStringSubmatch(e.page)
	if !strings.Contains(e.page, "vscode-workbench-web-configuration") || release == nil || !strings.Contains(e.page, "enableTelemetry&quot;:false") {
		t.Fatalf("the page is no workbench without telemetry: %.2000s", e.page)
	}
	if script := e.get("/" + release[0] + "/static/out/vs/code/browser/workbench/workbench.js"); len(script) < 1<<20 {
		t.Errorf("the workbench's program has %d bytes: %.200q", len(script), script)
	}
	server := e.connect(release, editorServer)
	if said := server.told(); said["type"] != "ok" {
		t.Errorf("the editor's server answers %v", said)
	}
	host := e.connect(release, editorExtensions)
	if said := host.told(); said["type"] == "error" {
		t.Errorf("the editor's server answers %v to the extension host's connection", said)
	}
	if kind, said := host.receive(); kind != editorRegular || len(said) != 1 || said[0] != 2 { // that it is ready
		t.Errorf("the extension host says %d %q", kind, said)
	}

	if j := r.exec(box, editorModules).succeeded(t); j.Result.ExitCode != 0 || j.Stdout != "ripgrep on a terminal\r\n" {
		t.Errorf("the editor's modules: %s", j)
	}
	if j := r.exec(box, "ls -A").succeeded(t); j.Stdout != "" {
		t.Errorf("the editor keeps things of its own in the workspace: %s", j.Stdout)
	}
	r.clean()
}

// editorModules loads what was compiled for the editor, and has its terminal's module and its search run something.
const editorModules = `cd /opt/code-server/node_modules/code-server/lib/vscode && exec node -e '
for (const name of ["@parcel/watcher", "@vscode/native-watchdog", "@vscode/spdlog", "kerberos"]) require(name)
const version = require("child_process").execFileSync(require("@vscode/ripgrep").rgPath, ["--version"])
let shown = version.toString().split(" ")[0] + " "
require("node-pty").spawn("bash", ["-c", "test -t 0 && echo on a terminal; read"]).onData(text => {
	shown += text
	if (text.includes("\n")) process.stdout.write(shown, () => process.exit(0))
})'`

// editor is a browser that has opened the editor of a sandbox.
type editor struct {
	t    testing.TB
	at   *url.URL
	page string
	http *http.Client
}

func (r *rig) editorOf(box string) editor {
	r.t.Helper()
	var shown struct {
		VSCodeURL string `json:"vscode_url"`
	}
	decode(r.t, r.call("GET", "/v1/sandboxes/"+box, nil).want(r.t, 200).raw, &shown)
	at, err := url.Parse(shown.VSCodeURL)
	if err != nil || at.Host == "" || at.RawQuery == "" {
		r.t.Fatalf("URL %q: %v", shown.VSCodeURL, err)
	}
	jar, err := cookiejar.New(nil)
	check(r.t, err)
	e := editor{t: r.t, at: at, http: &http.Client{Jar: jar, Transport: r.edgeTransport()}}
	e.page = e.get(at.RequestURI()) // whose token becomes a cookie
	return e
}

// edgeTransport leads every name to the edge.
func (r *rig) edgeTransport() *http.Transport {
	r.t.Helper()
	var edge struct{ Addr string }
	decode(r.t, "{"+r.api.Line(&r.api.Stderr, `"msg":"edge listens",`), &edge)
	return &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, network, edge.Addr)
		},
	}
}

// get fetches a path and what it leads to.
func (e editor) get(path string) string {
	e.t.Helper()
	ctx, cancel := context.WithTimeout(e.t.Context(), time.Minute)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+e.at.Host+path, nil)
	check(e.t, err)
	req.Header.Set("Accept", "text/html,*/*")
	res, err := e.http.Do(req)
	check(e.t, err)
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	check(e.t, err)
	if res.StatusCode != http.StatusOK {
		e.t.Fatalf("GET %s: %s: %.500s", path, res.Status, body)
	}
	return string(body)
}

// The kinds of connection that a workbench makes, and of message on them.
const (
	editorServer     = 1
	editorExtensions = 2

	editorRegular = 1
	editorControl = 2
)

// agent is a connection of the workbench's, on which messages are framed as in VS Code's
// src/vs/base/parts/ipc/common/ipc.net.ts: a byte for the kind, the message's id, the last one that was seen, the length.
type agent struct {
	t    testing.TB
	conn net.Conn
}

// connect opens one for a release of the editor, its name and commit, and shakes hands.
func (e editor) connect(release []string, kind int) agent {
	e.t.Helper()
	ctx, cancel := context.WithTimeout(e.t.Context(), 2*time.Minute)
	e.t.Cleanup(cancel)
	query := url.Values{
		"reconnectionToken": {"00000000-0000-4000-8000-00000000000" + string(rune('0'+kind))}, "reconnection": {"false"}, "skipWebSocketFrames": {"false"},
	}
	conn, _, err := websocket.Dial(ctx, "http://"+e.at.Host+"/"+release[0]+"?"+query.Encode(), &websocket.DialOptions{ //nolint:bodyclose // the library does
		HTTPClient: e.http, HTTPHeader: http.Header{"Origin": {"http://" + e.at.Host}},
	})
	check(e.t, err)
	e.t.Cleanup(func() { _ = conn.CloseNow() })
	conn.SetReadLimit(-1)
	a := agent{e.t, websocket.NetConn(ctx, conn, websocket.MessageBinary)}
	a.tell(object{"type": "auth", "auth": "00000000000000000000", "data": "x"})
	asked := a.told()
	if asked["type"] != "sign" {
		e.t.Fatalf("the editor's server begins with %v", asked)
	}
	a.tell(object{
		"type": "connectionType", "commit": release[1], "signedData": asked["data"], "desiredConnectionType": kind,
		"args": object{"language": "en", "env": object{}},
	})
	return a
}

// tell sends a control message.
func (a agent) tell(what object) {
	a.t.Helper()
	body, err := json.Marshal(what)
	check(a.t, err)
	frame := binary.BigEndian.AppendUint32(append([]byte{editorControl}, make([]byte, 8)...), uint32(len(body)))
	_, err = a.conn.Write(append(frame, body...))
	check(a.t, err)
}

// told waits for a control message.
func (a agent) told() object {
	a.t.Helper()
	kind, body := a.receive()
	var said object
	if err := json.Unmarshal(body, &said); err != nil || kind != editorControl {
		a.t.Fatalf("message of kind %d, %.500q: %v", kind, body, err)
	}
	return said
}

// receive waits for a message that says something: keep-alives and acknowledgements are empty.
func (a agent) receive() (kind byte, body []byte) {
	a.t.Helper()
	for {
		var head [13]byte
		_, err := io.ReadFull(a.conn, head[:])
		check(a.t, err)
		var text bytes.Buffer
		_, err = io.CopyN(&text, a.conn, int64(binary.BigEndian.Uint32(head[9:])))
		check(a.t, err)
		if text.Len() > 0 {
			return head[0], text.Bytes()
		}
	}
}
