package jobs

import (
	"context"

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
	if err := a.w.setEgress(ctx, a.job, text, s.Policy); err != nil {
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
	sb, err := a.open(ctx)
	if err != nil {
		return nil, err
	}
	inside, ok := sb.(providers.Networker)
	if !ok {
		return nil, providers.Errorf(
			providers.NotSupported,
			"provider %s does not support a network; leave network and egress out",
			a.w.node.Provider,
		)
	}
	return inside, nil
}
