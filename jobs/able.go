package jobs

import (
	"context"
	"errors"
	"maps"
	"slices"

	"sandyard/egress"
	"sandyard/jobs/kind"
	"sandyard/models"
	"sandyard/providers"
)

// canMake refuses a sandbox that a provider cannot make as it is wished for.
func canMake(can providers.Capabilities, box *models.Sandbox) error {
	policy, err := kind.PolicyOf(box.Egress)
	if err != nil {
		return err
	}
	switch {
	case policy.Off():
	case can.Network == providers.Unsupported:
		return kind.Invalid("network", "provider %s gives sandboxes no network; leave network and egress out", can.Provider)
	case can.Network == providers.Native && !policy.Equal(egress.Public()):
		return kind.Invalid(
			"egress",
			"provider %s opens the network as a whole or not at all; use network in place of egress",
			can.Provider,
		)
	}
	if can.Pause != providers.Unsupported {
		return nil
	}
	if box.OnTimeout == "pause" {
		return kind.Invalid("on_timeout", "provider %s cannot pause sandboxes; use delete", can.Provider)
	}
	return nil
}

// supports refuses a job that the sandbox's provider cannot run, before it is written down. What is not known yet the
// worker finds out.
func (c *Client) supports(ctx context.Context, sandboxID string, args kind.Args, o Options) error {
	lacking := func(can providers.Capabilities) string { return kind.Lacks(can, args) }
	if !slices.ContainsFunc(c.catalog.Able, func(can providers.Capabilities) bool { return lacking(can) != "" }) {
		return nil
	}
	box, err := c.store.Sandbox(ctx, o.TenantID, sandboxID)
	if errors.Is(err, models.ErrNotFound) {
		return nil // the submission says it
	}
	if err != nil {
		return err
	}
	if what := lacking(c.catalog.able(box.Provider)); what != "" {
		return providers.NotSupported.Errorf(
			"provider %s of this sandbox does not support %s; GET /v1/providers says what each provider can do",
			box.Provider,
			what,
		)
	}
	return nil
}

// maxPortGrants bounds the grants of one sandbox.
const maxPortGrants = 100

// reachable says why no port of the sandbox can be let out, or not one more.
func (c *Client) reachable(ctx context.Context, sandboxID string, o Options) error {
	if c.catalog.Edge.IsZero() {
		return kind.Invalid(
			"port",
			"cannot be reached: this server has no edge; ask your operator to set EDGE_ADDR and EDGE_DOMAIN",
		)
	}
	n, err := c.store.CountPortGrants(ctx, o.TenantID, sandboxID)
	if err == nil && n >= maxPortGrants {
		err = &models.LimitError{Limit: "port grants of a sandbox", Used: float64(n), Max: maxPortGrants}
	}
	return err
}

// checkSecrets refuses a job that names a secret which the tenant has not.
func (c *Client) checkSecrets(ctx context.Context, tenantID string, args kind.Args) error {
	u, ok := args.(kind.UsesSecrets)
	if !ok {
		return nil
	}
	return c.knowsSecrets(ctx, tenantID, u.SecretNames())
}

// knowsSecrets refuses names of secrets, by their variables, that the tenant has not.
func (c *Client) knowsSecrets(ctx context.Context, tenantID string, named map[string]string) error {
	if len(named) == 0 {
		return nil
	}
	found, err := c.store.SealedSecrets(ctx, tenantID, slices.Collect(maps.Values(named)))
	if err != nil {
		return err
	}
	for variable, name := range named {
		if !slices.ContainsFunc(found, func(s models.Secret) bool { return s.Name == name }) {
			return kind.Invalid("secrets."+variable, "there is no secret %q; write it with PUT /v1/secrets/%s", name, name)
		}
	}
	return nil
}
