package web

import (
	"context"
	"net/http"
	"time"

	"sandyard/egress"
	"sandyard/jobs"
	"sandyard/models"
)

// EgressBody is the body of a change of where a sandbox may connect to.
type EgressBody struct {
	jobs.SetEgress
	Submit
}

// EgressUse is the document of a sandbox's way to the outside.
type EgressUse struct {
	Egress        egress.Policy  `json:"egress" doc:"The policy in force; an empty one allows nothing"`
	Connections   int64          `json:"connections" doc:"Made so far"`
	Denied        int64          `json:"denied" doc:"Refused so far"`
	SentBytes     int64          `json:"sent_bytes" doc:"To the outside. Counts are some seconds old; the last ones before a worker's death may be missing"`
	ReceivedBytes int64          `json:"received_bytes"`
	Denials       []EgressDenial `json:"denials" doc:"What was refused, by destination, the newest first; at most 200 are kept"`
}

// EgressDenial is a kind of connection that was refused.
type EgressDenial struct {
	Target  string    `json:"target,omitempty" doc:"host:port; absent where it could not be read" example:"example.com:443"`
	Reason  string    `json:"reason" enum:"policy,address,target,limit" doc:"policy: not allowed by the sandbox's egress; address: closed to all sandboxes; target: not a clear destination; limit: too many at once"`
	Count   int64     `json:"count"`
	FirstAt time.Time `json:"first_at"`
	LastAt  time.Time `json:"last_at"`
}

func (s *Server) addEgress() {
	put := operation("set-egress", http.MethodPut, "/v1/sandboxes/{id}/egress", tagSandboxes, "Set where a sandbox may connect to")
	put.Description = "Replaces the policy. It holds for what is submitted after it; connections that it does not allow are cut. " +
		"Programs reach the outside through a proxy, for HTTP, HTTPS and SOCKS5, that they find in HTTP_PROXY, HTTPS_PROXY and ALL_PROXY. " +
		"Names are looked up outside, and the policy goes by the name or address that is asked for, not by what is said afterwards."
	work(s, put, func(b *EgressBody) (jobs.Args, Submit) { return &b.SetEgress, b.Submit })
	register(s, operation("get-egress", http.MethodGet, "/v1/sandboxes/{id}/egress", tagSandboxes,
		"Where a sandbox may connect to, what it has used and what it was refused"), s.getEgress)
}

func (s *Server) getEgress(ctx context.Context, in *sandboxInput) (*output[EgressUse], error) {
	box, err := s.store.Sandbox(ctx, requestOf(ctx).tenant, in.ID)
	if err != nil {
		return nil, err
	}
	used, err := s.store.EgressUse(ctx, box.ID)
	if err != nil {
		return nil, err
	}
	doc := EgressUse{
		Connections: used.Connections, Denied: used.Denied, SentBytes: used.Sent, ReceivedBytes: used.Received,
		Denials: []EgressDenial{},
	}
	if p := egressDoc(box); p != nil {
		doc.Egress = *p
	}
	for _, d := range used.Denials {
		doc.Denials = append(doc.Denials, EgressDenial{d.Target, d.Reason, d.Count, d.FirstAt, d.LastAt})
	}
	return &output[EgressUse]{doc}, nil
}

// egressDoc is a sandbox's policy; nil = it may connect to nowhere.
func egressDoc(b models.Sandbox) *egress.Policy {
	p, err := jobs.PolicyOf(b.Egress)
	if err != nil || p.Off() { // one that cannot be read allows nothing
		return nil
	}
	return &p
}
