package web

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gofiber/fiber/v2"

	"sandyard/models"
)

// How many entries a list holds that does not say, and at most.
const (
	e2bPage   = 100
	e2bMaxLog = 1000
)

func (e *e2b) get(c *fiber.Ctx) error {
	box, err := e.live(c)
	if err != nil {
		return err
	}
	return c.JSON(e.detail(box))
}

// listRunning is the list without pages that older clients know.
func (e *e2b) listRunning(c *fiber.Ctx) error {
	f := models.SandboxFilter{States: []models.SandboxState{models.SandboxRunning}, Limit: e2bMaxLog}
	var err error
	if f.Labels, err = e2bMetadata(c.Query("metadata")); err != nil {
		return err
	}
	return e.writeList(c, f)
}

// list is a page: X-Next-Token leads to the next one, X-Total-Running counts all that run.
func (e *e2b) list(c *fiber.Ctx) error {
	f, err := e2bFilter(c)
	if err != nil {
		return err
	}
	running := f
	running.States = []models.SandboxState{models.SandboxRunning}
	n, err := e.store.CountSandboxes(c.UserContext(), requestOf(c.UserContext()).tenant, running)
	if err != nil {
		return err
	}
	c.Set("X-Total-Running", strconv.Itoa(n))
	return e.writeList(c, f)
}

func (e *e2b) writeList(c *fiber.Ctx, f models.SandboxFilter) error {
	limit := f.Limit
	f.Limit++
	found, err := e.store.Sandboxes(c.UserContext(), requestOf(c.UserContext()).tenant, f)
	if err != nil {
		return err
	}
	if len(found) > limit {
		found = found[:limit]
		c.Set("X-Next-Token", found[limit-1].ID)
	}
	docs := []e2bListed{}
	for _, b := range found {
		docs = append(docs, e.listed(b))
	}
	return c.JSON(docs)
}

func e2bFilter(c *fiber.Ctx) (f models.SandboxFilter, err error) {
	f = models.SandboxFilter{Before: c.Query("nextToken"), Limit: e2bPage}
	if f.Labels, err = e2bMetadata(c.Query("metadata")); err != nil {
		return f, err
	}
	if f.States, err = e2bStates(c); err != nil {
		return f, err
	}
	if text := c.Query("limit"); text != "" {
		f.Limit, err = strconv.Atoi(text)
		if err != nil || f.Limit < 1 || f.Limit > e2bPage {
			return f, newProblem(http.StatusBadRequest, "invalid_request", fmt.Sprintf("limit must be between 1 and %d", e2bPage))
		}
	}
	return f, nil
}

// e2bStates reads state=running,paused, in one or several parameters. Without it both are meant.
func e2bStates(c *fiber.Ctx) ([]models.SandboxState, error) {
	known := []models.SandboxState{models.SandboxRunning, models.SandboxPaused}
	var states []models.SandboxState
	for _, given := range c.Context().QueryArgs().PeekMulti("state") {
		for _, name := range strings.Split(string(given), ",") {
			if !slices.Contains(known, models.SandboxState(name)) {
				return nil, newProblem(http.StatusBadRequest, "invalid_request", "state must be running or paused")
			}
			states = append(states, models.SandboxState(name))
		}
	}
	if len(states) == 0 {
		return known, nil
	}
	return states, nil
}

// e2bMetadata reads a query string within a query parameter.
func e2bMetadata(text string) (map[string]string, error) {
	values, err := url.ParseQuery(text)
	if err != nil {
		return nil, newProblem(http.StatusBadRequest, "invalid_request", "metadata must be a query string: "+err.Error())
	}
	m := map[string]string{}
	for k, v := range values {
		if !storable([]byte(k + v[0])) {
			return nil, newProblem(http.StatusBadRequest, "invalid_request", "metadata must be UTF-8 without NUL")
		}
		m[k] = v[0]
	}
	return m, nil
}

// metrics has no samples: nothing is recorded of a sandbox's use of its resources.
func (e *e2b) metrics(c *fiber.Ctx) error {
	if _, err := e.live(c); err != nil {
		return err
	}
	return c.JSON([]struct{}{})
}

// e2bLog is one entry of a sandbox's log.
type e2bLog struct {
	Timestamp time.Time         `json:"timestamp"`
	Level     string            `json:"level"`
	Message   string            `json:"message"`
	Fields    map[string]string `json:"fields"`
}

// logs are the ends of the sandbox's jobs, oldest first. What programs write is not in any log.
func (e *e2b) logs(c *fiber.Ctx) error {
	entries, err := e.entries(c)
	if err != nil {
		return err
	}
	return c.JSON(fiber.Map{"logs": entries})
}

func (e *e2b) logsV1(c *fiber.Ctx) error {
	entries, err := e.entries(c)
	if err != nil {
		return err
	}
	lines := []fiber.Map{}
	for _, l := range entries {
		lines = append(lines, fiber.Map{"timestamp": l.Timestamp, "line": l.Message})
	}
	return c.JSON(fiber.Map{"logs": lines, "logEntries": entries})
}

func (e *e2b) entries(c *fiber.Ctx) ([]e2bLog, error) {
	box, err := e.live(c)
	if err != nil {
		return nil, err
	}
	found, err := e.store.Jobs(c.UserContext(), box.TenantID, models.JobFilter{Sandbox: box.ID, Limit: e2bMaxLog})
	if err != nil {
		return nil, err
	}
	slices.Reverse(found)
	entries := []e2bLog{}
	for _, j := range found {
		if j.FinishedAt == nil {
			continue
		}
		l := e2bLog{*j.FinishedAt, "info", fmt.Sprintf("%s %s", j.Kind, j.State), map[string]string{"job": j.ID}}
		if j.State != models.Succeeded {
			l.Level = "error"
		}
		entries = append(entries, l)
	}
	return entries, nil
}
