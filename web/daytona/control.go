package daytona

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gofiber/fiber/v2"

	"sandyard/jobs"
	"sandyard/jobs/kind"
	"sandyard/models"
	"sandyard/web/middleware"
	"sandyard/web/problem"
)

// sandboxes has the routes of sandboxes and their previews.
type sandboxes struct{ *core }

func (s *sandboxes) addControl(r routes) {
	const one = api + "/sandbox/:id"
	r.post(api+"/sandbox", body(s.create))
	r.get(api+"/sandbox", s.list)
	r.get(one, s.get)
	r.remove(one, s.remove)
	r.post(one+"/start", s.start)
	r.post(one+"/stop", s.stop)
	r.put(one+"/labels", body(s.setLabels))
	r.post(one+"/autostop/:minutes", s.setStop)
	r.post(one+"/autopause/:minutes", s.setStop)
	r.post(one+"/autodelete/:minutes", s.setDelete)
	r.post(one+"/ttl/:minutes", s.setLife)
	r.post(one+"/last-activity", middleware.Then(http.StatusCreated, s.activity))
	r.post(one+"/network-settings", body(s.setNetwork))
	r.get(one+"/ports/:port/preview-url", s.preview)
	r.get(one+"/ports/:port/signed-preview-url", s.signed)
	r.post(one+"/ports/:port/signed-preview-url/:token/expire", middleware.Then(http.StatusOK, s.expire))
	r.get(one+"/toolbox-proxy-url", s.proxyURL)
}

func (s *sandboxes) get(c *fiber.Ctx) error {
	box, err := s.calls.Find(c.UserContext(), c.Params("id"))
	if err != nil {
		return err
	}
	return c.JSON(s.document(c, box))
}

// change does something to the sandbox of the path and answers with how it stands afterwards.
func (s *sandboxes) change(c *fiber.Ctx, do func(ctx context.Context, id string) error) error {
	ctx := c.UserContext()
	box, err := s.calls.Find(ctx, c.Params("id"))
	if err != nil {
		return err
	}
	if err := do(ctx, box.ID); err != nil {
		return err
	}
	if box, err = s.store.Sandbox(ctx, box.TenantID, box.ID); err != nil {
		return err
	}
	return c.JSON(s.document(c, box))
}

func (s *sandboxes) remove(c *fiber.Ctx) error { return s.change(c, s.calls.Delete) }

func (s *sandboxes) start(c *fiber.Ctx) error {
	return s.change(c, func(ctx context.Context, id string) error {
		box, err := s.calls.Sandbox(ctx, id)
		if err != nil || box.State == models.SandboxRunning && box.Desired == models.DesiredRunning {
			return err
		}
		_, err = s.calls.Do(ctx, id, &kind.Resume{})
		return err
	})
}

// stop pauses: the programs' memory stays. A sandbox that is to be deleted when it stops is deleted.
func (s *sandboxes) stop(c *fiber.Ctx) error {
	return s.change(c, func(ctx context.Context, id string) error {
		box, err := s.calls.Sandbox(ctx, id)
		if err == nil && box.OnTimeout == "delete" {
			return s.calls.Delete(ctx, id)
		}
		if err != nil {
			return err
		}
		return s.calls.Pause(ctx, id)
	})
}

func (s *sandboxes) setLabels(c *fiber.Ctx, in *struct {
	Labels map[string]string `json:"labels" required:"true"`
},
) error {
	ctx := c.UserContext()
	box, err := s.calls.Find(ctx, c.Params("id"))
	if err != nil {
		return err
	}
	if err := jobs.CheckMetadata(in.Labels); err != nil {
		return err
	}
	if err := s.mw.Begin(ctx); err != nil {
		return err
	}
	if err := s.store.SetLabels(ctx, box.TenantID, box.ID, in.Labels); err != nil {
		return err
	}
	return c.JSON(map[string]any{"labels": in.Labels})
}

func (s *sandboxes) setStop(c *fiber.Ctx) error {
	n, err := number(c, "minutes")
	if err != nil {
		return err
	}
	span, err := stopSpan(n)
	if err != nil {
		return err
	}
	return s.change(c, func(ctx context.Context, id string) error {
		_, err := s.calls.Do(ctx, id, &kind.SetTimeout{TimeoutSeconds: span.Seconds()})
		return err
	})
}

// setDelete sets what becomes of a sandbox that has stopped: negative = nothing, 0 = it is deleted at once.
func (s *sandboxes) setDelete(c *fiber.Ctx) error {
	n, err := number(c, "minutes")
	if err != nil {
		return err
	}
	onStop, span := "pause", time.Duration(max(0, n))*time.Minute
	if n == 0 {
		onStop = "delete"
	}
	return s.change(c, func(ctx context.Context, id string) error {
		ms, err := s.calls.PausedSpan(span)
		if err != nil {
			return err
		}
		if err := s.mw.Begin(ctx); err != nil {
			return err
		}
		return s.store.SetStopping(ctx, middleware.RequestOf(ctx).Tenant, id, onStop, ms)
	})
}

// mostLife is the longest time to live in minutes: a year, as at create.
const mostLife = 365 * 24 * 60

// setLife sets when a sandbox is deleted whatever its state, from now on; 0 = never, or as late as the server allows.
func (s *sandboxes) setLife(c *fiber.Ctx) error {
	n, err := number(c, "minutes")
	if err != nil {
		return err
	}
	switch {
	case n < 0:
		return problem.Invalid("path.minutes", "must not be negative")
	case n > mostLife:
		return problem.Invalid("path.minutes", "must be at most "+strconv.Itoa(mostLife)+", a year")
	}
	return s.change(c, func(ctx context.Context, id string) error {
		box, err := s.calls.Sandbox(ctx, id)
		if err != nil {
			return err
		}
		if err := s.mw.Begin(ctx); err != nil {
			return err
		}
		return s.store.SetLife(ctx, box.TenantID, box.ID, time.Duration(n)*time.Minute, s.calls.LongestLife())
	})
}

func (s *sandboxes) activity(c *fiber.Ctx) error {
	ctx := c.UserContext()
	box, err := s.calls.Find(ctx, c.Params("id"))
	if err != nil {
		return err
	}
	return s.touch(ctx, box, true)
}

func (s *sandboxes) proxyURL(c *fiber.Ctx) error {
	if _, err := s.calls.Find(c.UserContext(), c.Params("id")); err != nil {
		return err
	}
	return c.JSON(map[string]string{"url": c.BaseURL() + toolbox})
}

// number reads a whole number of the path.
func number(c *fiber.Ctx, name string) (int64, error) {
	n, err := strconv.ParseInt(c.Params(name), 10, 32)
	if err != nil {
		return 0, problem.Invalid("path."+name, "must be a whole number")
	}
	return n, nil
}

// Pages of the list.
const (
	defaultPage = 100
	largestPage = 200
)

// filters are the parameters of the list that are taken.
func filters() []string {
	return []string{"cursor", "limit", "labels", "name", "id", "states", "sort", "order"}
}

// list is a page of the tenant's live sandboxes, newest first.
func (s *sandboxes) list(c *fiber.Ctx) error {
	f, err := filterOf(c)
	if err != nil {
		return err
	}
	limit := f.Limit
	f.Limit++
	found, err := s.store.Sandboxes(c.UserContext(), middleware.RequestOf(c.UserContext()).Tenant, f)
	if err != nil {
		return err
	}
	var next *string
	if len(found) > limit {
		found = found[:limit]
		next = &found[limit-1].ID
	}
	items := []sandbox{}
	for _, b := range found {
		doc := s.document(c, b)
		doc.Env = nil
		items = append(items, doc)
	}
	return c.JSON(map[string]any{"items": items, "nextCursor": next})
}

func filterOf(c *fiber.Ctx) (f models.SandboxFilter, err error) {
	for name := range c.Context().QueryArgs().All() {
		if !slices.Contains(filters(), string(name)) {
			return f, unsupported("the filter " + string(name))
		}
	}
	if sort, order := c.Query("sort", "createdAt"), c.Query("order", "desc"); sort != "createdAt" || order != "desc" {
		return f, unsupported("another order than sort=createdAt and order=desc")
	}
	if c.Query("id") != "" {
		return f, unsupported("the filter id")
	}
	f = models.SandboxFilter{Live: true, Before: c.Query("cursor"), Key: c.Query("name"), Limit: defaultPage}
	if text := c.Query("labels"); text != "" {
		if json.Unmarshal([]byte(text), &f.Labels) != nil || !middleware.Storable([]byte(text)) {
			return f, problem.Invalid("query.labels", `must be a JSON object of texts, such as {"team":"a"}`)
		}
	}
	if text := c.Query("limit"); text != "" {
		if f.Limit, err = strconv.Atoi(text); err != nil || f.Limit < 1 || f.Limit > largestPage {
			return f, problem.Invalid("query.limit", fmt.Sprintf("must be between 1 and %d", largestPage))
		}
	}
	for _, given := range c.Context().QueryArgs().PeekMulti("states") {
		for name := range strings.SplitSeq(string(given), ",") {
			state, known := map[string]models.SandboxState{
				"creating": models.SandboxCreating, "started": models.SandboxRunning, "stopped": models.SandboxPaused,
			}[name]
			if !known {
				return f, problem.Invalid("query.states", "must be creating, started or stopped")
			}
			f.States = append(f.States, state)
		}
	}
	return f, nil
}
