package jobs

import (
	"context"
	"errors"
	"net"
	"strings"

	"sandyard/jobs/kind"
	"sandyard/models"
	"sandyard/providers"
)

func runPort(ctx context.Context, a *attempt, p *kind.Port) (result, error) {
	listening, err := a.listens(ctx, uint16(p.Port))
	if err != nil {
		return result{}, err
	}
	if a.w.node.Gateway == "" {
		return result{}, providers.Errorf(
			providers.NotSupported,
			"this worker has no gateway; ask your operator to set GATEWAY_ADDR",
		)
	}
	life, err := p.Life()
	if err != nil {
		return result{}, err
	}
	until := a.job.StartedAt.Add(life)
	grant := &models.PortGrant{
		ID: grantOf(a.job.ID), TenantID: a.job.TenantID, SandboxID: a.job.SandboxID,
		Port: uint16(p.Port), Public: p.Public, CreatedAt: *a.job.StartedAt, ExpiresAt: &until,
	}
	res := kind.PortResult{ID: grant.ID, Port: grant.Port, Public: p.Public, Listening: listening, ExpiresAt: until}
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
