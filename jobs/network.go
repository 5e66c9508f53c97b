package jobs

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
	Apply(sandbox string, p egress.Policy)
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

// networkLoop sees to it that the sandboxes of this node that have a network are connected to: nobody else may have a
// job in one whose background process needs it, after its last worker has died. It also reports what they used.
func (w *Worker) networkLoop() {
	tick := time.NewTicker(networkEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-w.networks:
		case <-w.quit:
			w.reportNetworks()
			return
		}
		w.reportNetworks()
		w.connectNetworks()
	}
}

// tendNetworks makes the loop look now.
func (w *Worker) tendNetworks() {
	select {
	case w.networks <- struct{}{}:
	default:
	}
}

func (w *Worker) connectNetworks() {
	ctx, cancel := w.living(context.Background(), networkPatience)
	defer cancel()
	boxes, err := w.applyPolicies(ctx)
	if err != nil {
		w.log.WarnContext(ctx, "egress policies not read, trying again", "error", err)
		return
	}
	var opening sync.WaitGroup
	room := make(chan struct{}, networkOpens)
	for _, b := range boxes {
		room <- struct{}{}
		opening.Go(func() {
			defer func() { <-room }()
			w.connectNetwork(ctx, b)
		})
	}
	opening.Wait()
}

// applyPolicies makes the rows hold, and returns those that allow something. What is served and has no such row was
// told off behind our back, by a worker that held it before: its row is read too, and no row allows nothing.
func (w *Worker) applyPolicies(ctx context.Context) ([]models.Sandbox, error) {
	w.policies.Lock()
	defer w.policies.Unlock()
	boxes, err := w.store.Networked(ctx, w.node.ID)
	if err != nil {
		return nil, err
	}
	known := map[string]bool{}
	for _, b := range boxes {
		known[b.ID] = true
		w.apply(ctx, b.ID, b.Egress)
	}
	others := slices.DeleteFunc(w.egress.Served(), func(id string) bool { return known[id] })
	rows, err := w.store.Egresses(ctx, others)
	if err != nil {
		return boxes, err
	}
	for _, id := range others {
		w.apply(ctx, id, rows[id])
	}
	return boxes, nil
}

// apply makes a row hold. One that cannot be read allows nothing.
func (w *Worker) apply(ctx context.Context, id string, text json.RawMessage) {
	p, err := kind.PolicyOf(text)
	if err != nil {
		p = egress.Policy{}
		w.log.ErrorContext(ctx, "egress policy not readable, all connections denied", "sandbox_id", id, "error", err)
	}
	w.egress.Apply(id, p)
}

// setEgress writes a policy down and makes it hold.
func (w *Worker) setEgress(ctx context.Context, j models.Job, text json.RawMessage, p egress.Policy) error {
	w.policies.Lock()
	defer w.policies.Unlock()
	if err := w.store.SetEgress(ctx, j, text); err != nil {
		return err
	}
	w.egress.Apply(j.SandboxID, p)
	return nil
}

func (w *Worker) connectNetwork(ctx context.Context, b models.Sandbox) {
	if b.State != models.SandboxRunning {
		return
	}
	if _, err := w.provider.Open(ctx, b.ID); err != nil {
		w.log.WarnContext(ctx, "sandbox with egress not reached", "sandbox_id", b.ID, "error", err)
	}
}

func (w *Worker) reportNetworks() {
	ctx, cancel := w.finishing(context.Background(), networkPatience)
	defer cancel()
	err := w.egress.Report(func(used []egress.Usage) error {
		err := w.store.AddEgressUse(ctx, uses(used, w.store.Ahead(ctx)))
		if err == nil {
			w.security.denied(used)
		}
		return err
	})
	if err != nil {
		w.log.WarnContext(ctx, "egress usage not stored, trying again", "error", err)
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
				SandboxID: u.Sandbox, Target: d.Target, Reason: d.Reason, Count: d.Count, FirstAt: d.First.Add(ahead), LastAt: d.Last.Add(ahead),
			})
		}
		out = append(out, row)
	}
	return out
}
