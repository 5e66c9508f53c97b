package edge_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"sandyard/jobs"
)

// TestPagesSpeakToTheGuest: browsers let pages of any origin use envd's routes, without what they add by themselves, and
// ports only as their programs say.
func TestPagesSpeakToTheGuest(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	id := r.sandbox(jobs.Foreign{})
	said := func(h http.Header) (all []string) {
		for name, values := range h {
			if strings.HasPrefix(name, "Access-Control-") {
				all = append(all, name[len("Access-Control-"):]+": "+strings.Join(values, " | "))
			}
		}
		slices.Sort(all)
		return all
	}
	asked := []string{"Allow-Headers: *, Authorization", "Allow-Methods: GET, HEAD, POST, PUT, PATCH, DELETE", "Allow-Origin: *", "Max-Age: 7200"}
	answered := []string{"Allow-Origin: *", "Expose-Headers: *"}
	access, traffic := r.signer.Access(id), r.signer.Traffic(id)
	const own, byHost, byPort = "127.0.0.1:8090", "49983-%.sandboxes.example", "8000-%.sandboxes.example"
	ask := []string{"Origin", "https://app.example", "Access-Control-Request-Method", "POST"}
	for name, c := range map[string]struct {
		host, method, path string
		headers            []string
		status             int
		begins             string
		said               []string
	}{
		"asked, by host":            {byHost, "OPTIONS", "/process.Process/List", ask, 204, "", asked},
		"asked, by headers":         {own, "OPTIONS", "/files", append(ask, "Access-Control-Request-Headers", "authorization,e2b-sandbox-id, E2B-Sandbox-Port"), 204, "", asked},
		"asked, for nothing":        {own, "OPTIONS", "/files", append(ask, "Access-Control-Request-Headers", "x-e2b-sandbox-id"), 400, "", nil},
		"asked, for a port":         {byPort, "OPTIONS", "/", ask, 403, "", nil},
		"asked, for a port, let in": {byPort, "OPTIONS", "/", append(ask, "X-Sandyard-Token", traffic), 200, "app OPTIONS", nil},
		"not asked":                 {byHost, "OPTIONS", "/files", []string{"Origin", "https://app.example"}, 401, "", answered},
		"by host":                   {byHost, "POST", "/process.Process/List", []string{"X-Access-Token", access}, 200, "guest POST", answered},
		"by headers":                {own, "GET", "/files?path=x", []string{"E2b-Sandbox-Id", id, "E2b-Sandbox-Port", "49983", "X-Access-Token", access}, 200, "guest GET", answered},
		"without a token":           {byHost, "GET", "/files?path=x", nil, 401, "", answered},
		"with the cookie of a port": {byHost, "GET", "/files?path=x", []string{"Cookie", "sandyard_token=" + traffic}, 401, "", answered},
		"of no sandbox":             {"49983-sbnone.sandboxes.example", "GET", "/health", nil, 502, "", answered},
		"a port, with its cookie":   {byPort, "GET", "/", []string{"Origin", "https://app.example", "Cookie", "sandyard_token=" + traffic}, 200, "app GET", nil},
		"a port, with its token":    {byPort, "GET", "/", []string{"Origin", "https://app.example", "X-Sandyard-Token", traffic}, 200, "app GET", nil},
		"a port, by itself":         {byPort, "GET", "/cors", []string{"X-Sandyard-Token", traffic}, 200, "app GET", []string{"Allow-Credentials: true", "Allow-Origin: https://own.example"}},
		"a guest that says its own": {byHost, "GET", "/files?path=x&cors", []string{"X-Access-Token", access}, 200, "guest GET", answered},
	} {
		req := r.to(id, 0, c.method, c.path, c.headers...)
		req.Header.Del("E2b-Sandbox-Id")
		req.Header.Del("E2b-Sandbox-Port")
		for i := 0; i < len(c.headers); i += 2 {
			req.Header.Set(c.headers[i], c.headers[i+1])
		}
		req.Host = strings.Replace(c.host, "%", id, 1)
		a := r.send(req)
		if a.status != c.status || !strings.HasPrefix(a.body, c.begins) || !slices.Equal(said(a.header), c.said) {
			t.Errorf("%s: %d %q with %q, want %d with %q", name, a.status, a.body, said(a.header), c.status, c.said)
		}
	}
}
