package inside

import (
	"bytes"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"sandyard/toolset"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// post sends one message.
func post(h http.Handler, body string, headers ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodPost, "http://6060-sb1.example.com/", strings.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", "application/json, text/event-stream")
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

const ping = `{"jsonrpc":"2.0","id":1,"method":"ping"}`

func TestPagesOfBrowsersAreRefused(t *testing.T) {
	t.Parallel()
	h := NewHandler(nil, "1", slog.New(slog.DiscardHandler))
	if w := post(h, ping); w.Code != 200 || !strings.Contains(w.Body.String(), `"result"`) {
		t.Errorf("a client: %d %s", w.Code, w.Body)
	}
	for _, origin := range []string{"http://localhost:6060", "http://6060-sb1.example.com", "null"} {
		if w := post(h, ping, "Origin", origin); w.Code != http.StatusForbidden {
			t.Errorf("a page of %s: %d %s", origin, w.Code, w.Body)
		}
	}
	if w := post(h, ping, "Content-Type", "text/plain"); w.Code < 400 { // what a page may send without asking first
		t.Errorf("a form's content: %d %s", w.Code, w.Body)
	}
	w := httptest.NewRecorder()
	if h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, HealthPath, nil)); w.Code != http.StatusNoContent {
		t.Errorf("health: %d", w.Code)
	}
}

func TestPanicOfAToolIsAnError(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	h := NewHandler(nil, "1", slog.New(slog.NewTextHandler(&log, nil))) // without a sandbox every tool panics
	w := post(h, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"process_list","arguments":{}}}`)
	if w.Code != 200 || !strings.Contains(w.Body.String(), "internal_error") ||
		!strings.Contains(w.Body.String(), `"isError":true`) {
		t.Errorf("answered %d %s", w.Code, w.Body)
	}
	if !strings.Contains(log.String(), "a tool panicked") {
		t.Errorf("logged %s", log.String())
	}
}

func TestVariablesAreBounded(t *testing.T) {
	t.Parallel()
	b := newBox(nil)
	set := func(name, value string) error { return b.SetEnv(t.Context(), name, &value) }
	for _, name := range []string{"", "A B", "1A", "A=", strings.Repeat("A", 256)} {
		if set(name, "x") == nil {
			t.Errorf("%.20q is taken for a name", name)
		}
	}
	if set("A", "a\x00b") == nil || set("A", strings.Repeat("x", maxEnv)) == nil {
		t.Error("a value with NUL, or one of 128 KiB, is taken")
	}
	for i := range maxEnvNames {
		if err := set(fmt.Sprintf("V%d", i), "x"); err != nil {
			t.Fatal(err)
		}
	}
	if set("MORE", "x") == nil || set("V0", "y") != nil || b.SetEnv(t.Context(), "V1", nil) != nil ||
		set("MORE", "x") != nil {
		t.Error("the bound on their number does not hold, or holds too much")
	}
	if env := b.environment(map[string]string{"V2": "own"}); len(env) != maxEnvNames || env["V0"] != "y" ||
		env["V2"] != "own" {
		t.Errorf("%d variables, V0=%q, V2=%q", len(env), env["V0"], env["V2"])
	}
	if _, err := b.Run(t.Context(), toolset.Command{Shell: "true", Timeout: -1}, 0); err == nil {
		t.Error("a timeout below zero is taken")
	}
}
