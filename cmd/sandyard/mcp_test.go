package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestMCPInitKeepsWhatIsThere writes each client's file twice: into nothing, and into one that has other things.
func TestMCPInitKeepsWhatIsThere(t *testing.T) {
	t.Chdir(t.TempDir())
	t.Setenv("CODEX_HOME", filepath.Join(t.TempDir(), "codex"))
	t.Setenv("SANDYARD_URL", "https://yard.test/")
	const other = `{"mcpServers": {"other": {"command": "x"}}, "servers": {"other": {"command": "x"}}, "inputs": [{"id": "a"}], "big": 12345678901234567890}`
	for client, file := range map[string]string{
		"claude": ".mcp.json", "cursor": ".cursor/mcp.json", "vscode": ".vscode/mcp.json", "codex": os.Getenv("CODEX_HOME") + "/config.toml",
	} {
		old := other
		if client == "codex" {
			old = "model = \"o\" # mine"
		}
		for _, before := range []string{"", old} {
			if before != "" {
				check(t, errors.Join(os.WriteFile(file, []byte(before), 0o600), os.Chmod(file, 0o640)))
			}
			said, err := run(t, "", "mcp", "init", client)
			check(t, err)
			text := read(t, file)
			if !strings.Contains(text, `"https://yard.test/mcp"`) || strings.Contains(text, "sy_") || !strings.Contains(said, file) {
				t.Errorf("%s: said %q, wrote %s", client, said, text)
			}
			if before != "" && client != "codex" {
				keeps(t, before, text)
			} else if !strings.HasPrefix(text, before) {
				t.Errorf("%s: %s", client, text)
			}
			if said, err := run(t, "", "mcp", "init", client); err != nil || !strings.Contains(said, "already") || read(t, file) != text {
				t.Errorf("%s a second time: %q, %v", client, said, err)
			}
		}
		if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o640 {
			t.Errorf("%s: %v, %v", client, info.Mode(), err)
		}
		text := read(t, file)
		if _, err := run(t, "", "mcp", "init", "--url", "http://elsewhere", client); err == nil || read(t, file) != text {
			t.Errorf("%s: another entry was replaced: %v", client, err)
		}
	}
	_, err := run(t, "", "mcp", "init", "--force", "--url", "http://elsewhere", "claude")
	check(t, err)
	if text := read(t, ".mcp.json"); !strings.Contains(text, "http://elsewhere/mcp") || strings.Contains(text, "yard.test") {
		t.Errorf("with --force: %s", text)
	}
	const commented = "{\n  // mine\n  \"servers\": {}\n}\n"
	check(t, os.WriteFile(".vscode/mcp.json", []byte(commented), 0o600))
	if _, err := run(t, "", "mcp", "init", "vscode"); err == nil || !strings.Contains(err.Error(), "add this by hand") || read(t, ".vscode/mcp.json") != commented {
		t.Errorf("a file with comments: %v", err)
	}
	for _, args := range [][]string{{}, {"emacs"}, {"claude", "cursor"}, {"--url", "yard", "claude"}} {
		if _, err := run(t, "", append([]string{"mcp", "init"}, args...)...); err == nil {
			t.Errorf("%v was accepted", args)
		}
	}
}

// keeps checks that all of before is in after, with the servers that were added.
func keeps(t *testing.T, before, after string) {
	t.Helper()
	var old, now map[string]any
	for text, into := range map[string]*map[string]any{before: &old, after: &now} {
		d := json.NewDecoder(strings.NewReader(text))
		d.UseNumber()
		check(t, d.Decode(into))
	}
	if now["big"] != old["big"] || !strings.Contains(after, `"id": "a"`) || strings.Count(after, `"command": "x"`) != 2 {
		t.Errorf("of %s was left %s", before, after)
	}
}

func read(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	check(t, err)
	return string(text)
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestMCPBridgeSendsAgain has a server that is busy, breaks off, and refuses.
func TestMCPBridgeSendsAgain(t *testing.T) {
	var sent []string
	replies := []func(http.ResponseWriter){
		func(w http.ResponseWriter) {
			w.Header().Set(sessionHeader, "mcps_1")
			event(w, `{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":"2025-06-18"}}`)
		},
		func(w http.ResponseWriter) { w.WriteHeader(http.StatusServiceUnavailable) },
		func(w http.ResponseWriter) {
			event(w, `{"jsonrpc":"2.0","method":"notifications/progress","params":{}}`)
		},
		func(w http.ResponseWriter) { event(w, "{\"jsonrpc\":\"2.0\",\"id\":\"two\",\"result\":{}}") },
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		sent = append(sent, r.Header.Get(sessionHeader)+" "+r.Header.Get(versionHeader)+" "+r.Header.Get("Authorization")+" "+string(body))
		if len(sent) <= len(replies) {
			replies[len(sent)-1](w)
			return
		}
		w.WriteHeader(http.StatusUnauthorized)
		_, _ = io.WriteString(w, `{"code":"unauthorized","detail":"ask for another key"}`)
	}))
	defer server.Close()
	var out bytes.Buffer
	b := newBridge(server.URL, "sy_k", &out)
	defer b.http.CloseIdleConnections()
	for _, line := range []string{`{"jsonrpc":"2.0","id":1,"method":"initialize"}`, `{"jsonrpc":"2.0","id":"two","method":"x"}`, `{"jsonrpc":"2.0","id":3,"method":"x"}`} {
		var m envelope
		check(t, json.Unmarshal([]byte(line), &m))
		b.send(t.Context(), m, []byte(line))
	}
	check(t, b.carry(t.Context(), strings.NewReader("no json\n")))
	want := []string{
		`{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":"2025-06-18"}}`, `{"jsonrpc":"2.0","method":"notifications/progress","params":{}}`,
		`{"jsonrpc":"2.0","id":"two","result":{}}`, `{"error":{"code":-32000,"message":"unauthorized: ask for another key"},"id":3,"jsonrpc":"2.0"}`,
		`{"error":{"code":-32700,"message":"a line of standard input is not JSON: invalid character 'o' in literal null (expecting 'u')"},"id":null,"jsonrpc":"2.0"}`,
	}
	if got := strings.TrimSpace(out.String()); got != strings.Join(want, "\n") {
		t.Errorf("written:\n%s\nwant:\n%s", got, strings.Join(want, "\n"))
	}
	if len(sent) != 5 || sent[1] != `mcps_1 2025-06-18 Bearer sy_k {"jsonrpc":"2.0","id":"two","method":"x"}` || sent[1] != sent[2] || sent[2] != sent[3] {
		t.Errorf("sent: %q", sent)
	}
}

func event(w http.ResponseWriter, data string) {
	w.Header().Set("Content-Type", "text/event-stream")
	_, _ = io.WriteString(w, "event: message\ndata: "+data+"\n\n")
}
