package egress_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"sandyard/dev/testenv"
)

// testFromOutside comes to a public sandbox as anybody may, and tries to leave by its proxy. The sandbox's own programs get
// out, wherever the proxy listens.
func testFromOutside(t *testing.T, r *rig, w *world) {
	w.name("outside.test", "93.184.11.1")
	open := r.createE2B(t, object{"allow_internet_access": true, "network": object{"allowPublicTraffic": true}})
	moved := r.createE2B(t, object{"allow_internet_access": false, "network": object{"allowPublicTraffic": true}})
	const occupied = `"import socket, time; s = socket.create_server(('127.0.0.1', 49982)); open('taken', 'w').close(); time.sleep(600)"`
	if status, doc := r.call(t, "POST", "/v1/sandboxes/"+moved+"/exec"+patientWait, object{"command": "exec python3 -c " + occupied, "background": true}); status != 200 {
		t.Fatalf("take the proxy's port: %d %s", status, doc.raw)
	}
	testenv.Eventually(t, "the port is taken", func() bool {
		_, code := r.run(t, moved, "test -e taken")
		return code == 0
	})
	r.setEgress(t, moved, object{"allow": []string{"outside.test"}})
	for id, usual := range map[string]bool{open: true, moved: false} {
		text, _ := r.run(t, id, "printf %s $HTTP_PROXY")
		proxy, err := url.Parse(text)
		if err != nil || proxy.Port() == "" || (proxy.Port() == "49982") != usual {
			t.Fatalf("the proxy is at %q, %v", text, err)
		}
		for name, status := range map[string]int{
			"CONNECT outside.test:8000 HTTP/1.1\r\nHost: outside.test\r\n":                           http.StatusMethodNotAllowed,
			"CONNECT outside.test:8000 HTTP/1.1\r\nHost: outside.test\r\nContent-Length: 100000\r\n": http.StatusMethodNotAllowed,
			"GET http://outside.test:8000/ HTTP/1.1\r\nHost: outside.test\r\n":                       0,
			"GET / HTTP/1.1\r\nHost: outside.test\r\nConnection: Upgrade\r\nUpgrade: raw\r\n":        0,
		} {
			if status == 0 && usual {
				status = http.StatusForbidden
			} else if status == 0 {
				status = http.StatusBadGateway // nothing listens there
			}
			got, body := r.knock(t, name+"E2b-Sandbox-Id: "+id+"\r\nE2b-Sandbox-Port: "+proxy.Port()+"\r\n\r\n")
			if got != status || strings.Contains(body, "this is the sandbox's egress proxy") {
				t.Errorf("%q at port %s: %d %s", name, proxy.Port(), got, body)
			}
		}
		if n := w.at("93.184.11.1"); n != 0 {
			t.Fatalf("an outsider has come through %d times", n)
		}
	}
	for _, id := range []string{open, moved} {
		if out := r.python(t, id, get("http://outside.test:"+webPort+"/")); !strings.Contains(out, "at 93.184.11.1") {
			t.Errorf("the sandbox's own program: %s", out)
		}
	}
}

// createE2B makes a sandbox as E2B's clients do.
func (r *rig) createE2B(t *testing.T, wish object) string {
	t.Helper()
	wish["templateID"], wish["timeout"] = "base", 300
	status, doc := r.call(t, "POST", "/sandboxes", wish)
	if status != http.StatusCreated {
		t.Fatalf("create: %d %s", status, doc.raw)
	}
	t.Cleanup(func() { r.remove(t, doc.SandboxID) })
	return doc.SandboxID
}

// knock sends the edge the head of a request as it is, and returns its answer.
func (r *rig) knock(t *testing.T, head string) (status int, body string) {
	t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(r.edge, "http://"))
	check(t, err)
	defer conn.Close()
	check(t, conn.SetDeadline(time.Now().Add(patience)))
	fmt.Fprint(conn, head)
	res, err := http.ReadResponse(bufio.NewReader(conn), nil)
	check(t, err)
	defer res.Body.Close()
	text, err := io.ReadAll(io.LimitReader(res.Body, 1<<10))
	if err != nil && res.StatusCode < 300 {
		check(t, err)
	}
	return res.StatusCode, string(text)
}
