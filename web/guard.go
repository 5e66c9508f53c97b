package web

import (
	"net/http"
	"strings"

	"github.com/gofiber/fiber/v2"

	"sandyard/models"
	"sandyard/web/middleware"
	"sandyard/web/problem"
)

// Paths of logins, which anybody may call.
const (
	loginPath   = "/v1/login"
	refreshPath = "/v1/login/refresh"
)

// guard lets requests below /v1 pass whose API key or token has the scope that their route needs.
func (s *Server) guard(c *fiber.Ctx) error {
	path := c.Path()
	if c.Method() == http.MethodPost && (path == loginPath || path == refreshPath) {
		if err := middleware.LoginBody(c); err != nil {
			return err
		}
		c.Set(fiber.HeaderCacheControl, "no-store")
		return c.Next()
	}
	scope := scopeOf(c.Method(), path)
	if scope == "" {
		return s.mw.NeedAny(c)
	}
	return s.mw.NeedKey(scope)(c)
}

// scopeOf is the scope that a request below /v1 needs; empty = it takes any key or token. What is not named here needs
// sandboxes.
func scopeOf(method, path string) string {
	parts := strings.Split(strings.TrimPrefix(path, "/v1/"), "/")
	switch parts[0] {
	case "me", "logout", "limits":
		return ""
	case "keys", "users", "secrets", "audit", "security-events":
		return models.ScopeAdmin
	case "tenants":
		return models.ScopeOperator
	case "templates":
		return models.ScopeTemplates
	case "webhooks":
		return models.ScopeWebhooks
	case "jobs":
		if method == http.MethodGet || len(parts) == 3 && (parts[2] == "cancel" || parts[2] == "retry") {
			return models.ScopeJobs
		}
	case "sandboxes":
		if len(parts) > 2 && parts[2] == "files" {
			return models.ScopeFiles
		}
	}
	return models.ScopeSandboxes
}

// noUser is the answer to an API key where a user is meant.
func noUser() error {
	return problem.New(http.StatusConflict, "no_login", "this request came with an API key, which nobody has logged in with; send the token of a login")
}
