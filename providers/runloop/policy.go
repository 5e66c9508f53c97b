package runloop

import (
	"context"
	"net/http"
	"net/url"

	"sandyard/providers"
	"sandyard/providers/remote"
)

// policyName is that of the network policy of sandboxes without a network. An account has a name once.
const policyName = "sandyard-no-network"

// policy is what Runloop says of a network policy.
type policy struct {
	ID     string `json:"id"`
	Name   string `json:"name"`
	Egress *struct {
		All       bool     `json:"allow_all"`
		Gateway   bool     `json:"allow_agent_gateway"`
		Devboxes  bool     `json:"allow_devbox_to_devbox"`
		MCP       bool     `json:"allow_mcp_gateway"`
		Mirrors   bool     `json:"allow_runloop_mirrors"`
		CIDRs     []any    `json:"allowed_cidrs"`
		Hostnames []string `json:"allowed_hostnames"`
	} `json:"egress"`
}

// check answers an error for a policy that is none, or that permits anything.
func (p policy) check() error {
	if !remote.ValidID(p.ID) || p.Egress == nil {
		return errNotRunloop
	}
	e := p.Egress
	if e.All || e.Gateway || e.Devboxes || e.MCP || e.Mirrors || len(e.CIDRs) > 0 || len(e.Hostnames) > 0 {
		return providers.Internal.Errorf(
			"the network policy %s at Runloop permits traffic; ask your operator to delete it there", policyName,
		)
	}
	return nil
}

// closed returns the id of the network policy that permits nothing, which is made where there is none.
func (p *Provider) closed(ctx context.Context) (string, error) {
	p.policies.Lock()
	defer p.policies.Unlock()
	if p.policy != "" {
		return p.policy, nil
	}
	found, err := p.findPolicy(ctx)
	if err == nil && found == nil {
		found, err = p.makePolicy(ctx)
		if remote.IsClass(err, providers.Busy) { // another worker was first
			found, err = p.findPolicy(ctx)
		}
	}
	if err == nil && found == nil {
		err = providers.Unavailable.Errorf("Runloop does not know the new network policy yet; try again")
	}
	if err == nil {
		err = found.check()
	}
	if err != nil {
		return "", err
	}
	p.policy = found.ID
	return found.ID, nil
}

// forgetPolicy lets the next create look for the policy: somebody may have deleted it.
func (p *Provider) forgetPolicy(id string) {
	p.policies.Lock()
	defer p.policies.Unlock()
	if p.policy == id {
		p.policy = ""
	}
}

func (p *Provider) findPolicy(ctx context.Context) (*policy, error) {
	var page struct {
		Policies []policy `json:"network_policies"`
	}
	_, err := p.vendor.Call(ctx, remote.Request{
		Method: http.MethodGet, Path: "/v1/network-policies", Query: url.Values{"name": {policyName}, "limit": {"100"}},
		Want: []int{http.StatusOK}, Limit: maxAnswer, Into: &page,
	})
	if err == nil && page.Policies == nil {
		err = errNotRunloop
	}
	for i := range page.Policies {
		if page.Policies[i].Name == policyName { // the name asked for may be a part of others
			return &page.Policies[i], listTranslated(err)
		}
	}
	return nil, listTranslated(err)
}

func (p *Provider) makePolicy(ctx context.Context) (*policy, error) {
	var made policy
	_, err := p.vendor.Call(ctx, remote.Request{
		Method: http.MethodPost, Path: "/v1/network-policies", Once: true, Limit: maxAnswer, Into: &made,
		Body: map[string]any{
			"name": policyName, "description": "Sandboxes without a network.", "allow_all": false,
			"allow_devbox_to_devbox": false, "allow_runloop_mirrors": false, "allowed_hostnames": []string{},
		},
		Want: []int{http.StatusOK, http.StatusCreated},
	})
	return &made, remote.Translated(vendorName, "make a network policy", err, changeClass)
}
