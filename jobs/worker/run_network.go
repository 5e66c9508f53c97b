package worker

import (
	"context"
	"errors"
	"net"
	"strings"

	"sandyard/jobs/kind"
	"sandyard/models"
	"sandyard/providers"
)

func runSetEgress(ctx context.Context, a *attempt, s *kind.SetEgress) (result, error) {
	inside, err := a.networker(ctx)
	if err != nil {
		return result{}, err
	}
	text, err := kind.PolicyText(s.Policy)
	if err != nil {
		return result{}, err
	}
	if err := a.w.networks.Set(ctx, a.job, text, s.Policy); err != nil {
		return result{}, err
	}
	return result{value: kind.SetEgressResult{Egress: s.Policy}}, inside.SetNetwork(ctx, !s.Off())
}

// offerNetwork lets the programs of a new sandbox find the way out that it was created with.
func (a *attempt) offerNetwork(ctx context.Context, box models.Sandbox) error {
	if len(box.Egress) == 0 || a.w.provider.Capabilities().Network == providers.Native { // it was told at the create
		return nil
	}
	inside, err := a.networker(ctx)
	if err != nil {
		return err
	}
	return inside.SetNetwork(ctx, true)
}

func (a *attempt) networker(ctx context.Context) (providers.Networker, error) {
	return able[providers.Networker](ctx, a, "does not support a network; leave network and egress out")
}

func runPort(ctx context.Context, a *attempt, p *kind.Port) (result, error) {
	listening, err := a.listens(ctx, uint16(p.Port))
	if err != nil {
		return result{}, err
	}
	if a.w.node.Gateway == "" {
		return result{}, providers.NotSupported.Errorf(
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
func grantOf(jobID string) string { return "pg" + strings.TrimPrefix(jobID, "job_") }

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
		return false, providers.NotSupported.Errorf("this provider does not support access to ports")
	}
	conn, err := inside.DialPort(ctx, port)
	if known, ok := errors.AsType[*providers.Error](err); ok && known.Class == providers.Invalid {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return true, conn.Close()
}
