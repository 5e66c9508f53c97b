package daytona

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"github.com/gofiber/fiber/v2"

	"sandyard/jobs/kind"
	"sandyard/models"
	"sandyard/web/middleware"
	"sandyard/web/problem"
)

const (
	// longestGrant is how long a port may be open by one token.
	longestGrant = 24 * time.Hour
	// defaultSigned is how long a signed URL opens a port that does not say.
	defaultSigned = 60
)

// port returns the sandbox and the port of the path.
func (s *sandboxes) port(c *fiber.Ctx) (models.Sandbox, int, error) {
	box, err := s.calls.Find(c.UserContext(), c.Params("id"))
	if err != nil {
		return box, 0, err
	}
	port, err := strconv.Atoi(c.Params("port"))
	if err != nil || port < 1 || port > 1<<16-1 {
		return box, 0, problem.Invalid("path.port", "must be between 1 and 65535")
	}
	return box, port, nil
}

// preview answers with a URL and the token for the header x-daytona-preview-token. A sandbox that is public needs none.
func (s *sandboxes) preview(c *fiber.Ctx) error {
	box, port, err := s.port(c)
	if err != nil {
		return err
	}
	ctx := c.UserContext()
	grants, err := s.store.PortGrants(ctx, box.TenantID, box.ID)
	if err != nil {
		return err
	}
	grant := ""
	for _, g := range grants { // a grant for each call would soon be too many
		if int(g.Port) == port && !g.Public && g.ExpiresAt != nil && time.Until(*g.ExpiresAt) > longestGrant/2 {
			grant = g.ID
		}
	}
	if grant == "" {
		if grant, err = s.open(ctx, box.ID, port, longestGrant); err != nil {
			return err
		}
	}
	address, signer := s.calls.Address()
	return c.JSON(map[string]any{
		"sandboxId": box.ID, "token": signer.Port(box.ID, grant),
		"url": address.URL(box.ID, uint16(port), ""), //nolint:gosec // checked
	})
}

// signed answers with a URL that holds its token.
func (s *sandboxes) signed(c *fiber.Ctx) error {
	box, port, err := s.port(c)
	if err != nil {
		return err
	}
	seconds, most := defaultSigned, int(longestGrant.Seconds())
	if text := c.Query("expiresInSeconds"); text != "" {
		if seconds, err = strconv.Atoi(text); err != nil || seconds < 1 || seconds > most {
			return problem.Invalid("query.expiresInSeconds", fmt.Sprintf("must be between 1 and %d", most))
		}
	}
	grant, err := s.open(c.UserContext(), box.ID, port, time.Duration(seconds)*time.Second)
	if err != nil {
		return err
	}
	address, signer := s.calls.Address()
	token := signer.Port(box.ID, grant)
	return c.JSON(map[string]any{
		"sandboxId": box.ID, "port": port, "token": token,
		"url": address.URL(box.ID, uint16(port), token), //nolint:gosec // checked
	})
}

// open grants a port, which needs an edge, and returns the grant.
func (s *sandboxes) open(ctx context.Context, sandboxID string, port int, life time.Duration) (string, error) {
	if address, _ := s.calls.Address(); address.IsZero() {
		return "", problem.New(fiber.StatusBadRequest, "unsupported_operation",
			"this server has no edge, so ports have no URL; ask your operator to set EDGE_ADDR and EDGE_DOMAIN")
	}
	job, err := s.calls.Do(ctx, sandboxID, &kind.Port{Port: port, ExpiresInSeconds: life.Seconds()}, models.OutputResult)
	if err != nil {
		return "", err
	}
	var res kind.PortResult
	if err := json.Unmarshal(job.Result, &res); err != nil {
		return "", fmt.Errorf("read the result of job %s: %w", job.ID, err)
	}
	return res.ID, nil
}

// expire revokes a signed URL.
func (s *sandboxes) expire(c *fiber.Ctx) error {
	box, port, err := s.port(c)
	if err != nil {
		return err
	}
	_, signer := s.calls.Address()
	grant, ok := signer.ReadPort(box.ID, c.Params("token"))
	if !ok {
		return problem.Invalid("path.token", "is not a valid token of this port; create another signed URL")
	}
	ctx := c.UserContext()
	if err := s.mw.Begin(ctx); err != nil {
		return err
	}
	tenant := middleware.RequestOf(ctx).Tenant
	_, err = s.store.RevokePort(ctx, tenant, box.ID, uint16(port), grant) //nolint:gosec // checked
	return err
}
