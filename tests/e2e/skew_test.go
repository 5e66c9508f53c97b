package e2e_test

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"sandyard/dev/testenv"
)

// TestWhatLetsInGoesByTheDatabasesClock comes to the inside of sandboxes with all that holds for a time, where the clock
// of the database is an hour ahead of that of the programs and of the sandboxes, and where it is an hour behind.
func TestWhatLetsInGoesByTheDatabasesClock(t *testing.T) {
	testenv.Long(t, "it takes many seconds")
	t.Parallel()
	for name, by := range map[string]time.Duration{"ahead": time.Hour, "behind": -time.Hour} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := &doors{rig: newRig(t, "DATABASE_URL", testenv.Skewed(t, by)), by: by}
			var made struct{ SandboxID, EnvdAccessToken string }
			decode(t, d.call("POST", "/sandboxes", object{"templateID": "python", "secure": true}, "X-API-Key", d.key).want(t, 201).raw, &made)
			var edge struct{ Addr string }
			decode(t, "{"+d.api.Line(&d.api.Stderr, `"msg":"edge listens",`), &edge)
			d.box, d.token, d.edge = made.SandboxID, made.EnvdAccessToken, "http://"+edge.Addr
			d.signedURLs()
			d.grants()
			d.tickets()
			d.clean()
		})
	}
}

// doors lead to one sandbox.
type doors struct {
	*rig
	by    time.Duration // how far the database's clock is ahead
	box   string
	token string // the sandbox's access token
	edge  string
}

// at is a moment by the database's clock.
func (d *doors) at(in time.Duration) time.Time { return time.Now().Add(d.by + in) }

func (d *doors) signedURLs() {
	t := d.t
	const soon = 10 * time.Minute
	for _, c := range []struct {
		method string
		until  time.Duration
		status int
	}{
		{http.MethodPost, soon, 200}, {http.MethodGet, soon, 200}, {http.MethodGet, -soon, 401}, {http.MethodPost, -soon, 401},
	} {
		path := d.sign(c.method, "signed.txt", d.at(c.until))
		if got := d.come(c.method, path, "49983"); got.status != c.status {
			t.Errorf("%s of a file until %v from now: %d %s, want %d", c.method, c.until, got.status, got.raw, c.status)
		}
	}
}

// sign makes the URL of a file as E2B's clients do.
func (d *doors) sign(method, path string, until time.Time) string {
	end := strconv.FormatInt(until.Unix(), 10)
	operation := map[string]string{http.MethodGet: "read", http.MethodPost: "write"}[method]
	sum := sha256.Sum256([]byte(strings.Join([]string{path, operation, "", d.token, end}, ":")))
	return "/files?" + url.Values{
		"path": {path}, "username": {""}, "signature_expiration": {end},
		"signature": {"v1_" + base64.RawStdEncoding.EncodeToString(sum[:])},
	}.Encode()
}

// come sends a request through the edge.
func (d *doors) come(method, path, port string, headers ...string) answer {
	d.t.Helper()
	var body io.Reader = http.NoBody
	if method == http.MethodPost {
		body = strings.NewReader("written")
	}
	req, err := http.NewRequestWithContext(d.t.Context(), method, d.edge+path, body)
	must(d.t, err)
	for i, all := 0, append(headers, "E2b-Sandbox-Id", d.box, "E2b-Sandbox-Port", port, "Content-Type", "application/octet-stream"); i+1 < len(all); i += 2 {
		req.Header.Set(all[i], all[i+1])
	}
	res, err := d.http.Do(req)
	must(d.t, err)
	defer res.Body.Close()
	raw, err := io.ReadAll(res.Body)
	must(d.t, err)
	return answer{method + " " + path, res.StatusCode, res.Header, string(raw)}
}

// grants looks at the token of a port, and at the pass from edge to gateway that every request gets.
func (d *doors) grants() {
	t := d.t
	d.exec(d.box, "mkdir -p site && cd site && exec python3 -m http.server 8000", object{"background": true}).succeeded(t)
	open := func(seconds int) (token string, until time.Time) {
		t.Helper()
		var opened struct {
			Job struct {
				Result struct {
					Token     string
					ExpiresAt time.Time `json:"expires_at"`
				}
			}
		}
		decode(t, d.call("POST", "/v1/sandboxes/"+d.box+"/ports?wait=60s", object{"port": 8000, "expires_in_seconds": seconds}).want(t, 200).raw, &opened)
		return opened.Job.Result.Token, opened.Job.Result.ExpiresAt
	}
	long, until := open(1200)
	if left := until.Sub(d.at(0)); left < 15*time.Minute || left > 21*time.Minute {
		t.Errorf("a grant of 20 minutes holds for %v", left)
	}
	status := func(token string) int { return d.come(http.MethodGet, "/", "8000", "X-Sandyard-Token", token).status }
	testenv.Eventually(t, "the port answers", func() bool { return status(long) == http.StatusOK })
	brief, _ := open(1)
	testenv.Eventually(t, "a grant of a second ends", func() bool { return status(brief) == http.StatusForbidden })
	if got := status(long); got != http.StatusOK {
		t.Errorf("the grant that lasts: %d", got)
	}
}

func (d *doors) tickets() {
	t := d.t
	issue := func() (ticket string) {
		t.Helper()
		var made struct {
			Ticket    string
			ExpiresAt time.Time `json:"expires_at"`
		}
		decode(t, d.call("POST", "/v1/sandboxes/"+d.box+"/terminal/tickets", object{}).want(t, 201).raw, &made)
		if left := made.ExpiresAt.Sub(d.at(0)); left < 0 || left > 2*time.Minute {
			t.Errorf("a ticket holds for %v", left)
		}
		return made.Ticket
	}
	browser := &rig{caller: &caller{t: t, url: d.url, http: d.http}}
	good, late := issue(), issue()
	s, res, err := browser.dial(d.box, url.Values{"ticket": {good}})
	if err != nil {
		t.Fatalf("with a ticket: %v, %+v", err, res)
	}
	s.typeIn("echo to\"kens\"; exit\r")
	s.until("tokens\r\n")
	d.sql("UPDATE terminal_tickets SET expires_at = now() - interval '1 minute' WHERE used_at IS NULL")
	if _, res, err = browser.dial(d.box, url.Values{"ticket": {late}}); err == nil || res.status != http.StatusForbidden {
		t.Errorf("with a ticket that has expired: %v, %+v", err, res)
	}
}

func (r *rig) sql(statement string) {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), time.Minute)
	defer cancel()
	conn, err := pgx.Connect(ctx, r.settings["DATABASE_URL"])
	must(r.t, err)
	defer conn.Close(ctx)
	_, err = conn.Exec(ctx, statement)
	must(r.t, err)
}
