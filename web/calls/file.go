package calls

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"sandyard/jobs/kind"
	"sandyard/models"
	"sandyard/web/middleware"
	"sandyard/web/problem"
)

// Write replaces a file, whose directories it makes.
func (c *Calls) Write(ctx context.Context, sandboxID, path, content string) error {
	return c.do(ctx, sandboxID, &kind.Write{Path: path, Content: content})
}

// Read returns a file's text.
func (c *Calls) Read(ctx context.Context, sandboxID, path string) (string, error) {
	job, err := c.result(ctx, sandboxID, &kind.Read{Path: path})
	if err != nil {
		return "", err
	}
	if err := c.c.Stack.Output(ctx, &job, models.OutputContent, models.OutputResult); err != nil {
		return "", err
	}
	if !utf8.Valid(job.Content) {
		return "", problem.New(http.StatusUnprocessableEntity, "not_text",
			fmt.Sprintf("the file is not UTF-8 text; download it with GET /v1/sandboxes/%s/files/raw", sandboxID))
	}
	return string(job.Content), nil
}

// Expose returns the URL under which everybody reaches a port of a sandbox, as long as that lives.
func (c *Calls) Expose(ctx context.Context, sandboxID string, port int) (string, error) {
	box, err := c.Sandbox(ctx, sandboxID)
	if err != nil {
		return "", err
	}
	if port < 1 || port > 1<<16-1 {
		return "", problem.Invalid("body.port", "must be between 1 and 65535")
	}
	grants, err := c.c.Store.PortGrants(ctx, middleware.RequestOf(ctx).Tenant, sandboxID)
	if err != nil {
		return "", err
	}
	open := slices.ContainsFunc(grants, func(g models.PortGrant) bool {
		return int(g.Port) == port && g.Public && (g.ExpiresAt == nil || !g.ExpiresAt.Before(box.ExpiresAt))
	})
	if !open { // a grant for each call would soon be too many
		longest := (24 * time.Hour).Seconds()
		err := c.do(ctx, sandboxID, &kind.Port{Port: port, Public: true, ExpiresInSeconds: longest})
		if err != nil {
			return "", err
		}
	}
	url := c.c.Address.URL(sandboxID, uint16(port), "") //nolint:gosec // checked above
	return strings.TrimSuffix(url, "/"), nil            // clients add a path
}

// ToolURLs are where the MCP server and the editor of a sandbox's template are reached; nil = it has none, or its grant
// was revoked.
func (c *Calls) ToolURLs(box models.Sandbox) (mcp, vscode *string) {
	spec, err := kind.SpecOf(box)
	if err != nil || c.c.Address.IsZero() {
		return nil, nil
	}
	tool := func(name string, port int, revoked bool) *string {
		if port == 0 || revoked {
			return nil
		}
		token := c.c.Signer.Port(box.ID, models.ToolGrant(name, box.ID))
		url := c.c.Address.URL(box.ID, uint16(port), token) //nolint:gosec // from a checked template
		return &url
	}
	return tool(models.MCP, spec.MCPPort, box.MCPRevoked), tool(models.VSCode, spec.VSCodePort, box.VSCodeRevoked)
}
