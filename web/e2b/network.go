package e2b

import (
	"encoding/json"
	"net/http"
	"slices"

	"github.com/gofiber/fiber/v2"

	"sandyard/egress"
	"sandyard/jobs/kind"
	"sandyard/models"
	"sandyard/web/problem"
)

// egressBody is what E2B's documents say about traffic to the outside.
type egressBody struct {
	AllowOut    []string                   `json:"allowOut"`
	DenyOut     []string                   `json:"denyOut"`
	DNSServers  []string                   `json:"dnsServers"`
	EgressProxy json.RawMessage            `json:"egressProxy"`
	Rules       map[string]json.RawMessage `json:"rules"`
}

func (n egressBody) silent() bool { return len(n.AllowOut) == 0 && len(n.DenyOut) == 0 }

func (n egressBody) unsupported() error {
	switch {
	case given(n.EgressProxy):
		return unsupported("network.egressProxy")
	case len(n.Rules) > 0:
		return unsupported("network.rules")
	case len(n.DNSServers) > 0:
		return unsupported("network.dnsServers")
	}
	return nil
}

// given says whether a body holds a value that is not null.
func given(v json.RawMessage) bool { return len(v) > 0 && string(v) != "null" }

// egress says in our terms what a body asks for. To E2B a sandbox has the internet that says nothing, what is allowed
// by name wins over what is denied, and to deny all IPv4 is to deny all.
func (e *Server) egress(n egressBody, internet *bool) egress.Policy {
	p := egress.Policy{Allow: slices.Clone(n.AllowOut), Deny: slices.Clone(n.DenyOut), AllowFirst: true}
	if (internet == nil || *internet) && !e.NoInternet {
		p.Allow = append(p.Allow, egress.All)
	}
	for i, d := range p.Deny {
		if d == "0.0.0.0/0" {
			p.Deny[i] = egress.All
		}
	}
	if p.Off() {
		return egress.Policy{}
	}
	return p
}

// egressOf is a sandbox's policy in E2B's terms.
func egressOf(b models.Sandbox) (internet bool, allow, deny []string) {
	p := kind.EgressOf(b)
	if p == nil {
		return false, nil, nil
	}
	for _, entry := range p.Allow {
		if entry == egress.All {
			internet = true
		} else {
			allow = append(allow, entry)
		}
	}
	for _, entry := range p.Deny {
		if entry == egress.All {
			entry = "0.0.0.0/0"
		}
		deny = append(deny, entry)
	}
	return internet, allow, deny
}

// setNetwork replaces the policy of a running sandbox; what the body leaves out is as if the sandbox were made without.
func (e *Server) setNetwork(c *fiber.Ctx) error {
	var body struct {
		egressBody
		Internet *bool `json:"allow_internet_access"`
	}
	if err := e.read(c, &body); err != nil {
		return err
	}
	if err := body.unsupported(); err != nil {
		return err
	}
	box, err := e.live(c)
	if err != nil {
		return err
	}
	if pausing(box) {
		return problem.New(http.StatusConflict, "sandbox_paused", "the sandbox is paused; resume it first")
	}
	_, err = e.change(c, box.ID, &kind.SetEgress{Policy: e.egress(body.egressBody, body.Internet)})
	return err
}
