package jobs

import (
	"context"
	"errors"
	"net"
	"strings"
	"time"

	"sandyard/models"
	"sandyard/providers"
	"sandyard/tokens"
)

const (
	defaultPortLife = time.Hour
	maxPortGrants   = 100
)

// Port lets traffic from outside to a port of the sandbox. Nothing needs to listen there yet.
type Port struct {
	Port             int     `json:"port" minimum:"1" maximum:"65535"`
	Public           bool    `json:"public,omitempty" doc:"Everyone with the URL has access. Default false: only clients with the token"`
	ExpiresInSeconds float64 `json:"expires_in_seconds,omitempty" doc:"Counted from the job's start; default 3600, at most 86400"`
}

// PortResult is how the port is reached. URL and token are made when it is answered with, and never stored.
type PortResult struct {
	ID        string    `json:"id" doc:"The grant's id: revoke it with DELETE …/ports/{port}/{id}"`
	Port      uint16    `json:"port"`
	URL       string    `json:"url,omitempty" doc:"Contains the token, unless the port is public; a browser exchanges the token for a cookie"`
	Token     string    `json:"token,omitempty" doc:"For the header X-Sandyard-Token, the cookie or the query parameter sandyard_token; absent if the port is public"`
	Public    bool      `json:"public"`
	Listening bool      `json:"listening" doc:"Whether a program listened on the port when the job ran"`
	ExpiresAt time.Time `json:"expires_at"`
}

// Kind implements Args.
func (*Port) Kind() string { return "port" }

// Validate implements Args.
func (p *Port) Validate() error {
	if p.Port < 1 || p.Port > 65535 || isOwnPort(p.Port) {
		return invalid("port", "must be between 1 and 65535, except %d and %d, which the sandbox itself uses", tokens.GuestPort, tokens.ProxyPort)
	}
	_, err := p.life()
	return err
}

// isOwnPort says whether nobody can be let in to a port: the guest has tokens of its own, and to the proxy nothing leads.
func isOwnPort(port int) bool { return port == tokens.GuestPort || port == tokens.ProxyPort }

func (p *Port) life() (time.Duration, error) {
	return seconds("expires_in_seconds", p.ExpiresInSeconds, defaultPortLife, time.Second)
}

func (p *Port) run(ctx context.Context, a *attempt) (result, error) {
	listening, err := a.listens(ctx, uint16(p.Port))
	if err != nil {
		return result{}, err
	}
	if a.w.node.Gateway == "" {
		return result{}, providers.Errorf(providers.NotSupported, "this worker has no gateway; ask your operator to set GATEWAY_ADDR")
	}
	life, err := p.life()
	if err != nil {
		return result{}, err
	}
	until := a.job.StartedAt.Add(life)
	grant := &models.PortGrant{
		ID: grantOf(a.job.ID), TenantID: a.job.TenantID, SandboxID: a.job.SandboxID,
		Port: uint16(p.Port), Public: p.Public, CreatedAt: *a.job.StartedAt, ExpiresAt: &until,
	}
	res := PortResult{ID: grant.ID, Port: grant.Port, Public: p.Public, Listening: listening, ExpiresAt: until}
	return result{value: res, grant: grant}, nil
}

// grantOf names the grant of a job, the same one at every attempt.
func grantOf(job string) string { return "pg" + strings.TrimPrefix(job, "job_") }

// listens says whether something listens on a port of the job's sandbox, and on the way whether its guest answers.
func (a *attempt) listens(ctx context.Context, port uint16) (bool, error) {
	sb, err := a.open(ctx)
	if err != nil {
		return false, err
	}
	inside, ok := sb.(interface {
		DialPort(ctx context.Context, port uint16) (net.Conn, error)
	})
	if !ok {
		return false, providers.Errorf(providers.NotSupported, "this provider does not support access to ports")
	}
	conn, err := inside.DialPort(ctx, port)
	var known *providers.Error
	if errors.As(err, &known) && known.Class == providers.Invalid {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return true, conn.Close()
}

// reachable says why no port of the sandbox can be let out, or not one more.
func (c *Client) reachable(ctx context.Context, sandbox string, o Options) error {
	if c.catalog.Edge.IsZero() {
		return invalid("port", "cannot be reached: this server has no edge; ask your operator to set EDGE_ADDR and EDGE_DOMAIN")
	}
	n, err := c.store.CountPortGrants(ctx, o.TenantID, sandbox)
	if err == nil && n >= maxPortGrants {
		err = &models.LimitError{Limit: "port grants of a sandbox", Used: float64(n), Max: maxPortGrants}
	}
	return err
}
