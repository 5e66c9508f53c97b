package jobs

import (
	"context"
	"errors"
	"net"
	"strings"
	"time"

	"sandyard/models"
	"sandyard/passes"
	"sandyard/providers"
)

const (
	defaultPortLife = time.Hour
	maxPortGrants   = 100
)

// Port lets traffic from outside to a port of the sandbox. Nothing needs to listen there yet.
type Port struct {
	Port             int     `json:"port" minimum:"1" maximum:"65535"`
	Public           bool    `json:"public,omitempty" doc:"Whoever knows the URL may come. Default false: only who has the token"`
	ExpiresInSeconds float64 `json:"expires_in_seconds,omitempty" doc:"Counted from the job's start; default 3600, at most 86400"`

	edge passes.Address
}

// PortResult is how the port is reached.
type PortResult struct {
	ID        string    `json:"id" doc:"Of this grant: revoke it by DELETE …/ports/{port}/{id}"`
	Port      uint16    `json:"port"`
	URL       string    `json:"url" doc:"With the token in it, unless the port is public: a browser trades it for a cookie"`
	Token     string    `json:"token,omitempty" doc:"For the header X-Sandyard-Token, the cookie or the query parameter sandyard_token; absent where the port is public"`
	Public    bool      `json:"public"`
	Listening bool      `json:"listening" doc:"Whether something listened there when the job ran"`
	ExpiresAt time.Time `json:"expires_at"`
}

// Kind implements Args.
func (*Port) Kind() string { return "port" }

// Validate implements Args.
func (p *Port) Validate() error {
	if p.Port < 1 || p.Port > 65535 || isOwnPort(p.Port) {
		return invalid("port", "must be between 1 and 65535, and neither %d nor %d, which are the sandbox's own", passes.GuestPort, passes.ProxyPort)
	}
	_, err := p.life()
	return err
}

// isOwnPort says whether nobody can be let in to a port: the guest has tokens of its own, and to the proxy nothing leads.
func isOwnPort(port int) bool { return port == passes.GuestPort || port == passes.ProxyPort }

func (p *Port) life() (time.Duration, error) {
	return seconds("expires_in_seconds", p.ExpiresInSeconds, defaultPortLife, time.Second)
}

// takeBlob stores where the edge was when the job was submitted; the worker that carries it out need not know.
func (p *Port) takeBlob() ([]byte, error) {
	if p.edge.IsZero() {
		return nil, invalid("port", "cannot be reached: this server has no edge; its operator sets EDGE_ADDR and EDGE_DOMAIN")
	}
	return []byte(p.edge.String()), nil
}

func (p *Port) setBlob(b []byte) { p.edge, _ = passes.ParseAddress(string(b)) }

func (p *Port) run(ctx context.Context, a *attempt) (result, error) {
	listening, err := a.listens(ctx, uint16(p.Port))
	if err != nil {
		return result{}, err
	}
	if a.w.signer == nil {
		return result{}, providers.Errorf(providers.NotSupported, "this worker has no gateway; its operator sets GATEWAY_ADDR")
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
	if !p.Public {
		res.Token = a.w.signer.Port(grant.SandboxID, grant.ID)
	}
	res.URL = p.edge.URL(grant.SandboxID, grant.Port, res.Token)
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
		return false, providers.Errorf(providers.NotSupported, "ports of this provider's sandboxes cannot be reached")
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

// addressed completes a port's arguments by what only the API knows.
func (c *Client) addressed(ctx context.Context, sandbox string, p *Port, o Options) error {
	p.edge = c.catalog.Edge
	n, err := c.store.CountPortGrants(ctx, o.TenantID, sandbox)
	if err == nil && n >= maxPortGrants {
		err = &models.LimitError{Limit: "port grants of a sandbox", Used: n, Max: maxPortGrants}
	}
	return err
}
