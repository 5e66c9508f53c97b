package e2e_test

import (
	"bytes"
	"context"
	"crypto/des"
	"encoding/binary"
	"encoding/json"
	pictures "image"
	"image/color"
	"image/png"
	"io"
	"math/bits"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"sandyard/dev/testenv"

	"github.com/coder/websocket"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// pageShown is what the sandbox of TestBrowser serves: white words on blue, and a form.
const pageShown = `<!doctype html><meta charset=utf-8><title>Yard</title>
<body style="margin:0;background:rgb(16,32,160)">
<h1 style="margin:40px;font:80px sans-serif;color:white">Readable words</h1>
<form onsubmit="document.querySelector('h1').textContent=this.elements[0].value;return false">
<input id=name><button>Say it</button></form>
<a href=/next.html target=_blank>next</a><p style="margin-top:3000px">the end</p>`

// seen is what a browser tool answers.
type seen struct {
	Tab    string
	URL    string
	Title  string
	Status int
	Text   string
	Tabs   []struct{ Tab, URL string }
	VNC    *struct {
		Port     int
		Path     string
		Password string
	}
	Error struct{ Code, Message string }
	Box   string `json:"sandbox_id"`

	image []byte
	media string
}

func (a toolUser) see(tool string, args object) (out seen) {
	a.t.Helper()
	res, err := a.session.CallTool(context.Background(), &mcp.CallToolParams{Name: tool, Arguments: args})
	check(a.t, err)
	raw, err := json.Marshal(res.StructuredContent)
	check(a.t, err)
	decode(a.t, string(raw), &out)
	for _, c := range res.Content {
		if picture, ok := c.(*mcp.ImageContent); ok {
			out.image, out.media = picture.Data, picture.MIMEType
		}
	}
	return out
}

// failed checks that a tool has failed with a code, and a message that has the part.
func (s seen) failed(t testing.TB, code, part string) {
	t.Helper()
	if s.Error.Code != code || !strings.Contains(s.Error.Message, part) {
		t.Errorf("answered %+v, want %s with %q", s.Error, code, part)
	}
}

// act is see with browser_action, which must not fail.
func (a toolUser) act(args object) seen {
	a.t.Helper()
	s := a.see("browser_action", args)
	if s.Error.Code != "" {
		a.t.Fatalf("%v: %+v", args, s.Error)
	}
	return s
}

// TestBrowser drives Chromium in a sandbox of the template browser with the tools, on a page that the sandbox serves itself,
// and looks at the screen over VNC.
func TestBrowser(t *testing.T) {
	testenv.Long(t, "it takes many seconds and 2 GiB of memory")
	t.Parallel()
	const browserImage = "sandyard/browser:default"
	r := prepare(t, "SANDBOX_TEMPLATES", "python="+image+",browser="+browserImage)
	if _, err := r.engine.api.ImageInspect(t.Context(), browserImage); err != nil {
		t.Skipf("skipped: no image %s; make image TEMPLATE=browser makes it: %v", browserImage, err)
	}
	r.startAll()
	none := r.toolUser("plain&tools=browser").see("browser_info", nil)
	none.failed(t, "no_browser", "?template=browser")
	a := r.toolUser("web&template=browser&tools=core,browser")
	a.see("browser_open", object{"url": "http://localhost:8000/"}).failed(t, "browser_failed", "ERR_CONNECTION_REFUSED")
	if s := a.see("browser_open", object{"url": "http://10.1.2.3/"}); s.Status != http.StatusForbidden {
		t.Errorf("an address that the sandbox's policy does not allow: %+v", s)
	}
	a.call("file_write", object{"file": "site/index.html", "content": pageShown})
	a.call("file_write", object{"file": "site/next.html", "content": "<title>Next</title>another page"})
	a.call("shell_exec", object{"command": "python3 -m http.server 8000 -d site", "background": true})
	a.call("shell_exec", object{"command": "until curl -sf localhost:8000 >page; do sleep 0.1; done"})

	first := a.see("browser_open", object{"url": "http://localhost:8000/"})
	if first.Status != 200 || first.Title != "Yard" || !strings.HasPrefix(first.Text, "Readable words\n") {
		t.Fatalf("the page: %+v", first)
	}
	words := a.seePixels(a.see("browser_screenshot", object{"selector": "h1"}), "the words")
	whole := a.seePixels(a.act(object{"action_type": "screenshot"}), "the page")
	if whole.Dx() < 1000 || whole.Dy() <= words.Dy() {
		t.Errorf("the page has %v, its heading %v", whole, words)
	}
	a.operate(first.Tab)
	a.refuses()
	info := a.see("browser_info", nil)
	if len(info.Tabs) != 2 || info.VNC == nil || len(info.VNC.Password) != 8 {
		t.Fatalf("browser_info: %+v", info)
	}
	r.watch(info)
	other := r.toolUser("other&template=browser&tools=browser").see("browser_info", nil)
	if other.VNC == nil || other.VNC.Password == info.VNC.Password {
		t.Errorf("two sandboxes have the passwords %+v and %+v", info.VNC, other.VNC)
	}
	r.clean()
}

// seePixels decodes a picture, in which there must be blue and, of white, as much as words have.
func (a toolUser) seePixels(s seen, what string) pictures.Rectangle {
	a.t.Helper()
	if s.media != "image/png" {
		a.t.Fatalf("%s: %q, %+v", what, s.media, s.Error)
	}
	picture, err := png.Decode(bytes.NewReader(s.image))
	check(a.t, err)
	white, blue := 0, 0
	at := picture.Bounds()
	for y := at.Min.Y; y < at.Max.Y; y++ {
		for x := at.Min.X; x < at.Max.X; x++ {
			switch color.RGBAModel.Convert(picture.At(x, y)) {
			case color.RGBA{255, 255, 255, 255}:
				white++
			case color.RGBA{16, 32, 160, 255}:
				blue++
			}
		}
	}
	if white < 2000 || white > blue {
		a.t.Errorf("%s: of %v pixels %d are white and %d blue", what, at, white, blue)
	}
	return at
}

// operate uses the page as a person does.
func (a toolUser) operate(tab string) {
	a.t.Helper()
	heading := func() string { return a.act(object{"action_type": "text", "selector": "h1", "tab": tab}).Text }
	a.act(object{"action_type": "type", "selector": "#name", "text": "Ärger & <Sons>"})
	a.act(object{"action_type": "click", "selector": "text=Say it"})
	if got := heading(); got != "Ärger & <Sons>" {
		a.t.Errorf("after type and click the page says %q", got)
	}
	a.act(object{"action_type": "fill", "selector": "#name", "text": "filled"})
	a.act(object{"action_type": "press", "key": "Enter"})
	if got := heading(); got != "filled" {
		a.t.Errorf("after fill and press the page says %q", got)
	}
	a.act(object{"action_type": "hotkey", "keys": []string{"Control", "a"}})
	a.act(object{"action_type": "type", "text": "over"})
	a.act(object{"action_type": "press", "key": "Enter"})
	if got := heading(); got != "over" {
		a.t.Errorf("after hotkey the page says %q", got)
	}
	before := a.act(object{"action_type": "screenshot"})
	a.act(object{"action_type": "scroll", "x": 400, "y": 300, "delta_y": 2900})
	if after := a.act(object{"action_type": "screenshot"}); bytes.Equal(before.image, after.image) {
		a.t.Error("after scroll the page looks the same")
	}
	next := a.act(object{"action_type": "click", "selector": "text=next"})
	if next.Title != "Next" || next.Tab == tab {
		a.t.Errorf("a link to a new tab leads to %+v", next)
	}
	there := a.act(object{"action_type": "navigate", "url": "http://localhost:8000/"})
	if there.Title != "Yard" || there.Tab != next.Tab {
		a.t.Errorf("navigate leads to %+v", there)
	}
	if s := a.act(object{"action_type": "back"}); s.Title != "Next" {
		a.t.Errorf("back leads to %+v", s)
	}
	a.act(object{"action_type": "wait", "selector": "text=another page"})
}

// refuses asks for what cannot be done, after which the browser is still there.
func (a toolUser) refuses() {
	a.t.Helper()
	for part, args := range map[string]object{
		"there is no action fly":    {"action_type": "fly"},
		"click needs selector":      {"action_type": "click"},
		"there is no tab X":         {"action_type": "text", "tab": "X"},
		"Timeout 1000ms exceeded":   {"action_type": "click", "selector": "#nothing", "timeout": 1},
		"must be a whole URL":       {"action_type": "navigate", "url": "javascript:alert(1)"},
		"must be between 1 and 15":  {"action_type": "text", "timeout": 100},
		"press needs key or keys":   {"action_type": "press"},
		"Unknown key: \"Nonsense\"": {"action_type": "press", "key": "Nonsense"},
	} {
		code := "browser_failed"
		if strings.HasPrefix(part, "must be") {
			code = "invalid_request"
		}
		a.see("browser_action", args).failed(a.t, code, part)
	}
}

// watch opens the screen as noVNC does, with the sandbox's password and with another.
func (r *rig) watch(info seen) {
	r.t.Helper()
	var opened struct {
		Job struct{ Result struct{ URL string } }
	}
	answer := r.call("POST", "/v1/sandboxes/"+info.Box+"/ports?wait=60s", object{"port": info.VNC.Port}).want(r.t, 200)
	decode(r.t, answer.raw, &opened)
	at, err := url.Parse(opened.Job.Result.URL)
	check(r.t, err)
	at.Path = info.VNC.Path
	if page := r.browse(at.String()); !strings.Contains(page, "noVNC") {
		r.t.Errorf("the page is %.300s", page)
	}
	for password, want := range map[string]uint32{info.VNC.Password: 0, "another1": 1} {
		if got := r.enterScreen(at, password); got != want {
			r.t.Errorf("with the password %q VNC answers %d, want %d", password, got, want)
		}
	}
}

// enterScreen says what a VNC server answers to a password (RFC 6143, 7.1 and 7.2.2): 0 = it is right.
func (r *rig) enterScreen(at *url.URL, password string) uint32 {
	r.t.Helper()
	var edge struct{ Addr string }
	decode(r.t, "{"+r.api.Line(&r.api.Stderr, `"msg":"edge listens",`), &edge)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	dial := func(ctx context.Context, network, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, network, edge.Addr)
	}
	o := &websocket.DialOptions{
		HTTPClient: &http.Client{Transport: &http.Transport{DialContext: dial}}, Subprotocols: []string{"binary"},
		HTTPHeader: http.Header{"X-Sandyard-Token": {at.Query().Get("sandyard_token")}},
	}
	ws, _, err := websocket.Dial(ctx, "ws://"+at.Host+"/websockify", o) //nolint:bodyclose // the library does
	check(r.t, err)
	defer func() { _ = ws.CloseNow() }()
	conn := websocket.NetConn(ctx, ws, websocket.MessageBinary)
	read := func(n int) []byte {
		r.t.Helper()
		b := make([]byte, n)
		_, err := io.ReadFull(conn, b)
		check(r.t, err)
		return b
	}
	write := func(b []byte) { _, err := conn.Write(b); check(r.t, err) }
	write(read(12)) // its version
	kinds := read(int(read(1)[0]))
	if !bytes.Equal(kinds, []byte{2}) {
		r.t.Fatalf("VNC offers the kinds of security %v, want a password alone", kinds)
	}
	write(kinds)
	key := make([]byte, 8)
	copy(key, password)
	for i := range key {
		key[i] = bits.Reverse8(key[i])
	}
	cipher, err := des.NewCipher(key) //nolint:gosec // VNC's own
	check(r.t, err)
	challenge := read(16)
	answer := make([]byte, 16)
	cipher.Encrypt(answer, challenge)
	cipher.Encrypt(answer[8:], challenge[8:])
	write(answer)
	return binary.BigEndian.Uint32(read(4))
}
