package edge_test

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"sandyard/gateway"
	"sandyard/jobs"
	"sandyard/web/edge"
)

// TestPagesOfOtherHostsDoNotUseTheCookie: to a browser all sandboxes are one site, so it sends the cookie along with
// what a page of another one asks for.
func TestPagesOfOtherHostsDoNotUseTheCookie(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	id, other := r.sandbox(jobs.Foreign{}), r.sandbox(jobs.Foreign{})
	token := r.signer.Traffic(id)
	host := func(port int, id string) string { return fmt.Sprintf("%d-%s.sandboxes.example:8090", port, id) }
	ask := func(method, path string, headers ...string) answer {
		req := r.to(id, 8000, method, path, headers...)
		req.Host = host(8000, id)
		return r.send(req)
	}
	cookie := []string{"Cookie", "sandyard_token=" + token}
	foreign := map[string][]string{
		"another sandbox's page":         {"Origin", "http://" + host(8000, other)},
		"a page of another port":         {"Origin", "http://" + host(8001, id)},
		"the host at another port":       {"Origin", "http://8000-" + id + ".sandboxes.example:8091"},
		"a frame without an origin":      {"Origin", "null"},
		"no address":                     {"Origin", "http://%zz"},
		"two origins":                    {"Origin", "http://" + host(8000, id) + ", http://" + host(8000, other)},
		"a browser says it is same-site": {"Sec-Fetch-Site", "same-site"},
		"a browser says it is foreign":   {"Sec-Fetch-Site", "cross-site", "Origin", "http://" + host(8000, id)},
	}
	own := map[string][]string{
		"a program":                         nil,
		"its own page":                      {"Origin", "http://" + strings.ToUpper(host(8000, id))},
		"its own page, as the browser says": {"Origin", "null", "Sec-Fetch-Site", "same-origin"},
		"the user":                          {"Sec-Fetch-Site", "none"},
	}
	with := func(lists ...[]string) (all []string) {
		for _, list := range lists {
			all = append(all, list...)
		}
		return all
	}
	for name, headers := range foreign {
		for _, method := range []string{"POST", "PUT", "PATCH", "DELETE", "PURGE"} {
			if a := ask(method, "/", with(cookie, headers)...); a.status != 403 || !strings.Contains(a.body, "only for pages of this host") {
				t.Errorf("%s of %s: %d %s", method, name, a.status, a.body)
			}
		}
		if status := r.upgraded(host(8000, id), with(cookie, headers)); status != http.StatusForbidden {
			t.Errorf("a WebSocket of %s: %d", name, status)
		}
		if headers[0] == "Sec-Fetch-Site" {
			ask("GET", "/link", with(cookie, headers, []string{"Sec-Fetch-Mode", "navigate", "Sec-Fetch-Dest", "document"})...).want(t, 200, "app GET /link")
			for mode, dest := range map[string]string{"no-cors": "script", "cors": "empty", "navigate": "object", "same-origin": "document", "": ""} {
				a := ask("GET", "/data.js", with(cookie, headers, []string{"Sec-Fetch-Mode", mode, "Sec-Fetch-Dest", dest})...)
				a.want(t, 403, "only for pages of this host")
			}
		} else {
			ask("GET", "/link", with(cookie, headers)...).want(t, 200, "app GET /link")
		}
		ask("POST", "/", with([]string{"X-Sandyard-Token", token}, headers)...).want(t, 200, "app POST")
	}
	for name, headers := range own {
		if a := ask("POST", "/", with(cookie, headers)...); a.status != 200 {
			t.Errorf("POST of %s: %d %s", name, a.status, a.body)
		}
		if status := r.upgraded(host(8000, id), with(cookie, headers)); status != http.StatusSwitchingProtocols {
			t.Errorf("a WebSocket of %s: %d", name, status)
		}
	}
	public := r.sandbox(jobs.Foreign{Public: true})
	r.send(r.to(public, 8000, "POST", "/", "Origin", "http://"+host(8000, id), "Cookie", "sandyard_token="+r.signer.Traffic(public))).want(t, 200, "app POST")
}

// upgraded asks for a WebSocket and returns the status of the answer.
func (r *rig) upgraded(host string, headers []string) int {
	r.t.Helper()
	conn := r.connect(r.t)
	defer conn.Close()
	fmt.Fprintf(conn, "GET /socket HTTP/1.1\r\nHost: %s\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n", host)
	for i := 0; i < len(headers); i += 2 {
		fmt.Fprintf(conn, "%s: %s\r\n", headers[i], headers[i+1])
	}
	fmt.Fprint(conn, "\r\n")
	res, err := http.ReadResponse(bufio.NewReader(conn), nil)
	check(r.t, err)
	check(r.t, res.Body.Close())
	return res.StatusCode
}

// TestCookieBehindTLS: where a proxy ends TLS, the cookie never travels without it, and pages are judged by their scheme.
func TestCookieBehindTLS(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	id := r.sandbox(jobs.Foreign{})
	for _, secure := range []bool{false, true} {
		way := edge.New(edge.Config{Store: r.store, Signer: r.signer, Secure: secure, Log: r.log})
		server := httptest.NewServer(way)
		r.url = server.URL
		a := r.send(r.to(id, 8000, "GET", "/?sandyard_token="+r.signer.Traffic(id), "Accept", "text/html"))
		if got := a.header.Get("Set-Cookie"); strings.Contains(got, "Secure") != secure || !strings.Contains(got, "HttpOnly") {
			t.Errorf("with TLS %v the cookie is %q", secure, got)
		}
		post := r.to(id, 8000, "POST", "/", "Cookie", "sandyard_token="+r.signer.Traffic(id))
		post.Header.Set("Origin", "http://"+post.URL.Host)
		if plain := r.send(post); (plain.status == 403) != secure {
			t.Errorf("with TLS %v a page without it may send: %d", secure, plain.status)
		}
		r.client.CloseIdleConnections()
		server.Close()
		way.Close()
	}
}

// TestOnlyOurOwnIsTakenOut: the program in the sandbox sees its query and its cookies as they were sent.
func TestOnlyOurOwnIsTakenOut(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	id := r.sandbox(jobs.Foreign{})
	token := r.signer.Traffic(id)
	for sent, want := range map[string]string{
		"/?z=1&a=2&sandyard_token=T&b=%7e&b=~": "/?z=1&a=2&b=%7e&b=~",
		"/?sandyard_token=T":                   "/",
		"/?sandyard%5Ftoken=T&q":               "/?q",
		"/?a;b&c=1;2&&sandyard_token=T&=x&%zz": "/?a;b&c=1;2&&=x&%zz",
		"/?sandyard_token=&x&sandyard_token=T": "/?x",
		"/?plain+text%20%2B&sandyard_token=T":  "/?plain+text%20%2B",
		"/a%2Fb/%C3%BC?sandyard_token=T&ü=ü":   "/a%2Fb/%C3%BC?ü=ü",
	} {
		if got := r.raw(id, strings.Replace(sent, "=T", "="+token, 1), ""); !strings.HasPrefix(got, "app GET "+want+"\n") {
			t.Errorf("%s came as %.80q, want %s", sent, got, want)
		}
	}
	for sent, want := range map[string]string{
		`prefs={"a":"b\\c","d":[1,2]}; sandyard_token=T; x=y`: `prefs={"a":"b\\c","d":[1,2]}; x=y`,
		`sandyard_token=T; name="quoted value"`:               `name="quoted value"`,
		`name=größe; sandyard_token="T";b=1`:                  `name=größe;b=1`,
		`flag; a b=c d; sandyard_token=T; =empty; ;`:          `flag; a b=c d; =empty; ;`,
		`sandyard_token=wrong; a=1; sandyard_token=T`:         `a=1`,
		`a=sandyard_token=T; sandyard_token=T`:                `a=sandyard_token=T`,
	} {
		sent, want = strings.ReplaceAll(sent, "=T", "="+token), strings.ReplaceAll(want, "=T", "="+token)
		sent = strings.ReplaceAll(sent, `"T"`, `"`+token+`"`)
		if got := r.raw(id, "/", sent); !strings.Contains(got, "\nCookie: "+want+"\r\n") {
			t.Errorf("the cookies %s came as %q, want %s", sent, got, want)
		}
	}
	if got := r.raw(id, "/", "sandyard_token="+token); strings.Contains(got, "Cookie") {
		t.Errorf("no cookie came as %q", got)
	}
}

// raw asks port 8000 by bytes that no client has made better, and returns what the program saw.
func (r *rig) raw(id, target, cookies string) string {
	r.t.Helper()
	conn := r.connect(r.t)
	defer conn.Close()
	fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: 8000-%s.localhost\r\nConnection: close\r\n", target, id)
	if cookies != "" {
		fmt.Fprintf(conn, "Cookie: %s\r\n", cookies)
	}
	fmt.Fprint(conn, "\r\n")
	res, err := http.ReadResponse(bufio.NewReader(conn), nil)
	check(r.t, err)
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	check(r.t, err)
	return string(body)
}

// TestEnvdsCallsForOutsiders: all of what envd offers its clients is reached, with the token alone.
func TestEnvdsCallsForOutsiders(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	id := r.sandbox(jobs.Foreign{})
	for _, call := range []string{
		"GET /metrics", "GET /envs", "GET /files?path=a", "POST /files?path=a", "POST /files/compose",
		"POST /process.Process/StreamInput", "POST /filesystem.Filesystem/WatchDir",
	} {
		method, path, _ := strings.Cut(call, " ")
		r.send(r.to(id, gateway.GuestPort, method, path)).want(t, 401, "unauthorized")
		r.send(r.to(id, gateway.GuestPort, method, path, "X-Access-Token", r.signer.Access(id))).want(t, 200, "guest "+call)
	}
	for _, call := range []string{"POST /files/compose/x", "GET /filesx", "PUT /network", "GET /tree", "POST /claim", "POST /init"} {
		method, path, _ := strings.Cut(call, " ")
		r.send(r.to(id, gateway.GuestPort, method, path, "X-Access-Token", r.signer.Access(id))).want(t, 404, "no route at this path")
	}
}
