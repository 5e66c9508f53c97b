package edge_test

import (
	"fmt"
	"io"
	"net/http/httptest"
	"strings"
	"testing"

	"sandyard/jobs"
	"sandyard/web/edge"
)

// TestAnAnswerPassesForNobodyElses: neither headers nor trailers of a sandbox say what only we say, set cookies behind the
// body or make a proxy before the edge send its own files.
func TestAnAnswerPassesForNobodyElses(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	id := r.sandbox(jobs.Foreign{Public: true})
	res, err := r.client.Do(r.to(id, 8000, "GET", "/posing"))
	check(t, err)
	defer res.Body.Close()
	_, err = io.ReadAll(res.Body)
	check(t, err)
	for _, name := range []string{"X-Accel-Redirect", "X-Sendfile", "Sandyard-Reason", "Set-Cookie"} {
		if got := res.Header.Get(name) + res.Trailer.Get(name); got != "" {
			t.Errorf("%s came through: %q", name, got)
		}
	}
	if res.Header.Get("X-Own") == "" || res.Trailer.Get("Checksum") == "" {
		t.Errorf("its own is gone: %v, trailer %v", res.Header, res.Trailer)
	}
}

// TestOtherDomainsLeadNowhere: what a sandbox serves is not to be had under names that are not the installation's.
func TestOtherDomainsLeadNowhere(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	id := r.sandbox(jobs.Foreign{Public: true})
	way := edge.New(edge.Config{Store: r.store, Signer: r.signer, Domain: "Sandboxes.example:8090", Secure: true, Log: r.log})
	server := httptest.NewServer(way)
	defer way.Close()
	defer server.Close()
	defer r.client.CloseIdleConnections()
	r.url = server.URL
	for host, status := range map[string]int{
		"8000-%s.sandboxes.example": 200, "8000-%s.SANDBOXES.example.:443": 200, "8000-%s.evil.example": 400, "8000-%s": 400,
		"8000-%s.sandboxes.example.evil.example": 400, "8000-%s.a.sandboxes.example": 400,
	} {
		req := r.to(id, 8000, "GET", "/")
		req.Header.Del("E2b-Sandbox-Id")
		req.Header.Del("E2b-Sandbox-Port")
		req.Host = fmt.Sprintf(host, id)
		if a := r.send(req); a.status != status {
			t.Errorf("%s is answered %d %.80s", req.Host, a.status, a.body)
		}
	}
	byHeader := r.to(id, 8000, "GET", "/", "E2b-Sandbox-Id", id, "E2b-Sandbox-Port", "8000", "X-Forwarded-For", "198.51.100.9")
	byHeader.Host = "localhost"
	a := r.send(byHeader)
	if a.status != 200 || !strings.Contains(a.body, "X-Forwarded-Proto: https") || !strings.Contains(a.body, "X-Forwarded-For: 198.51.100.9, ") {
		t.Errorf("E2B's clients, behind TLS: %d %s", a.status, a.body)
	}
}
