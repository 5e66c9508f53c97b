package web

import (
	"context"
	"net/http"

	"github.com/gofiber/fiber/v2"

	"sandyard/jobs"
	"sandyard/models"
)

// e2bRefresh is how long a refresh lasts that says nothing about it, and at most, in seconds.
const (
	e2bRefresh    = 15
	e2bMaxRefresh = 3600
)

func (e *e2b) kill(c *fiber.Ctx) error {
	ctx := c.UserContext()
	box, err := e.store.Sandbox(ctx, requestOf(ctx).tenant, c.Params("id"))
	if err != nil {
		return err
	}
	if box.Ended() {
		return models.ErrNotFound
	}
	done, err := e.jobs.Delete(ctx, box.ID, true, e.options(ctx))
	if _, err := e.carryOut(ctx, done, err); err != nil {
		return err
	}
	return c.SendStatus(http.StatusNoContent)
}

func (e *e2b) pause(c *fiber.Ctx) error {
	ctx := c.UserContext()
	var body struct {
		Memory *bool `json:"memory"`
	}
	if err := e.read(c, &body); err != nil {
		return err
	}
	if body.Memory != nil && !*body.Memory {
		return newProblem(http.StatusBadRequest, "unsupported_operation", "a pause always keeps the memory here")
	}
	box, err := e.live(c)
	if err != nil {
		return err
	}
	if e2bPaused(box) {
		return newProblem(http.StatusConflict, "sandbox_paused", "the sandbox is paused already")
	}
	done, err := e.jobs.Submit(ctx, box.ID, &jobs.Pause{}, e.options(ctx))
	if _, err := e.carryOut(ctx, done, err); err != nil {
		return err
	}
	return c.SendStatus(http.StatusNoContent)
}

// e2bPaused says whether a sandbox is paused or about to be.
func e2bPaused(b models.Sandbox) bool {
	return b.State == models.SandboxPaused || b.Desired == models.DesiredPaused
}

// e2bTime is a body that says how long a sandbox is to live from now, in seconds.
type e2bTime struct {
	Timeout  *float64 `json:"timeout"`
	Duration *float64 `json:"duration"`
}

// connect resumes a paused sandbox, and makes a running one live at least as long as asked.
func (e *e2b) connect(c *fiber.Ctx) error {
	box, seconds, err := e.timed(c)
	if err != nil {
		return err
	}
	if e2bPaused(box) {
		return e.wake(c, box, seconds)
	}
	if err := e.extend(c.UserContext(), box, seconds); err != nil {
		return err
	}
	return c.JSON(e.access(box))
}

// resume is what clients used before connect.
func (e *e2b) resume(c *fiber.Ctx) error {
	box, seconds, err := e.timed(c)
	if err != nil {
		return err
	}
	if !e2bPaused(box) {
		return newProblem(http.StatusConflict, "sandbox_running", "the sandbox is running already")
	}
	return e.wake(c, box, seconds)
}

func (e *e2b) timed(c *fiber.Ctx) (models.Sandbox, float64, error) {
	body := e2bTime{}
	if err := e.read(c, &body); err != nil {
		return models.Sandbox{}, 0, err
	}
	seconds := float64(e2bTimeout)
	if body.Timeout != nil {
		seconds = max(*body.Timeout, 1)
	}
	box, err := e.live(c)
	return box, seconds, err
}

// wake sets the timeout first: the sandbox's clock starts with the resume.
func (e *e2b) wake(c *fiber.Ctx, box models.Sandbox, seconds float64) error {
	ctx := c.UserContext()
	if err := e.expireIn(ctx, box, seconds); err != nil {
		return err
	}
	done, err := e.jobs.Submit(ctx, box.ID, &jobs.Resume{}, e.options(ctx))
	box, err = e.carryOut(ctx, done, err)
	if err != nil {
		return err
	}
	return c.Status(http.StatusCreated).JSON(e.access(box))
}

// setTimeout may also shorten a sandbox's life. Like E2B's it knows only running sandboxes.
func (e *e2b) setTimeout(c *fiber.Ctx) error {
	box, seconds, err := e.timed(c)
	if err != nil {
		return err
	}
	if e2bPaused(box) {
		return models.ErrNotFound
	}
	if err := e.expireIn(c.UserContext(), box, seconds); err != nil {
		return err
	}
	return c.SendStatus(http.StatusNoContent)
}

func (e *e2b) refresh(c *fiber.Ctx) error {
	body := e2bTime{}
	if err := e.read(c, &body); err != nil {
		return err
	}
	seconds := float64(e2bRefresh)
	if body.Duration != nil {
		seconds = min(max(*body.Duration, 1), e2bMaxRefresh)
	}
	box, err := e.live(c)
	if err != nil {
		return err
	}
	if err := e.extend(c.UserContext(), box, seconds); err != nil {
		return err
	}
	return c.SendStatus(http.StatusNoContent)
}

// extend moves a sandbox's end, but never closer.
func (e *e2b) extend(ctx context.Context, box models.Sandbox, seconds float64) error {
	if box.ExpiresAt.Sub(e.store.Now(ctx)).Seconds() >= seconds {
		return nil
	}
	return e.expireIn(ctx, box, seconds)
}

// expireIn sets a sandbox's end, which holds as soon as the job is accepted.
func (e *e2b) expireIn(ctx context.Context, box models.Sandbox, seconds float64) error {
	_, err := e.jobs.Submit(ctx, box.ID, &jobs.SetTimeout{TimeoutSeconds: seconds}, e.options(ctx))
	return err
}
