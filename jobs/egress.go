package jobs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"sandyard/egress"
	"sandyard/models"
	"sandyard/providers"
)

// SetEgress changes where the sandbox may connect to. Its place in the sandbox's order counts: what was submitted
// before it still runs under the old policy. Connections that the new one does not allow are cut.
type SetEgress struct {
	egress.Policy
}

// SetEgressResult is the policy that holds from now on.
type SetEgressResult struct {
	Egress egress.Policy `json:"egress"`
}

// Kind implements Args.
func (*SetEgress) Kind() string { return "egress" }

// Validate implements Args.
func (s *SetEgress) Validate() error { return checkPolicy("", s.Policy) }

func (s *SetEgress) run(ctx context.Context, a *attempt) (result, error) {
	inside, err := a.networker(ctx)
	if err != nil {
		return result{}, err
	}
	text, err := policyText(s.Policy)
	if err != nil {
		return result{}, err
	}
	if err := a.w.setEgress(ctx, a.job, text, s.Policy); err != nil {
		return result{}, err
	}
	return result{value: SetEgressResult{s.Policy}}, inside.SetNetwork(ctx, !s.Off())
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
		return nil, providers.Errorf(providers.NotSupported, "provider %s does not support a network; leave network and egress out", a.w.node.Provider)
	}
	return inside, nil
}

// egress is the policy that c wishes for, as it is stored. Of one that says nothing the template decides.
func (c CreateSandbox) egress(from source) (json.RawMessage, error) {
	p, err := c.policy(from)
	if err == nil {
		err = checkPolicy("egress.", p)
	}
	if err != nil {
		return nil, err
	}
	return policyText(p)
}

func (c CreateSandbox) policy(from source) (egress.Policy, error) {
	template := from.template.Definition.Egress
	switch {
	case c.Network && c.Egress != nil && len(c.Egress.Allow) > 0:
		return egress.Policy{}, invalid("network", "means the same as egress.allow [\"*\"]; use only one of them")
	case c.Network && c.Egress != nil:
		return egress.Policy{Allow: egress.Public().Allow, Deny: c.Egress.Deny, AllowFirst: c.Egress.AllowFirst}, nil
	case c.Network:
		return egress.Public(), nil
	case c.Egress != nil:
		return *c.Egress, nil
	case template != nil:
		return egress.Policy{Allow: template.Allow, Deny: template.Deny}, nil
	}
	return from.defaults.open(c.Foreign), nil
}

func checkPolicy(at string, p egress.Policy) error {
	_, err := p.Compile()
	var entry *egress.EntryError
	if errors.As(err, &entry) {
		return invalid(at+entry.Field, "%s", entry.Message)
	}
	return err
}

// policyText is nil for a policy that allows nothing.
func policyText(p egress.Policy) (json.RawMessage, error) {
	if p.Off() {
		return nil, nil
	}
	return json.Marshal(p)
}

// EgressOf is a sandbox's policy; nil = it may connect to nowhere.
func EgressOf(box models.Sandbox) *egress.Policy {
	p, err := PolicyOf(box.Egress)
	if err != nil || p.Off() { // one that cannot be read allows nothing
		return nil
	}
	return &p
}

// PolicyOf reads a sandbox's stored policy.
func PolicyOf(text json.RawMessage) (egress.Policy, error) {
	var p egress.Policy
	if len(text) == 0 {
		return p, nil
	}
	if err := json.Unmarshal(text, &p); err != nil {
		return p, fmt.Errorf("read the egress policy: %w", err)
	}
	return p, nil
}
