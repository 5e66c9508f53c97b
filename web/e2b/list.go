package e2b

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gofiber/fiber/v2"

	"sandyard/models"
	"sandyard/web/middleware"
	"sandyard/web/problem"
)

// pageSize is how many sandboxes a page holds that does not say, and at most.
const pageSize = 100

func (e *Server) get(c *fiber.Ctx) error {
	box, err := e.live(c)
	if err != nil {
		return err
	}
	return c.JSON(e.detail(box))
}

// listRunning is the list without pages that older clients know.
func (e *Server) listRunning(c *fiber.Ctx) error {
	f := models.SandboxFilter{States: []models.SandboxState{models.SandboxRunning}}
	var err error
	if f.Labels, err = readMetadata(c.Query("metadata")); err != nil {
		return err
	}
	found, err := e.Store.SandboxesByStart(
		c.UserContext(),
		middleware.RequestOf(c.UserContext()).Tenant,
		f,
		false,
		models.Start{},
	)
	if err != nil {
		return err
	}
	return c.JSON(e.listedAll(found))
}

// list is a page: X-Next-Token leads to the next one. X-Total-Running counts all that run, if such were asked for.
func (e *Server) list(c *fiber.Ctx) error {
	ctx := c.UserContext()
	q, err := e.listQuery(c)
	if err != nil {
		return err
	}
	if slices.Contains(q.States, models.SandboxRunning) {
		running := q.SandboxFilter
		running.States = []models.SandboxState{models.SandboxRunning}
		n, err := e.Store.CountSandboxes(ctx, middleware.RequestOf(ctx).Tenant, running)
		if err != nil {
			return err
		}
		c.Set("X-Total-Running", strconv.Itoa(n))
	}
	limit := q.Limit
	q.Limit++
	found, err := e.Store.SandboxesByStart(ctx, middleware.RequestOf(ctx).Tenant, q.SandboxFilter, q.oldest, q.after)
	if err != nil {
		return err
	}
	if len(found) > limit {
		found = found[:limit]
		c.Set("X-Next-Token", placeToken(found[limit-1]))
	}
	return c.JSON(e.listedAll(found))
}

func (e *Server) listedAll(found []models.Sandbox) []listedDoc {
	docs := []listedDoc{}
	for _, b := range found {
		docs = append(docs, e.listed(b))
	}
	return docs
}

// pageQuery is what a page of the list is asked for by.
type pageQuery struct {
	models.SandboxFilter
	oldest bool // first
	after  models.Start
}

func (e *Server) listQuery(c *fiber.Ctx) (q pageQuery, err error) {
	q.Limit = pageSize
	if q.Labels, err = readMetadata(c.Query("metadata")); err != nil {
		return q, err
	}
	if q.States, err = readStates(c); err != nil {
		return q, err
	}
	if q.after, err = readPlace(c.Query("nextToken")); err != nil {
		return q, err
	}
	if q.Limit, err = readNumber(c, "limit", pageSize, 1, pageSize); err != nil {
		return q, err
	}
	if text := c.Query("startedAfter"); text != "" {
		if q.Since, err = time.Parse(time.RFC3339, text); err != nil {
			return q, invalid("startedAfter must be a time such as 2026-01-31T12:00:00Z")
		}
	}
	order := c.Query("order", "desc")
	if order != "asc" && order != "desc" {
		return q, invalid("order must be asc or desc")
	}
	q.oldest = order == "asc"
	q.Template, err = e.templateName(c.UserContext(), c.Query("template"))
	return q, err
}

// templateName is what the sandboxes call their template that clients know as name.
func (e *Server) templateName(ctx context.Context, name string) (string, error) {
	if name != baseTemplate {
		return name, nil
	}
	known, err := e.template(ctx, name)
	if err == nil && known == "" {
		known = e.Jobs.Catalog().Template
	}
	return known, err
}

// placeToken names the place behind a sandbox.
func placeToken(b models.Sandbox) string {
	if b.StartedAt == nil {
		return "" // which the list does not hold
	}
	return strconv.FormatInt(b.StartedAt.UnixMicro(), 10) + "_" + b.ID
}

// readPlace reads what placeToken has written.
func readPlace(token string) (s models.Start, err error) {
	if token == "" {
		return s, nil
	}
	at, id, _ := strings.Cut(token, "_")
	micro, err := strconv.ParseInt(at, 10, 64)
	if err != nil || id == "" {
		return s, invalid("nextToken must be the value of a previous X-Next-Token")
	}
	return models.Start{At: time.UnixMicro(micro), ID: id}, nil
}

// readStates reads state=running,paused, in one or several parameters. Without it both are meant.
func readStates(c *fiber.Ctx) ([]models.SandboxState, error) {
	known := []models.SandboxState{models.SandboxRunning, models.SandboxPaused}
	var states []models.SandboxState
	for _, given := range c.Context().QueryArgs().PeekMulti("state") {
		for _, name := range strings.Split(string(given), ",") {
			if !slices.Contains(known, models.SandboxState(name)) {
				return nil, invalid("state must be running or paused")
			}
			states = append(states, models.SandboxState(name))
		}
	}
	if len(states) == 0 {
		return known, nil
	}
	return states, nil
}

// readMetadata reads a query string within a query parameter. Clients escape names and values once more before they
// make the query string.
func readMetadata(text string) (map[string]string, error) {
	values, err := url.ParseQuery(text)
	if err != nil {
		return nil, invalid("metadata must be a query string: " + err.Error())
	}
	m := map[string]string{}
	for k, v := range values {
		name, value := unescaped(k), unescaped(v[0])
		if !middleware.Storable([]byte(name + value)) {
			return nil, invalid("metadata must be UTF-8 without NUL")
		}
		m[name] = value
	}
	return m, nil
}

// unescaped leaves what is not escaped as it is.
func unescaped(text string) string {
	if plain, err := url.PathUnescape(text); err == nil {
		return plain
	}
	return text
}

// readNumber reads a parameter, whose default is none.
func readNumber(c *fiber.Ctx, name string, none, least, most int) (int, error) {
	text := c.Query(name)
	if text == "" {
		return none, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < least || n > most {
		return 0, invalid(fmt.Sprintf("%s must be a number between %d and %d", name, least, most))
	}
	return n, nil
}

func invalid(message string) error {
	return problem.New(http.StatusBadRequest, "invalid_request", message)
}
