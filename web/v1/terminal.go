package v1

import (
	"context"
	"crypto/rand"
	"errors"
	"net/http"
	"net/url"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/gofiber/fiber/v2"

	"sandyard/gateway"
	"sandyard/models"
	"sandyard/web/middleware"
	"sandyard/web/problem"
	"sandyard/web/rest"
)

const (
	ticketLife      = time.Minute
	ticketProtocol  = "sandyard.ticket." // begins the WebSocket subprotocol that holds a ticket
	protocolHeader  = "Sec-WebSocket-Protocol"
	maxTerminalSize = 1000
	maxTerminalText = 8 << 10 // bytes of a command or a directory
	terminalPath    = "/terminal"
)

// terminalName is what a terminal may be called.
var terminalName = regexp.MustCompile(`^[a-z0-9][a-z0-9_-]{0,31}$`)

// TicketBody is the body of a request for a ticket.
type TicketBody struct {
	Name   string `json:"name,omitempty" pattern:"^[a-z0-9][a-z0-9_-]{0,31}$" patternDescription:"up to 32 of a-z, 0-9, _ and -" doc:"The terminal that the ticket opens; default a new one"`
	Origin string `json:"origin,omitempty" maxLength:"256" doc:"Origin of the page that will use the ticket, such as https://app.example; default pages of this server, and programs" example:"https://app.example"`
}

// Ticket opens one terminal once.
type Ticket struct {
	Ticket    string    `json:"ticket"`
	Name      string    `json:"name" doc:"Name of the terminal that the ticket opens"`
	Path      string    `json:"path" doc:"Path to connect to; it contains the ticket"`
	ExpiresAt time.Time `json:"expires_at"`
}

type ticketInput struct {
	ID   string `path:"id"`
	Body TicketBody
}

// addTerminal adds what becomes a WebSocket. It comes before all that wants an API key or a request whole.
func (s *inside) addTerminal() {
	s.app.Get("/v1/sandboxes/:id/terminal", s.upgradeOnly, s.admitToTerminal, s.openTerminal)
}

// upgradeOnly refuses what is no handshake, before a ticket is used up for it.
func (s *inside) upgradeOnly(c *fiber.Ctx) error {
	if holdsToken(c.Get(fiber.HeaderConnection), "upgrade") && holdsToken(c.Get(fiber.HeaderUpgrade), "websocket") &&
		c.Get("Sec-WebSocket-Version") == "13" && len(c.Get("Sec-WebSocket-Key")) == 24 {
		return c.Next()
	}
	c.Set(fiber.HeaderUpgrade, "websocket")
	c.Set("Sec-WebSocket-Version", "13")
	return problem.New(
		fiber.StatusUpgradeRequired,
		"websocket_required",
		"a terminal needs a WebSocket connection (version 13); connect to this URL with a WebSocket client",
	)
}

func holdsToken(header, token string) bool {
	for part := range strings.SplitSeq(header, ",") {
		if strings.EqualFold(strings.TrimSpace(part), token) {
			return true
		}
	}
	return false
}

// admitToTerminal lets pass who brings an API key or a ticket, and no page that was not meant. Browsers send no API key
// by themselves, but a page must not get in with a key that it has found either.
func (s *inside) admitToTerminal(c *fiber.Ctx) error {
	origin := strings.ToLower(c.Get(fiber.HeaderOrigin))
	own := origin == "" || ownOrigin(origin, c.Hostname())
	plain, protocols := ticketOf(c)
	c.Request().Header.Del(protocolHeader)
	if protocols != "" {
		c.Request().Header.Set(protocolHeader, protocols)
	}
	if plain != "" {
		return s.useTicket(
			c,
			plain,
			models.TicketUse{Sandbox: c.Params("id"), Terminal: c.Query("name"), Origin: origin, Own: own},
		)
	}
	if !own {
		return problem.New(fiber.StatusForbidden, "origin_forbidden",
			"pages of "+origin+" need a ticket that names this origin; create one with POST …/terminal/tickets")
	}
	return s.Stack.NeedKey(models.ScopeSandboxes)(c)
}

func ownOrigin(origin, host string) bool {
	u, err := url.Parse(origin)
	return err == nil && u.Host != "" && strings.EqualFold(u.Host, host)
}

// ticketOf finds the ticket of a request, and the subprotocols that are left without it.
func ticketOf(c *fiber.Ctx) (ticket, protocols string) {
	ticket = c.Query("ticket")
	var rest []string
	for part := range strings.SplitSeq(c.Get(protocolHeader), ",") {
		part = strings.TrimSpace(part)
		if plain, ok := strings.CutPrefix(part, ticketProtocol); ok {
			ticket = plain
		} else if part != "" {
			rest = append(rest, part)
		}
	}
	return ticket, strings.Join(rest, ", ")
}

func (s *inside) useTicket(c *fiber.Ctx, plain string, use models.TicketUse) error {
	t, err := s.Store.UseTicket(c.UserContext(), plain, use)
	if errors.Is(err, models.ErrNotFound) || errors.Is(err, models.ErrRevoked) {
		return problem.New(fiber.StatusUnauthorized, "ticket_unknown",
			"there is no such ticket, or the API key that made it was revoked; create another with POST …/terminal/tickets")
	}
	if err != nil {
		return err
	}
	r := middleware.RequestOf(c.UserContext())
	r.Tenant, r.Key, r.Scopes = t.TenantID, t.KeyID, []string{models.ScopeSandboxes}
	c.Request().URI().QueryArgs().Set("name", t.Terminal)
	return c.Next()
}

// openTerminal passes the handshake on to the gateway of the sandbox's node.
func (s *inside) openTerminal(c *fiber.Ctx) error {
	ask, err := terminalQuery(c)
	if err != nil {
		return err
	}
	id := c.Params("id")
	if err := s.checkInside(c.UserContext(), id); err != nil {
		return err
	}
	c.Request().URI().SetQueryString(ask.Encode()) // without the ticket
	headers := []string{
		fiber.HeaderConnection,
		fiber.HeaderUpgrade,
		"Sec-WebSocket-Key",
		"Sec-WebSocket-Version",
		protocolHeader,
	}
	middleware.RequestOf(c.UserContext()).Changes = true
	return s.Bridge.Cross(c, terminalPath, headers, s.untilQuit(func(w http.ResponseWriter, r *http.Request) {
		s.Inside.Inside(w, r, id, s.refuseInside)
	}))
}

// terminalQuery checks what the client wants, and writes it down for the gateway.
func terminalQuery(c *fiber.Ctx) (url.Values, error) {
	ask := url.Values{}
	name := c.Query("name")
	if name == "" {
		name = newTerminalName()
	}
	if !terminalName.MatchString(name) {
		return nil, problem.Invalid("query.name", "must be up to 32 of a-z, 0-9, _ and -")
	}
	ask.Set("exec", gateway.TerminalPrefix+name)
	size := [2]int64{1, maxTerminalSize}
	for param, bounds := range map[string][2]int64{"cols": size, "rows": size, "offset": {0, 1 << 53}} {
		text := c.Query(param)
		if text == "" {
			continue
		}
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil || n < bounds[0] || n > bounds[1] {
			return nil, problem.Invalid(
				"query."+param,
				"must be a number between "+strconv.FormatInt(bounds[0], 10)+" and "+strconv.FormatInt(bounds[1], 10),
			)
		}
		ask.Set(param, strconv.FormatInt(n, 10))
	}
	for _, param := range []string{"command", "cwd", "user"} {
		text := c.Query(param)
		if len(text) > maxTerminalText {
			return nil, problem.Invalid("query."+param, "is too long")
		}
		if text != "" {
			ask.Set(param, text)
		}
	}
	return ask, nil
}

func newTerminalName() string { return strings.ToLower(rand.Text()[:16]) }

func (s *inside) issueTicket(ctx context.Context, in *ticketInput) (*rest.Output[Ticket], error) {
	r := middleware.RequestOf(ctx)
	box, err := s.Store.Sandbox(ctx, r.Tenant, in.ID)
	if err != nil {
		return nil, err
	}
	if box.Ended() {
		return nil, s.checkInside(ctx, in.ID)
	}
	origin, err := cleanOrigin(in.Body.Origin)
	if err != nil {
		return nil, err
	}
	name := in.Body.Name
	if name == "" {
		name = newTerminalName()
	}
	plain, t, err := s.Store.IssueTicket(ctx, models.TerminalTicket{
		TenantID: r.Tenant, KeyID: r.Key, SandboxID: box.ID, Terminal: name, Origin: origin,
	}, ticketLife)
	if limit, ok := errors.AsType[*models.LimitError](err); ok {
		p := problem.Limit(limit)
		p.Detail = "this sandbox has too many unused tickets; use them or wait a minute until they expire"
		return nil, p
	}
	if err != nil {
		return nil, err
	}
	path := "/v1/sandboxes/" + box.ID + "/terminal?" + url.Values{"ticket": {plain}}.Encode()
	return rest.OK(Ticket{Ticket: plain, Name: t.Terminal, Path: path, ExpiresAt: t.ExpiresAt}), nil
}

// cleanOrigin is an origin as browsers write it.
func cleanOrigin(text string) (string, error) {
	if text == "" {
		return "", nil
	}
	u, err := url.Parse(strings.ToLower(text))
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || u.User != nil ||
		strings.Trim(u.Path, "/") != "" ||
		u.RawQuery != "" ||
		u.Fragment != "" {
		return "", problem.Invalid("body.origin", "must be a scheme and a host, such as https://app.example")
	}
	host := u.Host
	if port := u.Port(); u.Scheme == "http" && port == "80" || u.Scheme == "https" && port == "443" {
		host = strings.TrimSuffix(host, ":"+port)
	}
	return u.Scheme + "://" + host, nil
}

// addTickets adds the route for tickets, and describes that of terminals, which Fiber alone serves.
func (s *inside) addTickets() {
	op := rest.Operation("make-terminal-ticket", "POST /v1/sandboxes/{id}/terminal/tickets", tagWork,
		"Create a ticket that opens a terminal once")
	op.Description = "For pages in browsers, which cannot send an API key with a WebSocket. The ticket is valid for a " +
		"minute and for one connection. Send it " +
		"in the parameter `ticket`, or as the subprotocol `sandyard.ticket.` followed by the ticket, in addition to `" + gateway.TerminalProtocol + "`. The " +
		"connection must come from a page of the ticket's `origin`."
	op.DefaultStatus = http.StatusCreated
	rest.Register(s.api, op, s.issueTicket)
	s.describeTerminal()
}

const terminalStory = "A WebSocket to a shell on a terminal. The shell runs in the sandbox and survives lost " +
	"connections and restarts of server and workers. It " +
	"is identified by its `name`. The list of execs shows it as `term_` and the name; delete it there. A connection with the name of a running terminal joins it and " +
	"receives its last 384 KiB of output; several clients may connect. With `offset`, the output continues there, and nothing is started.\n\n" +
	"Binary messages carry the typed input and the terminal's output. Text messages are JSON: `{\"type\":\"resize\",\"cols\":132,\"rows\":50}` from you; from the server " +
	"first `ready` (`terminal`, `exec_id`, `pid`, `joined`, `offset` of the next byte), `exit` (`exit_code`, `signal`) at the end, `skipped` " +
	"(`offset`) if older bytes were dropped, and `error` (`code`, `detail`). A program waits for slow clients that answer pings. A client that reads nothing for two " +
	"minutes is disconnected. A message holds at most 1 MiB.\n\n" +
	"Close codes: 1000 the command has ended; 1001 and 1012 connect again with the name and your offset (as after a " +
	"broken connection); " +
	"1009 a message was too large; 1011 internal error; 4404 the sandbox is gone; 4409 it was paused; 4410 the terminal " +
	"was deleted.\n\n" +
	"An open connection counts as activity of the sandbox. It resumes a paused sandbox that has `auto_resume`. A handshake with an `Origin` is refused " +
	"unless it is this server's own or the ticket names it."

func (s *inside) describeTerminal() {
	op := rest.Operation("open-terminal", "GET /v1/sandboxes/{id}/terminal", tagWork, "Open or join a terminal")
	op.Description = terminalStory
	op.Parameters = []*huma.Param{
		{Name: "id", In: "path", Required: true, Schema: &huma.Schema{Type: "string"}},
		query("name", "Name of the terminal: up to 32 of a-z, 0-9, _ and -; default a new one", false),
		query("cols", "Width in characters; default 80", false),
		query("rows", "Height in characters; default 24", false),
		query("command", "Shell command to run instead of an interactive shell", false),
		query("cwd", "Start directory; default the work directory", false),
		query("user", "The same as in exec", false),
		query("offset", "Join only, and send the output from this byte on", false),
		query("ticket", "Instead of an API key", false),
	}
	op.Responses = map[string]*huma.Response{
		"101":     {Description: "The terminal, as a WebSocket"},
		"default": s.api.Response("Error", "application/problem+json", reflect.TypeFor[problem.Problem]()),
	}
	s.api.OpenAPI().AddOperation(&op)
}
