package v1

import (
	"net/http"
	"strings"

	"github.com/gofiber/fiber/v2"

	"sandyard/models"
	"sandyard/web/account"
	"sandyard/web/middleware"
)

// guard lets requests below /v1 pass whose API key or token has the scope that their route needs.
func (s *core) guard(c *fiber.Ctx) error {
	path := c.Path()
	if account.IsLogin(c.Method(), path) {
		if err := middleware.LoginBody(c); err != nil {
			return err
		}
		c.Set(fiber.HeaderCacheControl, "no-store")
		return c.Next()
	}
	scope := scopeOf(c.Method(), path)
	if scope == "" {
		return s.Stack.NeedAny(c)
	}
	return s.Stack.NeedKey(scope)(c)
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
