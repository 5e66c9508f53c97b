package gateway

import (
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"sandyard/providers"
)

func ask(query string) *http.Request { return httptest.NewRequest(http.MethodGet, "/x?"+query, nil) }

func TestParameters(t *testing.T) {
	t.Parallel()
	for query, want := range map[string]int64{"n=7": 7, "n=0": 0, "": 0, "n=": 0, "n=-1": 0, "n=x": 0, "n=1e3": 0} {
		if got := number(ask(query), "n"); got != want {
			t.Errorf("%q: got %d, want %d", query, got, want)
		}
	}
	for query, want := range map[string]time.Duration{
		"": 0, "wait_ms=1500": 1500 * time.Millisecond, "wait_ms=-1": 0, "wait_ms=999999999": maxInsideWait,
	} {
		if got := waitOf(ask(query)); got != want {
			t.Errorf("%q: got %v, want %v", query, got, want)
		}
	}
	for query, want := range map[string]uint32{"": 0, "mode=0644": 0o644, "mode=755": 0o755, "mode=777": 0o777} {
		if got, err := modeOf(ask(query)); got != want || err != nil {
			t.Errorf("%q: got %o, %v, want %o", query, got, err, want)
		}
	}
	for _, query := range []string{"mode=0", "mode=1777", "mode=8", "mode=rw", "mode=-1"} {
		if got, err := modeOf(ask(query)); providers.AsError(err).Class != providers.Invalid || err == nil {
			t.Errorf("%q: got %o, %v", query, got, err)
		}
	}
}

func TestAskedTerminals(t *testing.T) {
	t.Parallel()
	size := func(cols, rows uint16) providers.TerminalSize { return providers.TerminalSize{Cols: cols, Rows: rows} }
	for query, want := range map[string]terminalAsk{
		"":                          {shell: defaultShell, size: size(80, 24)},
		"cols=100":                  {shell: defaultShell, size: size(100, 24), sized: true},
		"cols=x&rows=50":            {shell: defaultShell, size: size(80, 50), sized: true},
		"exec=t&offset=0":           {exec: "t", attach: true, shell: defaultShell, size: size(80, 24)},
		"exec=t&offset=12":          {exec: "t", attach: true, offset: 12, shell: defaultShell, size: size(80, 24)},
		"command=sh&cwd=/a&user=me": {shell: "sh", dir: "/a", user: "me", size: size(80, 24)},
	} {
		if got := askedTerminal(ask(query)); got != want {
			t.Errorf("%q: got %+v, want %+v", query, got, want)
		}
	}
}

// TestRefusalsCrossTheWire: what a gateway refuses its caller has again with class and message.
func TestRefusalsCrossTheWire(t *testing.T) {
	t.Parallel()
	answer := func(status int, header, body string) *httptest.ResponseRecorder {
		name, value, _ := strings.Cut(header, ": ")
		w := httptest.NewRecorder()
		w.Header().Set(name, value)
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
		return w
	}
	read := func(w *httptest.ResponseRecorder) error {
		res := w.Result()
		defer res.Body.Close()
		return RefusalOf(res)
	}
	gateway := New(Config{Log: slog.New(slog.DiscardHandler)})
	for _, class := range []providers.Class{providers.FileNotFound, providers.Paused, providers.Unavailable} {
		w := httptest.NewRecorder()
		gateway.refuse(w, ask(""), &providers.Error{Class: class, Message: "as it is"})
		got := read(w)
		if e := providers.AsError(got); !IsRefusal(got) || e.Class != class || e.Message != "as it is" {
			t.Errorf("%s: got %v", class, got)
		}
	}
	for want, res := range map[providers.Class]*httptest.ResponseRecorder{
		"":                    answer(http.StatusOK, "", ""),
		RangeOutside:          answer(http.StatusRequestedRangeNotSatisfiable, "Content-Range: bytes */3", ""),
		Precondition:          answer(http.StatusPreconditionFailed, "", ""),
		providers.Unavailable: answer(http.StatusBadGateway, "", "<html>"),
		providers.NotAFile:    answer(http.StatusBadGateway, classHeader+": "+string(providers.NotAFile), "<html>"),
	} {
		err := read(res)
		if (err == nil) != (want == "") || err != nil && (providers.AsError(err).Class != want || err.Error() == "") {
			t.Errorf("%d: got %v, want %q", res.Code, err, want)
		}
	}
	if IsRefusal(errors.New("another")) {
		t.Error("any error is a refusal")
	}
}

func TestWhyATerminalCloses(t *testing.T) {
	t.Parallel()
	for class, want := range map[providers.Class]websocket.StatusCode{
		providers.NotFound: CloseSandboxGone, providers.Lost: CloseSandboxGone, providers.Paused: ClosePaused,
		providers.NoExec: CloseDeleted, providers.Unavailable: websocket.StatusServiceRestart,
		providers.Busy: websocket.StatusServiceRestart, providers.Internal: websocket.StatusInternalError,
	} {
		if code, reason := closeCode(class); code != want || reason == "" {
			t.Errorf("%s: got %d %q, want %d", class, code, reason, want)
		}
	}
}
