package edge_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"sandyard/dev/testenv"
	"sandyard/jobs"
	"sandyard/jobs/kind"
	"sandyard/models"
)

// grant opens a port by a job.
func (r *rig) grant(id string, p kind.Port) kind.PortResult {
	r.t.Helper()
	var res kind.PortResult
	stored := r.finish(id, &p).Result
	check(r.t, json.Unmarshal(stored, &res))
	if strings.Contains(string(stored), "token") || res.URL != "" {
		r.t.Errorf("the stored result says %s", stored)
	}
	if !p.Public { // as an answer does
		res.Token = r.signer.Port(id, res.ID)
	}
	return res
}

// answers asks until a port answers with a status: what the edge believes may be a second old. An answer that the edge
// cuts is none, for a grant may end while it is on its way.
func (r *rig) answers(status int, id string, port int, headers ...string) {
	r.t.Helper()
	r.eventuallyTrue(fmt.Sprintf("port %d with %v answers %d", port, headers, status), func() bool {
		a, err := r.try(r.to(id, port, "GET", "/p?q=1", headers...))
		return err == nil && a.status == status
	})
}

func TestPortGrant(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	id, other := r.sandbox(jobs.Foreign{}), r.sandbox(jobs.Foreign{})
	private := r.grant(id, kind.Port{Port: 8000})
	closed := r.grant(id, kind.Port{Port: 8001})
	if !private.Listening || closed.Listening {
		t.Errorf("granted %+v and %+v", private, closed)
	}
	if life := time.Until(private.ExpiresAt); life > time.Hour || life < 50*time.Minute {
		t.Errorf("it lasts %v", life)
	}
	r.answers(200, id, 8000, "X-Sandyard-Token", private.Token)
	r.send(r.to(id, 8000, "GET", "/", "E2b-Traffic-Access-Token", private.Token)).want(t, 200, "")
	r.send(r.to(id, 8000, "GET", "/", "Cookie", "sandyard_token=tossed; sandyard_token="+private.Token)).want(t, 200, "")
	page := r.send(r.to(id, 8000, "GET", "/a?x=y&sandyard_token="+url.QueryEscape(private.Token), "Accept", "text/html"))
	if page.want(t, 303, ""); page.header.Get("Location") != "/a?x=y" || !strings.Contains(page.header.Get("Set-Cookie"), private.Token) {
		t.Errorf("a browser is sent to %q with %q", page.header.Get("Location"), page.header.Get("Set-Cookie"))
	}
	r.answers(502, id, 8001, "X-Sandyard-Token", closed.Token)
	for name, req := range map[string]*http.Request{
		"no token":              r.to(id, 8000, "GET", "/"),
		"another port's":        r.to(id, 8000, "GET", "/", "X-Sandyard-Token", closed.Token),
		"another sandbox's":     r.to(other, 8000, "GET", "/", "X-Sandyard-Token", private.Token),
		"one of the same shape": r.to(id, 8000, "GET", "/", "X-Sandyard-Token", strings.Replace(private.Token, private.ID, closed.ID, 1)),
		"the guest's port":      r.to(id, 49983, "GET", "/files?path=/", "X-Sandyard-Token", private.Token),
	} {
		if a := r.send(req); a.status != 403 && a.status != 401 {
			t.Errorf("%s: %d %s", name, a.status, a.body)
		}
	}
}

// TestFreshGrantsHold at once, although the edge has just learnt of the sandbox without them.
func TestFreshGrantsHold(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	id := r.sandbox(jobs.Foreign{})
	for i := range 5 {
		r.send(r.to(id, 8000, "GET", "/")).want(t, 403, "")
		granted := r.grant(id, kind.Port{Port: 8000})
		r.send(r.to(id, 8000, "GET", "/p?q=1", "X-Sandyard-Token", granted.Token)).want(t, 200, "")
		if i == 4 {
			r.grant(id, kind.Port{Port: 8000, Public: true})
			r.send(r.to(id, 8000, "GET", "/p?q=1")).want(t, 200, "")
		}
	}
}

func TestGrantsEnd(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	id := r.sandbox(jobs.Foreign{})
	first, second := r.grant(id, kind.Port{Port: 8000}), r.grant(id, kind.Port{Port: 8000})
	short := r.grant(id, kind.Port{Port: 8000, ExpiresInSeconds: 1})
	r.answers(403, id, 8000, "X-Sandyard-Token", short.Token)
	r.answers(200, id, 8000, "X-Sandyard-Token", first.Token)
	r.revoke(id, first.ID, 1)
	r.answers(403, id, 8000, "X-Sandyard-Token", first.Token)
	r.answers(200, id, 8000, "X-Sandyard-Token", second.Token)

	r.grant(id, kind.Port{Port: 8000, Public: true})
	r.answers(200, id, 8000)
	r.send(r.to(id, 8001, "GET", "/")).want(t, 403, "this port is private")
	r.revoke(id, "", 2)
	r.answers(403, id, 8000)
	r.answers(403, id, 8000, "X-Sandyard-Token", second.Token)
	r.revoke(id, "", 0)
}

func (r *rig) revoke(id, grant string, want int) {
	r.t.Helper()
	gone, err := r.store.RevokePort(r.t.Context(), "default", id, 8000, grant)
	check(r.t, err)
	if len(gone) != want {
		r.t.Errorf("revoked %+v, want %d", gone, want)
	}
}

// TestRevocationEndsOpenStreams: a stream lives as long as what let it in, and no stream suffers from another's end.
func TestRevocationEndsOpenStreams(t *testing.T) {
	testenv.Long(t, "it takes many seconds")
	t.Parallel()
	r := newRig(t)
	id := r.sandbox(jobs.Foreign{})
	revoked, kept := r.grant(id, kind.Port{Port: 8000}), r.grant(id, kind.Port{Port: 8000})
	short := r.grant(id, kind.Port{Port: 8000, ExpiresInSeconds: 20})
	_, ends := r.socket(id, revoked.Token)
	stays, answers := r.socket(id, kept.Token)
	_, expires := r.socket(id, short.Token)
	slow, err := r.client.Do(r.openEnded(id, revoked.Token))
	check(t, err)
	defer slow.Body.Close()
	r.revoke(id, revoked.ID, 1)
	if rest, err := ends.ReadByte(); err == nil {
		t.Errorf("the revoked WebSocket goes on with %q", rest)
	}
	if _, err := bufio.NewReader(slow.Body).ReadString(0); err == nil {
		t.Error("the revoked request goes on")
	}
	if rest, err := expires.ReadByte(); err == nil {
		t.Errorf("the expired WebSocket goes on with %q", rest)
	}
	fmt.Fprintln(stays, "still")
	if line, err := answers.ReadString('\n'); line != "STILL\n" {
		t.Errorf("the other WebSocket says %q, %v", line, err)
	}
}

// socket opens a WebSocket to port 8000.
func (r *rig) socket(id, token string) (net.Conn, *bufio.Reader) {
	r.t.Helper()
	conn := r.connect(r.t)
	fmt.Fprintf(conn, "GET /socket?sandyard_token=%s HTTP/1.1\r\nHost: 8000-%s.localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n", token, id)
	answers := bufio.NewReader(conn)
	res, err := http.ReadResponse(answers, nil)
	check(r.t, err)
	check(r.t, res.Body.Close())
	if res.StatusCode != http.StatusSwitchingProtocols {
		r.t.Fatalf("answered %s", res.Status)
	}
	return conn, answers
}

// openEnded is a request whose body, and so whose answer, never ends.
func (r *rig) openEnded(id, token string) *http.Request {
	r.t.Helper()
	req := r.to(id, 8000, "POST", "/", "X-Sandyard-Token", token)
	here, there := net.Pipe()
	r.t.Cleanup(func() { here.Close(); there.Close() })
	req.Body, req.ContentLength = here, -1
	return req
}

// TestToolsHaveGrantsOfTheirOwn: the URL of a template's tool opens one port of one sandbox, until it is revoked. Without
// its token nobody gets there, even where the sandbox's other ports are public.
func TestToolsHaveGrantsOfTheirOwn(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	_, err := r.store.PutTemplate(t.Context(), models.Owner{Tenant: "default"}, models.Template{
		Name: "tools", Image: "fake", Definition: models.Definition{MCPPort: 8001, VSCodePort: 8000},
	})
	check(t, err)
	id, other := r.create(jobs.CreateSandbox{Template: "tools"}), r.create(jobs.CreateSandbox{Template: "tools"})
	public := r.create(jobs.CreateSandbox{Template: "tools", Foreign: jobs.Foreign{Public: true}})
	token := r.signer.Port(id, models.ToolGrant(models.VSCode, id))
	r.send(r.to(id, 8000, "GET", "/", "X-Sandyard-Token", token)).want(t, 200, "app GET")
	r.send(r.to(id, 8001, "GET", "/", "X-Sandyard-Token", token)).want(t, 403, "for another port")
	r.send(r.to(other, 8000, "GET", "/", "X-Sandyard-Token", token)).want(t, 403, "for another port")
	r.send(r.to(id, 8001, "GET", "/", "X-Sandyard-Token", r.signer.Port(id, models.ToolGrant(models.MCP, id)))).want(t, 502, "port is not open")
	r.send(r.to(public, 9000, "GET", "/")).want(t, 502, "port is not open")
	r.send(r.to(public, 8000, "GET", "/")).want(t, 403, "private")
	opens := r.signer.Port(public, models.ToolGrant(models.VSCode, public))
	r.send(r.to(public, 8000, "GET", "/", "X-Sandyard-Token", opens)).want(t, 200, "app GET")
	for sandbox, want := range map[string]int{id: 2, other: 2, public: 2} {
		grants, err := r.store.PortGrants(t.Context(), "default", sandbox)
		check(t, err)
		if len(grants) != want || (want > 0 && grants[0].ExpiresAt != nil) {
			t.Errorf("%s has the grants %+v", sandbox, grants)
		}
	}
	_, ends := r.socket(id, token)
	r.revoke(id, "", 1)
	r.answers(403, id, 8000, "X-Sandyard-Token", token)
	if rest, err := ends.ReadByte(); err == nil {
		t.Errorf("the revoked WebSocket goes on with %q", rest)
	}
	_, err = r.store.PruneGrants(t.Context(), 0, 100)
	check(t, err)
	if left, err := r.store.CountPortGrants(t.Context(), "default", id); left != 1 || err != nil {
		t.Errorf("of a living sandbox %d grants are left, %v", left, err)
	}
}
