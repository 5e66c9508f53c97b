package v1

import (
	"context"
	"time"

	"sandyard/egress"
	"sandyard/jobs/kind"
	"sandyard/web/middleware"
	"sandyard/web/rest"
)

// EgressBody is the body of a change of where a sandbox may connect to.
type EgressBody struct {
	kind.SetEgress
	Submit
}

// EgressUse is the document of a sandbox's way to the outside.
type EgressUse struct {
	Egress        egress.Policy  `json:"egress" doc:"The policy in force; an empty one allows nothing"`
	Connections   int64          `json:"connections" doc:"Connections made so far"`
	Denied        int64          `json:"denied" doc:"Connections denied so far"`
	SentBytes     int64          `json:"sent_bytes" doc:"Sent by the sandbox. Counters lag by some seconds; a worker crash may lose the last ones"`
	ReceivedBytes int64          `json:"received_bytes"`
	Denials       []EgressDenial `json:"denials" doc:"Denied connections by destination, newest first; at most 200 are kept"`
}

// EgressDenial is a kind of connection that was refused.
type EgressDenial struct {
	Target  string    `json:"target,omitempty" doc:"host:port; absent if it could not be read" example:"example.com:443"`
	Reason  string    `json:"reason" enum:"policy,address,target,limit" doc:"policy: not allowed by the sandbox's egress; address: closed to all sandboxes; target: malformed destination; limit: too many connections at once"`
	Count   int64     `json:"count"`
	FirstAt time.Time `json:"first_at"`
	LastAt  time.Time `json:"last_at"`
}

func (s *sandboxes) addEgress() {
	put := rest.Operation("set-egress", "PUT /v1/sandboxes/{id}/egress", tagSandboxes,
		"Set the egress policy of a sandbox")
	put.Description = "Replaces the policy. It applies to all jobs submitted after it; open connections that it does " +
		"not allow are closed. " +
		"Programs connect through an HTTP, HTTPS and SOCKS5 proxy that HTTP_PROXY, HTTPS_PROXY and ALL_PROXY name. " +
		"The proxy resolves names. The policy checks the requested name or address, not later content such as SNI or Host."
	work(s.core, put, func(b *EgressBody) (kind.Args, Submit) { return &b.SetEgress, b.Submit })
	rest.Route(s.api, "get-egress", "GET /v1/sandboxes/{id}/egress", tagSandboxes,
		"Get a sandbox's egress policy, its traffic and denied connections", s.getEgress)
}

func (s *sandboxes) getEgress(ctx context.Context, in *sandboxInput) (*rest.Output[EgressUse], error) {
	box, err := s.Store.Sandbox(ctx, middleware.RequestOf(ctx).Tenant, in.ID)
	if err != nil {
		return nil, err
	}
	used, err := s.Store.EgressUse(ctx, box.ID)
	if err != nil {
		return nil, err
	}
	doc := EgressUse{
		Connections: used.Connections, Denied: used.Denied, SentBytes: used.Sent, ReceivedBytes: used.Received,
		Denials: []EgressDenial{},
	}
	if p := kind.EgressOf(box); p != nil {
		doc.Egress = *p
	}
	for _, d := range used.Denials {
		doc.Denials = append(doc.Denials, EgressDenial{d.Target, d.Reason, d.Count, d.FirstAt, d.LastAt})
	}
	return rest.OK(doc), nil
}
