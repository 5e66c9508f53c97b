package node

import (
	"context"
	"encoding/json"
	"slices"
	"sync"
	"time"

	"sandyard/egress"
	"sandyard/jobs/kind"
	"sandyard/models"
)

const (
	// networkEvery is the time between looks at the sandboxes that have a network, and between reports of its use.
	networkEvery    = 3 * time.Second
	networkPatience = 20 * time.Second
	networkOpens    = 8 // sandboxes that are connected to at once
)

// Egress makes the connections of the sandboxes that a worker holds.
type Egress interface {
	// Apply makes a policy that has been written down hold.
	Apply(sandboxID string, p egress.Policy)
	// Served returns the sandboxes that are served now.
	Served() []string
	// Report hands what was used since the last report to write, or keeps it where that fails.
	Report(write func([]egress.Usage) error) error
}

// noEgress stands in for an Egress where there is none: sandboxes are offered what leads nowhere.
type noEgress struct{}

func (noEgress) Apply(string, egress.Policy)             {}
func (noEgress) Served() []string                        { return nil }
func (noEgress) Report(func([]egress.Usage) error) error { return nil }

// Networks sees to it that the sandboxes of this node that have a network are connected to: nobody else may have a job
// in one whose background process needs it, after its last worker has died. It also reports what they used.
type Networks struct {
	Base
	egress   Egress
	now      chan struct{} // look after them now
	policies sync.Mutex    // held from a look at the rows of policies until they hold
}

// NewNetworks makes the networks whose connections e makes; nil = sandboxes reach nothing.
func NewNetworks(b Base, e Egress) *Networks {
	if e == nil {
		e = noEgress{}
	}
	return &Networks{Base: b, egress: e, now: make(chan struct{}, 1)}
}

// Run looks after the networks until the life ends.
func (n *Networks) Run(ctx context.Context) {
	n.Life.Every(networkEvery, n.now, func() {
		n.report(ctx)
		n.connectAll(ctx)
	})
	n.report(ctx)
}

// Tend looks after them soon.
func (n *Networks) Tend() {
	select {
	case n.now <- struct{}{}:
	default:
	}
}

func (n *Networks) connectAll(ctx context.Context) {
	ctx, cancel := n.Life.Within(ctx, networkPatience)
	defer cancel()
	boxes, err := n.applyPolicies(ctx)
	if err != nil {
		n.Log.WarnContext(ctx, "egress policies not read, trying again", "error", err)
		return
	}
	var opening sync.WaitGroup
	room := make(chan struct{}, networkOpens)
	for _, b := range boxes {
		room <- struct{}{}
		opening.Go(func() {
			defer func() { <-room }()
			n.connect(ctx, b)
		})
	}
	opening.Wait()
}

// applyPolicies makes the rows hold, and returns those that allow something. What is served and has no such row was
// told off behind our back, by a worker that held it before: its row is read too, and no row allows nothing.
func (n *Networks) applyPolicies(ctx context.Context) ([]models.Sandbox, error) {
	n.policies.Lock()
	defer n.policies.Unlock()
	boxes, err := n.Store.Networked(ctx, n.Node.ID)
	if err != nil {
		return nil, err
	}
	known := map[string]bool{}
	for _, b := range boxes {
		known[b.ID] = true
		n.apply(ctx, b.ID, b.Egress)
	}
	others := slices.DeleteFunc(n.egress.Served(), func(id string) bool { return known[id] })
	rows, err := n.Store.Egresses(ctx, others)
	if err != nil {
		return boxes, err
	}
	for _, id := range others {
		n.apply(ctx, id, rows[id])
	}
	return boxes, nil
}

// apply makes a row hold. One that cannot be read allows nothing.
func (n *Networks) apply(ctx context.Context, id string, text json.RawMessage) {
	p, err := kind.PolicyOf(text)
	if err != nil {
		p = egress.Policy{}
		n.Log.ErrorContext(ctx, "egress policy not readable, all connections denied", "sandbox_id", id, "error", err)
	}
	n.egress.Apply(id, p)
}

// Set writes a policy down and makes it hold.
func (n *Networks) Set(ctx context.Context, j models.Job, text json.RawMessage, p egress.Policy) error {
	n.policies.Lock()
	defer n.policies.Unlock()
	if err := n.Store.SetEgress(ctx, j, text); err != nil {
		return err
	}
	n.egress.Apply(j.SandboxID, p)
	return nil
}

func (n *Networks) connect(ctx context.Context, b models.Sandbox) {
	if b.State != models.SandboxRunning {
		return
	}
	if _, err := n.Provider.Open(ctx, b.ID); err != nil {
		n.Log.WarnContext(ctx, "sandbox with egress not reached", "sandbox_id", b.ID, "error", err)
	}
}

func (n *Networks) report(ctx context.Context) {
	ctx, cancel := n.Patience.Within(ctx, networkPatience)
	defer cancel()
	err := n.egress.Report(func(used []egress.Usage) error {
		err := n.Store.AddEgressUse(ctx, uses(used, n.Store.Ahead(ctx)))
		if err == nil {
			n.Security.Denied(used)
		}
		return err
	})
	if err != nil {
		n.Log.WarnContext(ctx, "egress usage not stored, trying again", "error", err)
	}
}

// uses turns reports to rows; ahead is how much later it is in the database than here.
func uses(used []egress.Usage, ahead time.Duration) []models.EgressUse {
	out := make([]models.EgressUse, 0, len(used))
	for _, u := range used {
		row := models.EgressUse{
			SandboxID:   u.Sandbox,
			Connections: u.Connections,
			Denied:      u.Denied,
			Sent:        u.Sent,
			Received:    u.Received,
		}
		for _, d := range u.Denials {
			row.Denials = append(row.Denials, models.EgressDenial{
				SandboxID: u.Sandbox, Target: d.Target, Reason: d.Reason, Count: d.Count, FirstAt: d.First.Add(ahead),
				LastAt: d.Last.Add(ahead),
			})
		}
		out = append(out, row)
	}
	return out
}
