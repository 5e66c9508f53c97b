package mcp

import (
	"context"
	"fmt"
	"regexp"
	"time"

	"github.com/gofiber/fiber/v2"

	"sandyard/egress"
	"sandyard/jobs"
	"sandyard/models"
	"sandyard/web/middleware"
	"sandyard/web/problem"
)

const (
	sessionHeader = "Mcp-Session-Id"
	// sessionPrefix is that of ids of sessions.
	sessionPrefix = "mcps_"
	// keyPrefix comes before a session's name in the key of its sandbox.
	keyPrefix = "mcp:"
)

// session is what the calls of one conversation share: names.
type session struct {
	id       string // which the client was given at initialize; empty = it sends none
	name     string // of ?session=, which outlives the id; empty = the id is the name
	template string // of the sandbox that is made for it; empty = the default
	tools    []string
}

// key is that of the session's sandbox; empty = there is no session.
func (s session) key() string {
	switch {
	case s.name != "":
		return keyPrefix + s.name
	case s.id != "":
		return keyPrefix + s.id
	}
	return ""
}

// sessionOf reads the request's session. Its names are parts of keys, and its tenant's alone.
func (s *Server) sessionOf(c *fiber.Ctx) (session, error) {
	found := session{id: c.Get(sessionHeader), name: c.Query("session"), template: c.Query("template")}
	form := regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._:@-]{0,199}$`)
	for at, text := range map[string]string{"header." + sessionHeader: found.id, "query.session": found.name} {
		if text != "" && !form.MatchString(text) {
			return found, problem.Invalid(
				at,
				"must be at most 200 letters, digits, '.', '_', ':', '@' or '-', and begin with a letter or digit",
			)
		}
	}
	var err error
	found.tools, err = s.chosen(c.Query("tools"))
	return found, err
}

// sandbox returns the sandbox that a call is for: the named one, or that of its session, which is made where it has
// none.
func (s *Server) sandbox(ctx context.Context, c *call, named string) (models.Sandbox, error) {
	if named != "" {
		return s.c.Calls.Sandbox(ctx, named)
	}
	key := c.session.key()
	if key == "" {
		return models.Sandbox{}, problem.New(
			fiber.StatusUnprocessableEntity,
			"no_session",
			"this client sends no Mcp-Session-Id, so there is no "+
				"sandbox of its session; add ?session=NAME to the server's URL, or give sandbox",
		)
	}
	box, err := s.standing(ctx, key)
	if err != nil {
		return box, err
	}
	if box.ID == "" {
		box, err = s.makeSandbox(ctx, c.session)
	}
	if err == nil && box.NextSeq <= 1 { // nothing has been done in it: its conversation does not know it yet
		c.notice, err = s.succeeds(ctx, box)
	}
	return box, err
}

// standing returns the sandbox of a key, or none. One that is about to end is waited for: only then its key is free.
func (s *Server) standing(ctx context.Context, key string) (models.Sandbox, error) {
	tick := time.NewTicker(endingEvery)
	defer tick.Stop()
	for {
		list, err := s.c.Store.Sandboxes(
			ctx,
			middleware.RequestOf(ctx).Tenant,
			models.SandboxFilter{Key: key, Live: true, Limit: 1},
		)
		if err != nil || len(list) == 0 {
			return models.Sandbox{}, err
		}
		if !list[0].Ended() && list[0].Desired != models.DesiredDeleted {
			return list[0], nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return models.Sandbox{}, problem.RetryLater(problem.New(fiber.StatusServiceUnavailable, "sandbox_ending",
				fmt.Sprintf("the session's sandbox %s is being deleted; try again, then a new one is made", list[0].ID)), 2)
		}
	}
}

// endingEvery is how often a sandbox is looked at that is about to end.
const endingEvery = 100 * time.Millisecond

func (s *Server) makeSandbox(ctx context.Context, of session) (models.Sandbox, error) {
	wish := jobs.CreateSandbox{
		Key: of.key(), Template: of.template, AutoResume: true, TimeoutSeconds: s.c.Lifetime.Seconds(),
		Labels: map[string]string{"mcp_session": of.key()[len(keyPrefix):]},
	}
	wish.Foreign.OwnNetwork = true
	if s.c.Network {
		wish.Foreign.Egress = egress.Policy{Allow: []string{egress.All}}
	}
	done, err := s.c.Jobs.Create(ctx, wish, middleware.RequestOf(ctx).Options())
	return done.Sandbox, err
}

// succeeds says of a new sandbox that it is not the session's first one, and how the one before ended.
func (s *Server) succeeds(ctx context.Context, box models.Sandbox) (string, error) {
	if box.Key == nil {
		return "", nil
	}
	list, err := s.c.Store.Sandboxes(ctx, box.TenantID, models.SandboxFilter{Key: *box.Key, Before: box.ID, Limit: 1})
	if err != nil || len(list) == 0 {
		return "", err
	}
	why := string(list[0].State)
	if list[0].EndReason != nil {
		why = *list[0].EndReason
	}
	return fmt.Sprintf(
		"The session's sandbox %s has ended (%s). This is a new one, %s: files, programs and variables of the old one are "+
			"gone.",
		list[0].ID,
		why,
		box.ID,
	), nil
}
