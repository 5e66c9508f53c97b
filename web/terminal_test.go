package web_test

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"sandyard/models"
	"sandyard/providers"
	"sandyard/providers/fake"
)

// handshake asks for a terminal of the rig's sandbox as a WebSocket client does.
func (r *insideRig) handshake(query string, headers ...string) answer {
	r.t.Helper()
	return r.call("GET", r.path("/terminal", query), nil, append([]string{
		"Connection", "Upgrade", "Upgrade", "websocket", "Sec-WebSocket-Version", "13", "Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ==",
	}, headers...)...)
}

// closed gives the fake provider's sandboxes terminals that cannot be opened, for a reason that no check before has.
type closed struct{ *fake.Provider }

type closedBox struct {
	providers.Sandbox
	providers.Terminals
}

func (p closed) Open(ctx context.Context, id string) (providers.Sandbox, error) {
	box, err := p.Provider.Open(ctx, id)
	return closedBox{Sandbox: box}, err
}

// Ambiguous otherwise.
func (b closedBox) Run(ctx context.Context, c providers.Command) (providers.Result, error) {
	return b.Sandbox.Run(ctx, c)
}

func (b closedBox) Kill(ctx context.Context, name string) error { return b.Sandbox.Kill(ctx, name) }

func (b closedBox) Forget(ctx context.Context, name string) error { return b.Sandbox.Forget(ctx, name) }

// Exec implements providers.Background. It shows what was asked for.
func (b closedBox) Exec(_ context.Context, name string, _ time.Duration) (providers.Exec, error) {
	return providers.Exec{}, providers.TooManyExecs.Errorf("no room for %s", name)
}

func TestTerminalLetsInByTicket(t *testing.T) {
	t.Parallel()
	r := newInsideRigOn(t, func(p *fake.Provider) providers.Provider { return closed{p} })
	ticket := func(body any) string {
		t.Helper()
		a := r.call("POST", r.path("/terminal/tickets", ""), body).want(t, 201)
		if !strings.HasPrefix(a.text("path"), "/v1/sandboxes/"+r.box+"/terminal?ticket=tkt_") || a.text("expires_at") == "" || a.text("name") == "" {
			t.Errorf("the ticket: %s", a.raw)
		}
		return a.text("ticket")
	}
	const none = "Authorization"
	inside := func(a answer, name string) { // it came as far as the worker
		t.Helper()
		a.problem(t, 429, "too_many_execs")
		if !strings.Contains(a.text("detail"), name) {
			t.Errorf("the worker was asked for %s", a.raw)
		}
	}
	inside(r.handshake("name=main"), "term_main")
	inside(r.handshake("name=main", none, "", "X-API-Key", r.key), "term_main")
	inside(r.handshake("", "Origin", r.url), "term_")
	r.handshake("", none, "").problem(t, 401, "unauthorized")
	r.handshake("", "Origin", "https://evil.example").problem(t, 403, "origin_forbidden")
	r.handshake("", none, "", "Origin", "https://evil.example").problem(t, 403, "origin_forbidden")
	r.handshake("", "Origin", "null").problem(t, 403, "origin_forbidden")

	mine := ticket(object{"name": "mine", "origin": "HTTPS://App.example:443/"})
	for _, origin := range []string{"", "https://evil.example", "http://app.example", "https://app.example:8443", r.url} {
		r.handshake("ticket="+mine, none, "", "Origin", origin).problem(t, 403, "origin_forbidden")
	}
	r.handshake("name=other&ticket="+mine, none, "", "Origin", "https://app.example").problem(t, 403, "ticket_of_another")
	first := r.box
	r.box = r.running()
	r.handshake("ticket="+mine, none, "", "Origin", "https://app.example").problem(t, 403, "ticket_of_another")
	r.box = first
	inside(r.handshake("", none, "", "Origin", "https://app.example", "Sec-WebSocket-Protocol", "sandyard.terminal, sandyard.ticket."+mine), "term_mine")
	r.handshake("ticket="+mine, none, "", "Origin", "https://app.example").problem(t, 403, "ticket_used")

	plain := ticket(object{"name": "plain"})
	r.handshake("ticket="+plain, none, "", "Origin", "https://app.example").problem(t, 403, "origin_forbidden")
	inside(r.handshake("name=plain&ticket="+plain, none, "", "Origin", r.url), "term_plain")
	inside(r.handshake("ticket="+ticket(object{}), none, ""), "term_")

	for _, unknown := range []string{"tkt_0", "x", mine + "0"} {
		r.handshake("ticket="+unknown, none, "").problem(t, 401, "ticket_unknown")
	}
	late := ticket(object{})
	r.sql("UPDATE terminal_tickets SET expires_at = now() - interval '1 second'")
	r.handshake("ticket="+late, none, "").problem(t, 403, "ticket_expired")
	stays := ticket(object{})
	r.sql("UPDATE api_keys SET revoked_at = now()")
	r.handshake("ticket="+stays, none, "").problem(t, 401, "ticket_unknown")
	if log := r.log.String(); strings.Contains(log, "tkt_") {
		t.Error("a ticket is in the log")
	}
}

func TestTerminalTicketsLetOneIn(t *testing.T) {
	t.Parallel()
	r := newInsideRigOn(t, func(p *fake.Provider) providers.Provider { return closed{p} })
	a := r.call("POST", r.path("/terminal/tickets", ""), object{}).want(t, 201)
	const many = 8
	got := make(chan int, many)
	for range many {
		go func() {
			a, err := r.try("GET", r.path("/terminal", "ticket="+a.text("ticket")), nil, "Authorization", "",
				"Connection", "Upgrade", "Upgrade", "websocket", "Sec-WebSocket-Version", "13", "Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ==")
			if err != nil {
				t.Error(err)
			}
			got <- a.status
		}()
	}
	seen := map[int]int{}
	for range many {
		seen[<-got]++
	}
	if seen[http.StatusTooManyRequests] != 1 || seen[http.StatusForbidden] != many-1 {
		t.Errorf("of %d who came at once with one ticket: %v", many, seen)
	}
	for range 99 {
		r.call("POST", r.path("/terminal/tickets", ""), object{}).want(t, 201)
	}
	r.call("POST", r.path("/terminal/tickets", ""), object{}).want(t, 201)
	r.call("POST", r.path("/terminal/tickets", ""), object{}).problem(t, 429, "limit_reached")
}

func TestTerminalRefusals(t *testing.T) {
	t.Parallel()
	r := newInsideRig(t)
	r.handshake("").problem(t, 501, "unsupported_operation") // the fake provider has no terminals
	r.call("GET", r.path("/terminal", ""), nil).problem(t, 426, "websocket_required")
	r.handshake("", "Sec-WebSocket-Version", "8").problem(t, 426, "websocket_required")
	for _, query := range []string{"name=A", "name=a.b", "name=" + strings.Repeat("a", 33), "cols=0", "rows=1001", "cols=x", "offset=-1", "command=" + strings.Repeat("a", 9000)} {
		r.handshake(query).problem(t, 422, "invalid_request")
	}
	for _, origin := range []string{"app.example", "ftp://app.example", "https://app.example/page", "https://a@app.example", "*"} {
		r.call("POST", r.path("/terminal/tickets", ""), object{"origin": origin}).problem(t, 422, "invalid_request")
	}
	r.call("POST", r.path("/terminal/tickets", ""), object{"name": "A B"}).problem(t, 422, "invalid_request")
	stranger := must(r.store.CreateKey(context.Background(), r.otherTenant(), "stranger", []string{models.ScopeSandboxes}))(t)
	r.handshake("", "Authorization", "Bearer "+stranger).problem(t, 404, "not_found")
	r.call("POST", r.path("/terminal/tickets", ""), object{}, "Authorization", "Bearer "+stranger).problem(t, 404, "not_found")
	r.call("POST", "/v1/sandboxes/"+r.box+"/pause?wait=60s", object{}).want(t, 200)
	r.handshake("").problem(t, 409, "sandbox_paused")
	r.call("DELETE", "/v1/sandboxes/"+r.box+"?wait=60s", nil).want(t, 200)
	r.handshake("").problem(t, 410, "sandbox_ended")
	r.call("POST", r.path("/terminal/tickets", ""), object{}).problem(t, 410, "sandbox_ended")
	r.box = "sbnone"
	r.handshake("").problem(t, 404, "not_found")
}

func (r *insideRig) otherTenant() string {
	r.t.Helper()
	r.sql("INSERT INTO tenants (id, name, webhook_secret) VALUES ('other', 'other', 'whsec_AAAA')")
	return "other"
}
