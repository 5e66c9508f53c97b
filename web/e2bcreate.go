package web

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"github.com/gofiber/fiber/v2"

	"sandyard/jobs"
	"sandyard/models"
)

// e2bBase is what E2B's clients call the template of sandboxes that name none.
const e2bBase = "base"

// e2bTimeout is how long a sandbox lives that says nothing about it, in seconds.
const e2bTimeout = 15

// e2bCreate is the body of a create. What no server without E2B's cloud can do is refused, not ignored.
type e2bCreate struct {
	TemplateID string            `json:"templateID"`
	Timeout    *float64          `json:"timeout"`
	Metadata   map[string]string `json:"metadata"`
	EnvVars    map[string]string `json:"envVars"`
	AutoPause  bool              `json:"autoPause"`
	AutoResume *struct {
		Enabled bool `json:"enabled"`
	} `json:"autoResume"`
	AutoPauseMemory *bool `json:"autoPauseMemory"`
	Internet        *bool `json:"allow_internet_access"`
	Network         struct {
		AllowPublicTraffic bool `json:"allowPublicTraffic"`
		e2bEgress
	} `json:"network"`
	VolumeMounts []json.RawMessage `json:"volumeMounts"`
	MCP          json.RawMessage   `json:"mcp"`
}

func (b e2bCreate) unsupported() error {
	for what, asked := range map[string]bool{
		"autoPauseMemory false": b.AutoPause && b.AutoPauseMemory != nil && !*b.AutoPauseMemory,
		"volumeMounts":          len(b.VolumeMounts) > 0,
		"mcp":                   len(b.MCP) > 0 && string(b.MCP) != "null",
	} {
		if asked {
			return newProblem(http.StatusBadRequest, "unsupported_operation", what+" is not supported here")
		}
	}
	return b.Network.unsupported()
}

// wish says in our terms what the body asks for.
func (e *e2b) wish(ctx context.Context, b e2bCreate) (jobs.CreateSandbox, error) {
	w := jobs.CreateSandbox{
		Template: b.TemplateID, Env: b.EnvVars, TimeoutSeconds: e2bTimeout, AutoResume: b.AutoResume != nil && b.AutoResume.Enabled,
		Foreign: jobs.Foreign{Metadata: b.Metadata, NeverIdle: true, Public: b.Network.AllowPublicTraffic},
	}
	if err := b.unsupported(); err != nil {
		return w, err
	}
	if policy := e.egress(b.Network.e2bEgress, b.Internet); b.Network.silent() && b.Internet == nil {
		w.Foreign.Egress = policy // the template's own comes first
	} else {
		w.Egress = &policy
	}
	if b.Timeout != nil {
		w.TimeoutSeconds = max(*b.Timeout, 1)
	}
	if b.AutoPause {
		w.OnTimeout = "pause"
	}
	return w, e.chooseTemplate(ctx, &w)
}

// chooseTemplate takes E2B's base for the default template, unless the tenant has one of its own by that name.
func (e *e2b) chooseTemplate(ctx context.Context, w *jobs.CreateSandbox) error {
	missing := newProblem(http.StatusNotFound, "not_found", fmt.Sprintf("template '%s' not found", w.Template))
	if w.Template == "" {
		return missing
	}
	t, err := e.jobs.Template(ctx, requestOf(ctx).tenant, w.Template)
	switch {
	case w.Template == e2bBase && (errors.Is(err, models.ErrNotFound) || err == nil && t.TenantID == nil):
		w.Template = ""
		return nil
	case errors.Is(err, models.ErrNotFound):
		return missing
	}
	return err
}

func (e *e2b) create(c *fiber.Ctx) error {
	ctx := c.UserContext()
	var body e2bCreate
	if err := e.read(c, &body); err != nil {
		return err
	}
	wish, err := e.wish(ctx, body)
	if err != nil {
		return err
	}
	done, err := e.jobs.Create(ctx, wish, e.options(ctx))
	var limit *models.LimitError
	if errors.As(err, &limit) {
		return newProblem(http.StatusTooManyRequests, "limit_reached", fmt.Sprintf(
			"you have reached the maximum number of concurrent sandboxes (%d); delete one or ask your operator for more", limit.Max))
	}
	box, err := e.carryOut(ctx, done, err)
	if err != nil {
		e.abandon(ctx, done)
		return err
	}
	return c.Status(http.StatusCreated).JSON(e.access(box))
}

// abandon removes a sandbox whose id nobody will learn.
func (e *e2b) abandon(ctx context.Context, done models.Submitted) {
	if done.Sandbox.ID == "" {
		return
	}
	_, err := e.jobs.Delete(context.WithoutCancel(ctx), done.Sandbox.ID, true, e.options(ctx))
	if err != nil {
		e.log.WarnContext(ctx, "sandbox of a failed create not deleted, its timeout will end it", "sandbox_id", done.Sandbox.ID, "error", err)
	}
}
