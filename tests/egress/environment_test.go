package egress_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"sandyard/dev/testenv"

	"github.com/coder/websocket"
)

// proxyNames are what programs ask for in their environment. Each has its own opinion on the case.
func proxyNames() []string {
	return []string{"HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "all_proxy", "no_proxy", "SANDYARD_SOCKS_PROXY"}
}

const (
	showEnv     = "printenv; echo THE-END"
	ownProxy    = "http://127.0.0.1:1"
	patientWait = "?wait=100s"
)

// testEnvironment has all ways to start a program, each of which is told of the proxy.
func testEnvironment(t *testing.T, r *rig, _ *world) {
	id := r.create(t, object{"network": true})
	told := func(how, env string) {
		t.Helper()
		for _, name := range proxyNames() {
			if !strings.Contains("\n"+strings.ReplaceAll(env, "\r", ""), "\n"+name+"=") {
				t.Errorf("%s knows no %s: %s", how, name, env)
			}
		}
		if !strings.Contains(env, "HTTPS_PROXY=http://127.0.0.1:") || !strings.Contains(env, "no_proxy=localhost,127.0.0.1,::1") {
			t.Errorf("%s: %s", how, env)
		}
	}
	out, _ := r.run(t, id, showEnv)
	told("a command", out)
	told("a background command", r.behind(t, id))
	told("a cell of Python", r.cell(t, id, "python", "import os\nfor k, v in os.environ.items(): print(k + '=' + v)"))
	told("a cell of bash", r.cell(t, id, "bash", showEnv))
	told("a terminal", r.terminal(t, id))
	told("a command of E2B's clients", r.envd(t))
	// What the user says himself stands.
	own := r.create(t, object{"network": true, "env": object{"HTTP_PROXY": ownProxy}})
	out, _ = r.run(t, own, showEnv)
	if !strings.Contains(out, "\nHTTP_PROXY="+ownProxy+"\n") || !strings.Contains(out, "https_proxy=http://127.0.0.1:") {
		t.Errorf("with a proxy of the user's: %s", out)
	}
}

func (r *rig) behind(t *testing.T, id string) string {
	t.Helper()
	status, doc := r.call(t, "POST", "/v1/sandboxes/"+id+"/exec"+patientWait, object{"command": showEnv, "background": true})
	if status != 200 || doc.Job.State != "succeeded" {
		t.Fatalf("start a background command: %d %s", status, doc.raw)
	}
	var text string
	testenv.Eventually(t, "the background command has spoken", func() bool {
		req, err := http.NewRequestWithContext(t.Context(), "GET", r.url+"/v1/sandboxes/"+id+"/execs/"+doc.Job.ID+"/output?stream=stdout", nil)
		check(t, err)
		req.Header.Set("Authorization", "Bearer "+r.key)
		answer, err := r.http.Do(req)
		check(t, err)
		defer answer.Body.Close()
		var part struct{ Data string }
		check(t, json.NewDecoder(answer.Body).Decode(&part))
		text = part.Data
		return strings.Contains(text, "THE-END")
	})
	return text
}

func (r *rig) cell(t *testing.T, id, language, code string) string {
	t.Helper()
	status, doc := r.call(t, "POST", "/v1/sandboxes/"+id+"/code"+patientWait, object{"language": language, "code": code})
	if status != 200 || doc.Job.State != "succeeded" {
		t.Fatalf("a cell: %d %s", status, doc.raw)
	}
	return doc.Job.Stdout
}

func (r *rig) terminal(t *testing.T, id string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	at := r.url + "/v1/sandboxes/" + id + "/terminal?cols=400&command=" + url.QueryEscape(showEnv)
	conn, _, err := websocket.Dial(ctx, at, &websocket.DialOptions{HTTPHeader: http.Header{"Authorization": {"Bearer " + r.key}}}) //nolint:bodyclose // the library does
	check(t, err)
	defer func() { _ = conn.CloseNow() }()
	var text strings.Builder
	for !strings.Contains(text.String(), "THE-END") {
		kind, part, err := conn.Read(ctx)
		if err != nil {
			t.Fatalf("read the terminal: %v after %q", err, text.String())
		}
		if kind == websocket.MessageBinary {
			text.Write(part)
		}
	}
	return text.String()
}

// envd starts a command as E2B's clients do: at the guest's own door, behind the edge.
func (r *rig) envd(t *testing.T) string {
	t.Helper()
	status, doc := r.call(t, "POST", "/sandboxes", object{"templateID": "base", "timeout": 300, "secure": true, "allow_internet_access": true})
	if status != 201 {
		t.Fatalf("create: %d %s", status, doc.raw)
	}
	t.Cleanup(func() { r.remove(t, doc.SandboxID) })
	message, err := json.Marshal(object{"process": object{"cmd": "/bin/bash", "args": []string{"-l", "-c", showEnv}}})
	check(t, err)
	body := append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(message))), message...)
	req, err := http.NewRequestWithContext(t.Context(), "POST", r.edge+"/process.Process/Start", bytes.NewReader(body))
	check(t, err)
	for name, value := range map[string]string{
		"Content-Type": "application/connect+json", "Connect-Protocol-Version": "1", "E2b-Sandbox-Id": doc.SandboxID, "E2b-Sandbox-Port": "49983",
		"X-Access-Token": doc.EnvdAccessToken,
	} {
		req.Header.Set(name, value)
	}
	answer, err := r.http.Do(req)
	check(t, err)
	defer answer.Body.Close()
	if answer.StatusCode != 200 {
		why, _ := io.ReadAll(answer.Body)
		t.Fatalf("start a command: %s: %s", answer.Status, why)
	}
	var text strings.Builder
	for !strings.Contains(text.String(), "THE-END") {
		text.Write(readEvent(t, answer.Body))
	}
	return text.String()
}

// readEvent returns the output in the next message of a stream, if it holds some.
func readEvent(t *testing.T, from io.Reader) []byte {
	t.Helper()
	var head [5]byte
	_, err := io.ReadFull(from, head[:])
	check(t, err)
	raw := make([]byte, binary.BigEndian.Uint32(head[1:]))
	_, err = io.ReadFull(from, raw)
	check(t, err)
	var m struct {
		Event struct{ Data struct{ Stdout string } }
		Error any
	}
	if err := json.Unmarshal(raw, &m); err != nil || m.Error != nil || head[0] != 0 {
		t.Fatalf("the stream says %q", raw)
	}
	out, err := base64.StdEncoding.DecodeString(m.Event.Data.Stdout)
	check(t, err)
	return out
}
