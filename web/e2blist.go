package web

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

// e2bPage is how many sandboxes a page holds that does not say, and at most.
const e2bPage = 100

func (e *e2b) get(c *fiber.Ctx) error {
	box, err := e.live(c)
	if err != nil {
		return err
	}
	return c.JSON(e.detail(box))
}

// listRunning is the list without pages that older clients know.
func (e *e2b) listRunning(c *fiber.Ctx) error {
	f := models.SandboxFilter{States: []models.SandboxState{models.SandboxRunning}}
	var err error
	if f.Labels, err = e2bMetadata(c.Query("metadata")); err != nil {
		return err
	}
	found, err := e.store.SandboxesByStart(c.UserContext(), middleware.RequestOf(c.UserContext()).Tenant, f, false, models.Start{})
	if err != nil {
		return err
	}
	return c.JSON(e.listedAll(found))
}

// list is a page: X-Next-Token leads to the next one. X-Total-Running counts all that run, if such were asked for.
func (e *e2b) list(c *fiber.Ctx) error {
	ctx := c.UserContext()
	q, err := e.listQuery(c)
	if err != nil {
		return err
	}
	if slices.Contains(q.States, models.SandboxRunning) {
		running := q.SandboxFilter
		running.States = []models.SandboxState{models.SandboxRunning}
		n, err := e.store.CountSandboxes(ctx, middleware.RequestOf(ctx).Tenant, running)
		if err != nil {
			return err
		}
		c.Set("X-Total-Running", strconv.Itoa(n))
	}
	limit := q.Limit
	q.Limit++
	found, err := e.store.SandboxesByStart(ctx, middleware.RequestOf(ctx).Tenant, q.SandboxFilter, q.oldest, q.after)
	if err != nil {
		return err
	}
	if len(found) > limit {
		found = found[:limit]
		c.Set("X-Next-Token", e2bToken(found[limit-1]))
	}
	return c.JSON(e.listedAll(found))
}

func (e *e2b) listedAll(found []models.Sandbox) []e2bListed {
	docs := []e2bListed{}
	for _, b := range found {
		docs = append(docs, e.listed(b))
	}
	return docs
}

// e2bQuery is what a page of the list is asked for by.
type e2bQuery struct {
	models.SandboxFilter
	oldest bool // first
	after  models.Start
}

func (e *e2b) listQuery(c *fiber.Ctx) (q e2bQuery, err error) {
	q.Limit = e2bPage
	if q.Labels, err = e2bMetadata(c.Query("metadata")); err != nil {
		return q, err
	}
	if q.States, err = e2bStates(c); err != nil {
		return q, err
	}
	if q.after, err = e2bPlace(c.Query("nextToken")); err != nil {
		return q, err
	}
	if q.Limit, err = e2bNumber(c, "limit", e2bPage, 1, e2bPage); err != nil {
		return q, err
	}
	if text := c.Query("startedAfter"); text != "" {
		if q.Since, err = time.Parse(time.RFC3339, text); err != nil {
			return q, e2bInvalid("startedAfter must be a time such as 2026-01-31T12:00:00Z")
		}
	}
	order := c.Query("order", "desc")
	if order != "asc" && order != "desc" {
		return q, e2bInvalid("order must be asc or desc")
	}
	q.oldest = order == "asc"
	q.Template, err = e.templateName(c.UserContext(), c.Query("template"))
	return q, err
}

// templateName is what the sandboxes call their template that clients know as name.
func (e *e2b) templateName(ctx context.Context, name string) (string, error) {
	if name != e2bBase {
		return name, nil
	}
	known, err := e.template(ctx, name)
	if err == nil && known == "" {
		known = e.jobs.Catalog().Template
	}
	return known, err
}

// e2bToken names the place behind a sandbox.
func e2bToken(b models.Sandbox) string {
	if b.StartedAt == nil {
		return "" // which the list does not hold
	}
	return strconv.FormatInt(b.StartedAt.UnixMicro(), 10) + "_" + b.ID
}

// e2bPlace reads what e2bToken has written.
func e2bPlace(token string) (s models.Start, err error) {
	if token == "" {
		return s, nil
	}
	at, id, _ := strings.Cut(token, "_")
	micro, err := strconv.ParseInt(at, 10, 64)
	if err != nil || id == "" {
		return s, e2bInvalid("nextToken must be the value of a previous X-Next-Token")
	}
	return models.Start{At: time.UnixMicro(micro), ID: id}, nil
}

// e2bStates reads state=running,paused, in one or several parameters. Without it both are meant.
func e2bStates(c *fiber.Ctx) ([]models.SandboxState, error) {
	known := []models.SandboxState{models.SandboxRunning, models.SandboxPaused}
	var states []models.SandboxState
	for _, given := range c.Context().QueryArgs().PeekMulti("state") {
		for _, name := range strings.Split(string(given), ",") {
			if !slices.Contains(known, models.SandboxState(name)) {
				return nil, e2bInvalid("state must be running or paused")
			}
			states = append(states, models.SandboxState(name))
		}
	}
	if len(states) == 0 {
		return known, nil
	}
	return states, nil
}

// e2bMetadata reads a query string within a query parameter. Clients escape names and values once more before they make
// the query string.
func e2bMetadata(text string) (map[string]string, error) {
	values, err := url.ParseQuery(text)
	if err != nil {
		return nil, e2bInvalid("metadata must be a query string: " + err.Error())
	}
	m := map[string]string{}
	for k, v := range values {
		name, value := unescaped(k), unescaped(v[0])
		if !middleware.Storable([]byte(name + value)) {
			return nil, e2bInvalid("metadata must be UTF-8 without NUL")
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

// e2bNumber reads a parameter, whose default is none.
func e2bNumber(c *fiber.Ctx, name string, none, least, most int) (int, error) {
	text := c.Query(name)
	if text == "" {
		return none, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < least || n > most {
		return 0, e2bInvalid(fmt.Sprintf("%s must be a number between %d and %d", name, least, most))
	}
	return n, nil
}

func e2bInvalid(message string) error {
	return problem.New(http.StatusBadRequest, "invalid_request", message)
}
