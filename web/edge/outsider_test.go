package edge_test

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"sandyard/gateway"
	"sandyard/guest/protocol"
	"sandyard/jobs"
	"sandyard/jobs/kind"
	"sandyard/tokens"
)

// TestNoTunnels: neither door makes a tunnel, whatever CONNECT names and however it pretends to have a body.
func TestNoTunnels(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	id := r.sandbox(jobs.Foreign{Public: true})
	pass := r.signer.Gateway(id, 8000, time.Now().Add(time.Minute))
	for name, c := range map[string]struct{ url, headers string }{
		"the edge":    {r.url, fmt.Sprintf("E2b-Sandbox-Id: %s\r\nE2b-Sandbox-Port: 8000\r\n", id)},
		"the gateway": {r.gateway, gateway.PassHeader + ": " + pass + "\r\n"},
	} {
		for _, body := range []string{"", "Content-Length: 100000\r\n", "Transfer-Encoding: chunked\r\n"} {
			for _, target := range []string{"192.0.2.1:443", "8000-" + id + ".localhost:80"} {
				conn := connectTo(t, c.url)
				fmt.Fprintf(conn, "CONNECT %s HTTP/1.1\r\nHost: %[1]s\r\n%s%s\r\n", target, c.headers, body)
				res, err := http.ReadResponse(bufio.NewReader(conn), nil)
				check(t, err)
				if res.StatusCode != http.StatusMethodNotAllowed || res.Header.Get("Allow") == "" {
					t.Errorf("%s answers CONNECT %s with %q: %s", name, target, body, res.Status)
				}
				check(t, res.Body.Close())
				check(t, conn.Close())
			}
		}
	}
}

// TestNobodyComesInByTheWayOut: the port of the sandbox's own proxy leads nowhere, with any token and at both doors.
func TestNobodyComesInByTheWayOut(t *testing.T) {
	t.Parallel()
	if tokens.ProxyPort != protocol.ProxyPort {
		t.Fatalf("the guest's proxy is at port %d, and port %d is barred", protocol.ProxyPort, tokens.ProxyPort)
	}
	r := newRig(t)
	id := r.sandbox(jobs.Foreign{Public: true})
	for _, method := range []string{"GET", "POST", "OPTIONS"} {
		req := r.to(id, protocol.ProxyPort, method, "/", "E2b-Traffic-Access-Token", r.signer.Traffic(id))
		r.send(req).want(t, 403, "reserved for the sandbox's egress proxy")
	}
	byHost := r.to(id, 8000, "GET", "/")
	byHost.Host = fmt.Sprintf("%d-%s.sandboxes.example", protocol.ProxyPort, id)
	r.send(byHost).want(t, 403, "reserved for the sandbox's egress proxy")
	behind, err := http.NewRequestWithContext(t.Context(), http.MethodGet, r.gateway+"/", http.NoBody)
	check(t, err)
	behind.Header.Set(gateway.PassHeader, r.signer.Gateway(id, protocol.ProxyPort, time.Now().Add(time.Minute)))
	r.send(behind).want(t, 403, "reserved for the sandbox's egress proxy")
	for _, port := range []int{protocol.ProxyPort, gateway.GuestPort} {
		_, err := r.jobs.Submit(t.Context(), id, &kind.Port{Port: port}, asTest())
		if err == nil || !strings.Contains(err.Error(), "which the sandbox itself uses") {
			t.Errorf("port %d is let out: %v", port, err)
		}
	}
}

// TestHealthIsNoUse: asking a guest for its health takes no token, so it must not keep a sandbox.
func TestHealthIsNoUse(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	id := r.sandbox(jobs.Foreign{Public: true})
	before := r.lastActive(id)
	r.send(r.to(id, gateway.GuestPort, "GET", "/health")).want(t, 200, "guest GET /health")
	r.stop() // it writes down what it has seen
	if !r.lastActive(id).Equal(before) {
		t.Error("asking for the guest's health counts as use")
	}
}

// TestBrokenRequestIsItsSendersFault: it is told so, no warning is logged, and the way that others take is not forgotten.
func TestBrokenRequestIsItsSendersFault(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	id := r.sandbox(jobs.Foreign{Public: true})
	for i := range 5 {
		conn := r.connect(t)
		fmt.Fprintf(conn, "POST /count HTTP/1.1\r\nHost: 8000-%s.localhost\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n12345\r\nno chunk\r\n", id)
		res, err := http.ReadResponse(bufio.NewReader(conn), nil)
		check(t, err)
		body, err := io.ReadAll(res.Body)
		check(t, err)
		check(t, res.Body.Close())
		if res.StatusCode != http.StatusBadRequest || res.Header.Get(gateway.ReasonHeader) != gateway.Malformed {
			t.Errorf("request %d is answered %s %q", i, res.Status, body)
		}
	}
	for _, message := range []string{"gateway not reached", "request not forwarded"} {
		if found := r.journal.warned(message); len(found) > 0 {
			t.Errorf("an outsider wrote into the log: %s", found)
		}
	}
}

// TestStrangersShareFewQuestions: whoever asks for sandboxes that there are not, however many, takes two of the API's
// connections to the database at most.
func TestStrangersShareFewQuestions(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	id := r.sandbox(jobs.Foreign{Public: true})
	release := sync.OnceFunc(r.asked.hold())
	defer release()
	var all sync.WaitGroup
	for i := range 100 {
		req := r.to(fmt.Sprintf("sbnone%d", i), 8000, "GET", "/")
		all.Go(func() {
			res, err := r.client.Do(req)
			if err != nil {
				t.Error(err)
				return
			}
			defer res.Body.Close()
			if res.StatusCode != http.StatusBadGateway || res.Header.Get(gateway.ReasonHeader) != gateway.NotFound {
				t.Errorf("answered %s, %s", res.Status, res.Header.Get(gateway.ReasonHeader))
			}
		})
	}
	r.eventuallyTrue("the database is asked", func() bool {
		_, now, _ := r.asked.counts()
		return now > 1
	})
	release()
	all.Wait()
	if asked, _, top := r.asked.counts(); top > 2 {
		t.Errorf("%d questions, up to %d at once", asked, top)
	}
	r.send(r.to(id, 8000, "GET", "/")).want(t, 200, "")
}
