package web_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"sandyard/models"
	"sandyard/tokens"
	"sandyard/web"
)

// half is a request that announces a body and sends a part of it, which reads like a request.
func half(method, path, length, key string) string {
	return fmt.Sprintf("%s %s HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n%s\r\n%s\r\n\r\n%s",
		method, path, length, key, strings.Repeat("GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n", 250))
}

// answers sends bytes on a connection of their own and returns what comes back until the server ends it: of each answer
// the status, and whether it ends the connection.
func (r *rig) answers(t *testing.T, send string) (all []string) {
	t.Helper()
	conn := must(net.Dial("tcp", strings.TrimPrefix(r.url, "http://")))(t)
	defer conn.Close()
	check(t, conn.SetDeadline(time.Now().Add(45*time.Second))) // less than the server waits for a body
	must(io.WriteString(conn, send))(t)
	for in := bufio.NewReader(conn); ; {
		res, err := http.ReadResponse(in, nil)
		if errors.Is(err, io.ErrUnexpectedEOF) {
			return all
		}
		check(t, err)
		must(io.Copy(io.Discard, res.Body))(t)
		check(t, res.Body.Close())
		all = append(all, fmt.Sprint(res.StatusCode, " ", res.Close))
	}
}

// TestNoBodyIsReadWithoutAKey, and none that was not read is taken for the connection's next request.
func TestNoBodyIsReadWithoutAKey(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(c *web.Config) {
		c.Address, c.PublicMetrics = tokens.Address{Scheme: "http", Domain: "sandboxes.example"}, true
	})
	watch := "X-API-Key: " + must(r.store.CreateKey(t.Context(), "default", "watch", []string{models.ScopeOperator}))(t)
	const announced, chunked = "Content-Length: 16777216", "Transfer-Encoding: chunked"
	for _, c := range []struct {
		method, path, key string
		status            int
	}{
		{"POST", "/v1/sandboxes", "X-None: 1", 401},
		{"POST", "/v1/sandboxes", "X-API-Key: sy_0123456789012345678901234567890123456789", 401},
		{"POST", "/v1/sandboxes", watch, 403},
		{"PUT", "/v1/templates/x", "X-None: 1", 401},
		{"POST", "/v1/nothing", "X-None: 1", 401},
		{"POST", "/sandboxes", "X-None: 1", 401},
		{"POST", "/v2/sandboxes", watch, 403},
		{"POST", "/monitor/api/queues/x:pause", "X-None: 1", 401},
		{"POST", "/nothing", "X-None: 1", 404},
		{"POST", "/healthz", "X-None: 1", 405},
		{"GET", "/healthz", "X-None: 1", 200},
		{"GET", "/metrics", "X-None: 1", 200},
		{"GET", "/docs", "X-None: 1", 200},
	} {
		for _, length := range []string{announced, chunked} {
			t.Run(c.method+" "+c.path+" "+length[:1]+" "+c.key[:6], func(t *testing.T) {
				t.Parallel()
				all := r.answers(t, half(c.method, c.path, length, c.key))
				if want := []string{fmt.Sprint(c.status, " true")}; !slices.Equal(all, want) {
					t.Errorf("answered %q, want %q", all, want)
				}
			})
		}
	}
}
