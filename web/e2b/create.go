package e2b

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"github.com/gofiber/fiber/v2"

	"sandyard/jobs"
	"sandyard/models"
	"sandyard/web/middleware"
	"sandyard/web/problem"
)

// baseTemplate is what E2B's clients call the template of sandboxes that name none.
const baseTemplate = "base"

// createBody is the body of a create. What no server without E2B's cloud can do is refused, not ignored.
type createBody struct {
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
		AllowPublicTraffic bool   `json:"allowPublicTraffic"`
		MaskRequestHost    string `json:"maskRequestHost"`
		HTTPSPorts         []int  `json:"httpsPorts"`
		egressBody
	} `json:"network"`
	VolumeMounts []json.RawMessage `json:"volumeMounts"`
	MCP          json.RawMessage   `json:"mcp"`
	IAM          *struct {
		Tokens map[string]json.RawMessage `json:"tokens"`
	} `json:"iam"`
}

func (b createBody) unsupported() error {
	for what, asked := range map[string]bool{
		"autoPauseMemory false":   b.AutoPause && b.AutoPauseMemory != nil && !*b.AutoPauseMemory,
		"volumeMounts":            len(b.VolumeMounts) > 0,
		"mcp":                     given(b.MCP),
		"iam":                     b.IAM != nil && len(b.IAM.Tokens) > 0,
		"network.maskRequestHost": b.Network.MaskRequestHost != "",
		"network.httpsPorts":      len(b.Network.HTTPSPorts) > 0,
	} {
		if asked {
			return unsupported(what)
		}
	}
	return b.Network.unsupported()
}

// wish says in our terms what the body asks for.
func (e *Server) wish(ctx context.Context, b createBody, timeout float64) (w jobs.CreateSandbox, err error) {
	w = jobs.CreateSandbox{
		Template: b.TemplateID, Env: b.EnvVars, AutoResume: b.AutoResume != nil && b.AutoResume.Enabled,
		Foreign: jobs.Foreign{Metadata: b.Metadata, NeverIdle: true, OwnNetwork: true, Public: b.Network.AllowPublicTraffic},
	}
	if w.TimeoutSeconds, err = readSeconds("timeout", b.Timeout, timeout); err != nil {
		return w, err
	}
	if err := b.unsupported(); err != nil {
		return w, err
	}
	if policy := e.egress(b.Network.egressBody, b.Internet); b.Network.silent() && b.Internet == nil {
		w.Foreign.Egress = policy // the template's own comes first
	} else {
		w.Egress = &policy
	}
	if b.AutoPause {
		w.OnTimeout = "pause"
	}
	w.Template, err = e.template(ctx, b.TemplateID)
	return w, err
}

// template takes E2B's base for the default template, which has no name here, unless the tenant has one of its own by
// that name.
func (e *Server) template(ctx context.Context, name string) (string, error) {
	missing := problem.New(http.StatusNotFound, "not_found", fmt.Sprintf("template '%s' not found", name))
	if name == "" {
		return "", missing
	}
	t, err := e.Jobs.Template(ctx, middleware.RequestOf(ctx).Tenant, name)
	switch {
	case name == baseTemplate && (errors.Is(err, models.ErrNotFound) || err == nil && t.TenantID == nil):
		return "", nil
	case errors.Is(err, models.ErrNotFound):
		return "", missing
	}
	return name, err
}

// create makes a sandbox that lives as long as timeout says, in seconds, where its body does not.
func (e *Server) create(timeout float64) fiber.Handler {
	return func(c *fiber.Ctx) error {
		ctx := c.UserContext()
		var body createBody
		if err := e.read(c, &body); err != nil {
			return err
		}
		wish, err := e.wish(ctx, body, timeout)
		if err != nil {
			return err
		}
		o, err := e.options(c)
		if err != nil {
			return err
		}
		if o.IdempotencyKey == "" {
			o.QueueDeadline = e.Patience * 9 / 10 // afterwards nobody waits for its end
		}
		done, err := e.submitCreate(ctx, wish, o)
		box, err := e.carryOut(ctx, done, err)
		if err != nil {
			if o.IdempotencyKey == "" {
				e.abandon(ctx, done)
			}
			return err
		}
		return c.Status(http.StatusCreated).JSON(e.access(box))
	}
}

// createTries bounds how many creates may fail under one Idempotency-Key.
const createTries = 16

// submitCreate submits the create, or finds the one of the same key. A create that has failed left nothing behind; its
// clients try again under their key by themselves, so it is followed by another one, the same for all who come.
func (e *Server) submitCreate(
	ctx context.Context,
	wish jobs.CreateSandbox,
	o jobs.Options,
) (done models.Submitted, err error) {
	for range createTries {
		done, err = e.Jobs.Create(ctx, wish, o)
		if limit, ok := errors.AsType[*models.LimitError](err); ok && limit.Stands() {
			return done, limitReached(limit)
		}
		if err != nil || !done.Replayed || !middleware.Answer(done).State.Terminal() ||
			middleware.Answer(done).State == models.Succeeded {
			return done, err
		}
		next := sha256.Sum256([]byte(o.IdempotencyKey + " " + middleware.Answer(done).ID))
		o.IdempotencyKey = hex.EncodeToString(next[:])
	}
	return done, err
}

// limitReached has no Retry-After: clients would wait for it, though only the end of a sandbox helps.
func limitReached(limit *models.LimitError) error {
	if limit.Limit != "max_sandboxes" {
		return problem.RetryLater(problem.Limit(limit), 0)
	}
	return problem.New(http.StatusTooManyRequests, "limit_reached", fmt.Sprintf(
		"you have reached the maximum number of concurrent sandboxes (%d); delete one or ask your operator to raise the "+
			"limit",
		int(limit.Max),
	))
}

// abandon removes a sandbox whose id nobody will learn.
func (e *Server) abandon(ctx context.Context, done models.Submitted) {
	if done.Sandbox.ID == "" {
		return
	}
	r := middleware.RequestOf(ctx)
	// It is the server's own doing: there is no entry in the audit log.
	own := jobs.Options{TenantID: r.Tenant, Actor: r.Actor()}
	_, err := e.Jobs.Delete(context.WithoutCancel(ctx), done.Sandbox.ID, true, own)
	if err != nil {
		e.Log.WarnContext(
			ctx,
			"sandbox of a failed create not deleted, its timeout ends it",
			"sandbox_id",
			done.Sandbox.ID,
			"error",
			err,
		)
	}
}
