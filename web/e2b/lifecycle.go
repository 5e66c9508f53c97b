package e2b

import (
	"net/http"

	"github.com/gofiber/fiber/v2"

	"sandyard/jobs/kind"
	"sandyard/models"
	"sandyard/web/middleware"
	"sandyard/web/problem"
)

// defaultRefresh is how long a refresh lasts that says nothing about it, and at most, in seconds.
const (
	defaultRefresh = 15
	maxRefresh     = 3600
)

func (e *Server) kill(c *fiber.Ctx) error {
	ctx := c.UserContext()
	box, err := e.Store.Sandbox(ctx, middleware.RequestOf(ctx).Tenant, c.Params("id"))
	if err != nil {
		return err
	}
	if box.Ended() {
		return models.ErrNotFound
	}
	o, err := e.options(c)
	if err != nil {
		return err
	}
	done, err := e.Jobs.Delete(ctx, box.ID, true, o)
	_, err = e.carryOut(ctx, done, err)
	return err
}

func (e *Server) pause(c *fiber.Ctx) error {
	var body struct {
		Memory  *bool `json:"memory"`
		Healthy bool  `json:"requireHealthyGuest"`
	}
	if err := e.read(c, &body); err != nil {
		return err
	}
	switch {
	case body.Memory != nil && !*body.Memory:
		return unsupported("a pause without memory")
	case body.Healthy:
		return unsupported("requireHealthyGuest")
	}
	box, err := e.live(c)
	if err != nil {
		return err
	}
	if pausing(box) {
		return problem.New(http.StatusConflict, "sandbox_paused", "the sandbox is already paused")
	}
	_, err = e.change(c, box.ID, &kind.Pause{})
	return err
}

// pausing says whether a sandbox is paused or about to be.
func pausing(b models.Sandbox) bool {
	return b.State == models.SandboxPaused || b.Desired == models.DesiredPaused
}

// timeBody is a body that says how long a sandbox is to live from now, in seconds.
type timeBody struct {
	Timeout   *float64 `json:"timeout"`
	Duration  *float64 `json:"duration"`
	Memory    *bool    `json:"memory"`
	AutoPause *bool    `json:"autoPause"`
}

// connect resumes a paused sandbox, and makes a running one live at least as long as asked; timeout, in seconds, is for
// bodies that do not say.
func (e *Server) connect(timeout float64) fiber.Handler {
	return func(c *fiber.Ctx) error {
		box, body, err := e.timed(c, timeout)
		if err != nil {
			return err
		}
		if pausing(box) {
			return e.wake(c, box, body)
		}
		if err := e.expireIn(c, box, *body.Timeout, true); err != nil {
			return err
		}
		return c.JSON(e.access(box))
	}
}

// resume is what clients used before connect.
func (e *Server) resume(c *fiber.Ctx) error {
	box, body, err := e.timed(c, timeoutV1)
	if err != nil {
		return err
	}
	if !pausing(box) {
		return problem.New(http.StatusConflict, "sandbox_running", "the sandbox is already running")
	}
	return e.wake(c, box, body)
}

// timed reads a body with a timeout, and finds the sandbox. Where the body names none it is as timeout says; 0 = it
// must.
func (e *Server) timed(c *fiber.Ctx, timeout float64) (box models.Sandbox, body timeBody, err error) {
	if err := e.read(c, &body); err != nil {
		return box, body, err
	}
	seconds, err := readSeconds("timeout", body.Timeout, timeout)
	if err != nil {
		return box, body, err
	}
	body.Timeout = &seconds
	box, err = e.live(c)
	return box, body, err
}

// wake resumes a sandbox, whose timeout starts with that. Of several who do so at once nobody takes time from another.
func (e *Server) wake(c *fiber.Ctx, box models.Sandbox, body timeBody) error {
	switch {
	case body.Memory != nil && !*body.Memory:
		return unsupported("a resume without memory")
	case body.AutoPause != nil && *body.AutoPause != (box.OnTimeout == "pause"):
		return unsupported("changing autoPause of an existing sandbox")
	}
	box, err := e.change(c, box.ID, &kind.Resume{TimeoutSeconds: *body.Timeout})
	if err != nil {
		return err
	}
	return c.Status(http.StatusCreated).JSON(e.access(box))
}

// setTimeout may also shorten a sandbox's life. Like E2B's it knows only running sandboxes.
func (e *Server) setTimeout(c *fiber.Ctx) error {
	box, body, err := e.timed(c, 0)
	if err != nil {
		return err
	}
	if pausing(box) {
		return models.ErrNotFound
	}
	return e.expireIn(c, box, *body.Timeout, false)
}

// refresh makes a running sandbox live at least as long as asked.
func (e *Server) refresh(c *fiber.Ctx) error {
	body := timeBody{}
	if err := e.read(c, &body); err != nil {
		return err
	}
	seconds, err := readSeconds("duration", body.Duration, defaultRefresh)
	if err != nil {
		return err
	}
	if seconds > maxRefresh {
		return problem.New(http.StatusBadRequest, "invalid_request", "body.duration must be at most 3600")
	}
	box, err := e.live(c)
	if err == nil && pausing(box) {
		err = models.ErrNotFound
	}
	if err != nil {
		return err
	}
	return e.expireIn(c, box, seconds, true)
}

// expireIn sets a sandbox's end, or only moves it away, which holds as soon as the job is accepted.
func (e *Server) expireIn(c *fiber.Ctx, box models.Sandbox, seconds float64, onlyLater bool) error {
	o, err := e.options(c)
	if err == nil {
		_, err = e.Jobs.Submit(c.UserContext(), box.ID, &kind.SetTimeout{TimeoutSeconds: seconds, OnlyLater: onlyLater}, o)
	}
	return err
}
