//go:build e2b

package e2b

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"sandyard/dev/testenv"
	"sandyard/gateway"
	"sandyard/providers"
	"sandyard/providers/e2b"
	"sandyard/providers/providertest"
	"sandyard/providers/providertest/fixture"
)

// TestProvider holds the provider e2b to the contract, with a whole installation in the vendor's place.
func TestProvider(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	providertest.Run(t, func(t *testing.T) providers.Provider { return s.provider(t) }, fixture.Options{
		Image: "base", Script: fixture.Bash(), System: true,
	})
}

// provider is another worker's, with this installation in the vendor's place.
func (s *stack) provider(t *testing.T) *e2b.Provider {
	t.Helper()
	p, err := e2b.New(e2b.Config{
		APIKey: s.key, URL: s.apiURL(), DataURL: s.edgeURL(), Fleet: "inner",
	})
	check(t, err)
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return p
}

// TestProvidersSandboxForItsClient gives a sandbox that the provider made to the vendor's own Python client.
func TestProvidersSandboxForItsClient(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	s.holdE2B()
	p := s.provider(t)
	made, err := p.Create(
		t.Context(),
		providers.Spec{
			ID:     "forclients",
			Image:  "base",
			Labels: map[string]string{"suite": "provider"},
			Env:    map[string]string{"GREETING": "hello"},
		},
	)
	check(t, err)
	t.Cleanup(func() {
		if err := p.Delete(context.Background(), "forclients"); err != nil {
			t.Error(err)
		}
	})
	box, err := p.Open(t.Context(), "forclients")
	check(t, err)
	_, err = box.WriteFile(t.Context(), "from-provider", []byte("by the provider"), 0)
	check(t, err)
	s.drive("venv/bin/python", "provider.py", "python/provider.py", made.Ref)
	data, err := box.ReadFile(t.Context(), "from-client", 100)
	if err != nil || string(data) != "by the client" {
		t.Errorf("what the client wrote is read as %q, %v", data, err)
	}
}

// upgrading is a server that answers with what reached it, and speaks another protocol with who asks for that.
const upgrading = `
import http.server
class H(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_GET(self):
        if self.headers.get("Upgrade"):
            self.send_response(101)
            self.send_header("Connection", "Upgrade")
            self.send_header("Upgrade", "echo")
            self.end_headers()
            self.wfile.write(b"echo " + self.rfile.readline())
            self.close_connection = True
            return
        told = "%s %s" % (self.path, [n for n in self.headers if "traffic" in n.lower() or "preview" in n.lower()])
        self.send_response(418)
        self.send_header("Content-Length", str(len(told)))
        self.end_headers()
        self.wfile.write(told.encode())
http.server.ThreadingHTTPServer(("127.0.0.1", 8001), H).serve_forever()
`

// TestProvidersPorts reaches a program in a sandbox through the vendor's proxy, by HTTP and by what follows an upgrade.
func TestProvidersPorts(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	reachesPorts(t, "E2b-Sandbox-Id: other", s.provider(t), s.provider(t))
}

// reachesPorts does that through the worker that makes the sandbox, and through another one. Own is a header of the vendor's.
func reachesPorts(t *testing.T, own string, maker, another providers.Provider) {
	t.Helper()
	_, err := maker.Create(t.Context(), providers.Spec{ID: "forports"})
	check(t, err)
	t.Cleanup(func() { check(t, maker.Delete(context.Background(), "forports")) })
	for name, worker := range map[string]providers.Provider{"the worker that made it": maker, "another worker": another} {
		box, err := worker.Open(t.Context(), "forports")
		check(t, err)
		_, err = box.(gateway.PortDialer).DialPort(t.Context(), 8002)
		if providers.AsError(err).Class != providers.Invalid {
			t.Errorf("%s: a port on which nobody listens: %v", name, err)
		}
		check(
			t,
			box.(providers.Starter).Start(
				t.Context(),
				providers.Command{Name: "server", Argv: []string{"python3", "-c", upgrading}},
			),
		)
		conn := dialPort(t, box, 8001)
		for range 2 { // on one connection
			_, err = io.WriteString(conn, "GET /a%20b?c=d HTTP/1.1\r\nHost: x\r\n"+own+"\r\n\r\n")
			check(t, err)
			res, err := http.ReadResponse(bufio.NewReader(conn), nil) //nolint:bodyclose // it ends with the connection
			check(t, err)
			text, err := io.ReadAll(res.Body)
			check(t, err)
			if want := "/a%20b?c=d []"; res.StatusCode != 418 || string(text) != want {
				t.Errorf("%s: %d %q, want %q", name, res.StatusCode, text, want)
			}
		}
		check(t, conn.Close())
		conn = dialPort(t, box, 8001)
		_, err = io.WriteString(conn, "GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
		check(t, err)
		from := bufio.NewReader(conn)
		res, err := http.ReadResponse(from, nil) //nolint:bodyclose // it ends with the connection
		check(t, err)
		_, err = io.WriteString(conn, "hello\n")
		check(t, err)
		text, err := io.ReadAll(from)
		if err != nil || res.StatusCode != http.StatusSwitchingProtocols || string(text) != "echo hello\n" {
			t.Errorf("%s: an upgrade answers %d %q, %v", name, res.StatusCode, text, err)
		}
		check(t, conn.Close())
	}
}

// dialPort waits for the program that is to listen.
func dialPort(t *testing.T, box providers.Sandbox, port uint16) (conn net.Conn) {
	t.Helper()
	testenv.Eventually(t, "the program listens", func() bool {
		var err error
		conn, err = box.(gateway.PortDialer).DialPort(t.Context(), port)
		return err == nil
	})
	check(t, conn.SetDeadline(time.Now().Add(testenv.Patience())))
	return conn
}

// TestSandyardOverSandyard sends requests to an installation whose sandboxes are made by another one.
func TestSandyardOverSandyard(t *testing.T) {
	t.Parallel()
	s := &stack{t: t, api: listen(t), edge: listen(t), log: &lockedLog{}, over: newStack(t)}
	s.over.holdE2B()
	s.begin()
	s.makesElsewhere(s.over.key, []string{"/pause", "/resume"}, func() (int, error) {
		left, err := s.over.store.LiveSandboxes(t.Context(), 10)
		return len(left), err
	})
}

// makesElsewhere uses a sandbox of the installation, which is made at a vendor: by a key, which no log shows. It makes
// some changes to it. Living counts those that are there.
func (s *stack) makesElsewhere(key string, changes []string, living func() (int, error)) {
	s.t.Helper()
	box := s.ask("POST", "/v1/sandboxes?wait=60s", map[string]any{"env": map[string]string{"A": "b"}}, 200)
	made, _ := box["sandbox"].(map[string]any)
	id, _ := made["id"].(string)
	if id == "" {
		s.t.Fatalf("created: %v", box)
	}
	at := "/v1/sandboxes/" + id
	done := s.ask("POST", at+"/exec?wait=60s", map[string]any{"command": "echo $A; cat; exit 3", "stdin": "in"}, 200)
	job, _ := done["job"].(map[string]any)
	if r, _ := job["result"].(map[string]any); job["stdout"] != "b\nin" || r["exit_code"] != 3.0 {
		s.t.Errorf("exec: %v", done)
	}
	for _, change := range changes {
		done = s.ask("POST", at+change+"?wait=60s", map[string]any{}, 200)
		if job, _ = done["job"].(map[string]any); job["state"] != "succeeded" {
			s.t.Errorf("%s: %v", change, done)
		}
	}
	if n, err := living(); err != nil || n != 1 {
		s.t.Errorf("the vendor has %d sandboxes, %v", n, err)
	}
	s.ask("DELETE", at+"?wait=60s", nil, 200)
	if n, err := living(); err != nil || n != 0 {
		s.t.Errorf("after the delete the vendor has %d sandboxes, %v", n, err)
	}
	if strings.Contains(s.log.String(), key) {
		s.t.Error("the key is in a log")
	}
}

// ask makes a request of our own API.
func (s *stack) ask(method, path string, body any, status int) (answer map[string]any) {
	s.t.Helper()
	return s.askAs(s.ownKey, method, path, body, status)
}

// askAs is ask with a key. An answer without a body is empty.
func (s *stack) askAs(key, method, path string, body any, status int) (answer map[string]any) {
	s.t.Helper()
	text, err := json.Marshal(body)
	check(s.t, err)
	to := "http://" + s.api.Addr().String() + path
	req, err := http.NewRequestWithContext(s.t.Context(), method, to, bytes.NewReader(text))
	check(s.t, err)
	req.Header.Set("Authorization", "Bearer "+key)
	req.Header.Set("Content-Type", "application/json")
	res, err := http.DefaultClient.Do(req)
	check(s.t, err)
	defer res.Body.Close()
	raw, err := io.ReadAll(res.Body)
	check(s.t, err)
	if res.StatusCode != status {
		s.t.Fatalf("%s %s: %d %s", method, path, res.StatusCode, raw)
	}
	if len(raw) == 0 {
		return nil
	}
	if err := json.Unmarshal(raw, &answer); err != nil {
		s.t.Fatalf("%s %s: %s", method, path, raw)
	}
	return answer
}
