package edge_test

import (
	"bufio"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"sandyard/dev/testenv"
	"sandyard/gateway"
	"sandyard/jobs"
	"sandyard/jobs/kind"
	"sandyard/models"
)

func TestDestination(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	a, b := r.sandbox(jobs.Foreign{Public: true}), r.sandbox(jobs.Foreign{Public: true})

	byHeader := r.to(a, 8000, "GET", "/path?q=1")
	r.send(byHeader).want(t, 200, "app GET /path?q=1\n")

	byHost := r.to(b, 8000, "GET", "/")
	byHost.Host = "8000-" + a + ".sandboxes.example:8090"
	r.send(byHost).want(t, 200, "Host: 8000-"+a+".sandboxes.example:8090\n")

	closed := r.to(b, 8000, "GET", "/")
	closed.Host = "8001-" + a + ".sandboxes.example"
	r.send(closed).want(t, 502, `{"sandboxId":"`+a+`","message":"The sandbox is running but port is not open","port":8001,"code":502}`)

	for _, headers := range [][]string{
		{"E2b-Sandbox-Id", ""}, {"E2b-Sandbox-Id", "../x"}, {"E2b-Sandbox-Port", ""}, {"E2b-Sandbox-Port", "0"}, {"E2b-Sandbox-Port", "65536"},
	} {
		r.send(r.to(a, 8000, "GET", "/", headers...)).want(t, 400, `"code":400`)
	}
}

func TestOnlyRunningSandboxesAreReached(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	id := r.sandbox(jobs.Foreign{Public: true})
	gone := `{"sandboxId":"` + id + `","message":"The sandbox was not found","code":502}`
	r.send(r.to("sbnone", 8000, "GET", "/")).want(t, 502, `"sandboxId":"sbnone"`)
	r.send(r.to(id, gateway.GuestPort, "GET", "/health")).want(t, 200, "guest GET /health")

	r.change(id, &kind.Pause{}, models.SandboxPaused)
	r.eventually(id, 8000, 502, `{"sandboxId":"`+id+`","message":"The sandbox is paused; resume it first","code":502}`)
	r.change(id, &kind.Resume{}, models.SandboxRunning)
	r.send(r.to(id, 8000, "GET", "/")).want(t, 200, "app GET /")
	r.change(id, &kind.Delete{}, models.SandboxDeleted)
	r.eventually(id, 8000, 502, gone)
	r.eventually(id, gateway.GuestPort, 502, gone)
}

// eventually asks until a route that was believed has become old.
func (r *rig) eventually(id string, port, status int, body string) {
	r.t.Helper()
	deadline := time.Now().Add(testenv.Patience())
	for {
		a := r.send(r.to(id, port, "GET", "/health"))
		if a.status == status && strings.TrimSpace(a.body) == body {
			return
		}
		if time.Now().After(deadline) {
			r.t.Fatalf("still answers %d %s", a.status, a.body)
		}
	}
}

func TestPortsArePrivate(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	id, other := r.sandbox(jobs.Foreign{}), r.sandbox(jobs.Foreign{})
	token := r.signer.Traffic(id)
	for name, headers := range map[string][]string{
		"none": nil, "another in our header": {"X-Sandyard-Token", r.signer.Port(id, "pgnone")}, "wrong": {"E2b-Traffic-Access-Token", "ta_x"}, "another sandbox's": {"E2b-Traffic-Access-Token", r.signer.Traffic(other)},
		"the guest's": {"E2b-Traffic-Access-Token", r.signer.Access(id)}, "wrong cookie": {"Cookie", "sandyard_token=x"},
	} {
		if a := r.send(r.to(id, 8000, "GET", "/", headers...)); a.status != 403 {
			t.Errorf("token %s: %d %s", name, a.status, a.body)
		}
	}
	for name, req := range map[string]*http.Request{
		"header": r.to(id, 8000, "GET", "/p?q=1", "E2b-Traffic-Access-Token", token),
		"query":  r.to(id, 8000, "GET", "/p?q=1&sandyard_token="+token),
		"cookie": r.to(id, 8000, "GET", "/p?q=1", "Cookie", "a=b; sandyard_token="+token+"; c=d"),
	} {
		a := r.send(req)
		a.want(t, 200, "app GET /p?q=1\n")
		if strings.Contains(a.body, token) || strings.Contains(strings.ToLower(a.body), "sandyard") {
			t.Errorf("by %s, the sandbox sees what is not for it: %s", name, a.body)
		}
		if name == "cookie" {
			a.want(t, 200, "Cookie: a=b; c=d")
		}
	}
}

func TestBrowserGetsCookie(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	id := r.sandbox(jobs.Foreign{})
	for path, location := range map[string]string{"/a/b?x=y&sandyard_token=": "/a/b?x=y", "//evil.example/?sandyard_token=": "/evil.example/"} {
		a := r.send(r.to(id, 8000, "GET", path+r.signer.Traffic(id), "Accept", "text/html"))
		if a.status != 303 || a.header.Get("Location") != location {
			t.Errorf("%s answered %d to %q, want %q", path, a.status, a.header.Get("Location"), location)
		}
		cookie := a.header.Get("Set-Cookie")
		for _, part := range []string{r.signer.Traffic(id), "HttpOnly", "SameSite=Lax", "Path=/"} {
			if !strings.Contains(cookie, part) {
				t.Errorf("the cookie %q lacks %s", cookie, part)
			}
		}
	}
}

func TestGuestNeedsItsToken(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	id, other := r.sandbox(jobs.Foreign{Public: true}), r.sandbox(jobs.Foreign{})
	guest := func(path string, headers ...string) answer {
		return r.send(r.to(id, gateway.GuestPort, "POST", path, headers...))
	}
	for _, token := range []string{"", "ea_x", r.signer.Access(other), r.signer.Traffic(id)} {
		guest("/process.Process/Start", "X-Access-Token", token).want(t, 401, `"code":401`)
	}
	good := guest("/process.Process/Start", "X-Access-Token", r.signer.Access(id), "Sandyard-Exec", "job_1", "Sandyard-Pass", "x", "Authorization", "Basic dXNlcjo=")
	good.want(t, 200, "Authorization: Basic dXNlcjo=")
	good.want(t, 200, "X-Access-Token: "+r.signer.Access(id)) // which the guest checks once more
	for _, hidden := range []string{"Sandyard", "E2b-Sandbox"} {
		if strings.Contains(good.body, hidden) {
			t.Errorf("the guest sees %s: %s", hidden, good.body)
		}
	}
	for _, path := range []string{"/execs", "/execs/job_1/kill", "/init", "/process.Process", "/x/../execs"} {
		guest(path, "X-Access-Token", r.signer.Access(id)).want(t, 404, `"code":404`)
	}
}

func TestSignedFileURLs(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	id := r.sandbox(jobs.Foreign{})
	sign := func(path, operation, user, until string) string {
		text := path + ":" + operation + ":" + user + ":" + r.signer.Access(id)
		q := url.Values{"path": {path}, "username": {user}}
		if until != "" {
			text += ":" + until
			q.Set("signature_expiration", until)
		}
		sum := sha256.Sum256([]byte(text))
		q.Set("signature", "v1_"+base64.RawStdEncoding.EncodeToString(sum[:]))
		return "/files?" + q.Encode()
	}
	at := func(d time.Duration) string { return strconv.FormatInt(time.Now().Add(d).Unix(), 10) }
	for name, c := range map[string]struct {
		method, path string
		status       int
	}{
		"read":            {"GET", sign("/a", "read", "user", ""), 200},
		"write in time":   {"POST", sign("/a", "write", "", at(time.Hour)), 200},
		"too late":        {"GET", sign("/a", "read", "user", at(-time.Hour)), 401},
		"write by a read": {"POST", sign("/a", "read", "user", ""), 401},
		"another path":    {"GET", strings.Replace(sign("/a", "read", "user", ""), "%2Fa", "%2Fb", 1), 401},
		"longer life":     {"GET", sign("/a", "read", "user", at(-time.Hour)) + "&signature_expiration=" + at(time.Hour), 401},
		"no life given":   {"GET", strings.Replace(sign("/a", "read", "user", at(time.Hour)), "signature_expiration", "x", 1), 401},
	} {
		if a := r.send(r.to(id, gateway.GuestPort, c.method, c.path)); a.status != c.status {
			t.Errorf("%s answered %d %s, want %d", name, a.status, a.body, c.status)
		}
	}
}

func TestBothWaysAtOnce(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	id := r.sandbox(jobs.Foreign{Public: true})
	body, in := io.Pipe()
	req := r.to(id, 8000, "POST", "/")
	req.Body, req.ContentLength = body, -1
	res, err := r.client.Do(req)
	check(t, err)
	defer res.Body.Close()
	lines := bufio.NewReader(res.Body)
	for text := ""; text != "\r\n" && text != "\n"; { // the mirror's description ends with an empty line
		text, err = lines.ReadString('\n')
		check(t, err)
	}
	for i := range 5 {
		fmt.Fprintf(in, "word %d\n", i)
		got, err := lines.ReadString('\n')
		check(t, err)
		if want := fmt.Sprintf("word %d\n", i); got != want {
			t.Fatalf("read %q, want %q", got, want)
		}
	}
	check(t, in.Close())
	if rest, err := io.ReadAll(lines); err != nil || len(rest) > 0 {
		t.Errorf("after the end: %q, %v", rest, err)
	}
}

func TestUpgradedConnection(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	id := r.sandbox(jobs.Foreign{Public: true})
	conn := r.connect(t)
	fmt.Fprintf(conn, "GET /socket HTTP/1.1\r\nHost: 8000-%s.localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n", id)
	answers := bufio.NewReader(conn)
	res, err := http.ReadResponse(answers, nil)
	check(t, err)
	defer res.Body.Close()
	if res.StatusCode != http.StatusSwitchingProtocols || res.Header.Get("Upgrade") != "websocket" {
		t.Fatalf("answered %s %v", res.Status, res.Header)
	}
	for _, word := range []string{"one", "two"} {
		fmt.Fprintln(conn, word)
		got, err := answers.ReadString('\n')
		check(t, err)
		if got != strings.ToUpper(word)+"\n" {
			t.Errorf("read %q for %q", got, word)
		}
	}
	r.stop()
	if _, err := answers.ReadByte(); err == nil {
		t.Error("the connection goes on after the edge has ended")
	}
}

func TestTrafficIsUse(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	used, unused := r.sandbox(jobs.Foreign{Public: true}), r.sandbox(jobs.Foreign{Public: true})
	before := map[string]time.Time{used: r.lastActive(used), unused: r.lastActive(unused)}
	r.send(r.to(used, 8000, "GET", "/")).want(t, 200, "")
	r.stop() // it writes down what it has seen
	if !r.lastActive(used).After(before[used]) {
		t.Error("traffic does not count as use")
	}
	if !r.lastActive(unused).Equal(before[unused]) {
		t.Error("a sandbox without traffic counts as used")
	}
}

func (r *rig) lastActive(id string) time.Time {
	r.t.Helper()
	box, err := r.store.Sandbox(r.t.Context(), "default", id)
	check(r.t, err)
	return box.LastActiveAt
}

func TestGatewayServesOnlyTheEdge(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	id := r.sandbox(jobs.Foreign{Public: true})
	soon := time.Now().Add(time.Minute)
	for pass, status := range map[string]int{
		"":                               403,
		"x":                              403,
		r.signer.Traffic(id):             403,
		r.signer.Gateway(id, 8000, soon): 200,
		r.signer.Gateway(id, 8000, time.Now().Add(-time.Minute)): 403,
		r.signer.Gateway("sbnone", 8000, soon):                   502, // another node's
	} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, r.gateway+"/", http.NoBody)
		check(t, err)
		req.Header.Set(gateway.PassHeader, pass)
		a := r.send(req)
		a.want(t, status, "")
		if status == 200 && strings.Contains(a.body, pass) {
			t.Error("the sandbox sees the pass")
		}
	}
}
