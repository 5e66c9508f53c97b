package providertest

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"testing"

	"sandyard/providers"
	"sandyard/providers/providertest/fixture"
)

// guestDialer is a sandbox whose guest outsiders may be let in to.
type guestDialer interface {
	DialGuest(ctx context.Context, token string) (net.Conn, error)
}

// outsiders lets callers in to the guest as a gateway does, past whatever checks them before: the guest itself asks
// them for the token, also when another worker has come or the sandbox was paused.
func outsiders(t *testing.T, s *fixture.Suite) {
	r := s.NewRoom(t)
	if _, ok := r.Sandbox.(guestDialer); !ok {
		t.Skip("skipped: this provider lets no outsiders in")
	}
	fixture.MustWrite(t, r, "f", "content")
	asks := func(when string, r fixture.Room) {
		t.Helper()
		for token, want := range map[string]int{"": 401, "another": 401, "secret": 200} {
			if status, body := fromOutside(t, r, token); status != want || want == 200 && body != "content" {
				t.Errorf("%s, token %q: %d %q, want %d", when, token, status, body, want)
			}
		}
		if data, err := r.ReadFile(fixture.Within(t), "f", 100); err != nil || string(data) != "content" {
			t.Errorf("%s the worker, who needs no token, reads %q, %v", when, data, err)
		}
	}
	asks("at first", r)
	if p, ok := fixture.Pauser(r.Worker); ok && s.Caps.PauseMemory != providers.Unsupported {
		if err := errors.Join(p.Pause(fixture.Within(t), r.ID), p.Resume(fixture.Within(t), r.ID)); err != nil {
			t.Fatal(err)
		}
		asks("resumed", fixture.Room{Sandbox: fixture.MustOpen(t, r.Worker, r.ID), Worker: r.Worker, ID: r.ID})
	}
	another := s.Open(t)
	asks("at another worker", fixture.Room{Sandbox: fixture.MustOpen(t, another, r.ID), Worker: another, ID: r.ID})
}

// fromOutside reads the file f with a token, of a sandbox that asks for "secret".
func fromOutside(t *testing.T, r fixture.Room, token string) (status int, body string) {
	t.Helper()
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return r.Sandbox.(guestDialer).DialGuest(ctx, "secret")
	}}
	defer transport.CloseIdleConnections()
	req, err := http.NewRequestWithContext(fixture.Within(t), http.MethodGet, "http://guest/files?path=f", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("X-Access-Token", token)
	answer, err := (&http.Client{Transport: transport}).Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer.StatusCode, string(text)
}
